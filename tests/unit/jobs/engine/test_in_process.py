"""The engine that is this process."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from statecore.errors import Capacity
from statecore.jobs.engine.in_process import InProcessEngine
from statecore.jobs.engine.protocol import Failure
from tests.unit.jobs.support import spec


def test_batches_are_worked_on_in_their_order_up_to_the_first_failure() -> None:
    seen: list[int] = []

    def work(batch: Sequence[int]) -> list[int | Failure]:
        seen.extend(batch)
        failed = Failure(Capacity("The disk is full.", code="test-error", action="Make room.").to_json())
        return [failed if number == 3 else 10 * number for number in batch]

    engine = InProcessEngine()
    with engine.start("test", spec()) as workers:
        assert workers.parallelism() == engine.expected(spec()) == 1
        assert workers.are_local()
        assert workers.run(work, [[1, 2], [4]], "numbers were multiplied") == [10, 20, 40]
        answers = workers.run(work, [[5], [6, 3], [7]], "numbers were multiplied")
    assert [isinstance(answer, Failure) for answer in answers] == [False, False, True]
    assert seen == [1, 2, 4, 5, 6, 3]


def test_modules_are_loaded_before_work_begins_and_one_that_is_missing_is_for_those_who_need_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "loaded_beside.py").write_text("import time\ntime.sleep(0.3)\nDONE = True\n")
    monkeypatch.syspath_prepend(str(tmp_path))

    def work(batch: Sequence[int]) -> list[int | Failure]:
        assert sys.modules["loaded_beside"].DONE
        return list(batch)

    with InProcessEngine(("loaded_beside", "not_there_at_all")).start("test", spec()) as workers:
        assert workers.run(work, [[1]], "numbers were looked at") == [1]
    del sys.modules["loaded_beside"]
