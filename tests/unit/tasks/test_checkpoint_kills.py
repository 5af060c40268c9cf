"""SIGKILL at random moments: what a file says is never ahead of the rows."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from statecore.stores.legacy_offsets import read_offsets
from tests.harness.case_selection import one_of
from tests.harness.forked import Forks
from tests.unit.tasks.checkpointing_process import BESIDE, INSIDE, inside, number, rows_beside, task

KILLS = 15

LONGEST_LIFE = 0.15
"""Seconds, in which it commits many times unless the machine is busy."""


@pytest.mark.parametrize("interval_ms", one_of([0, 7]))
def test_a_file_is_never_ahead_of_the_rows_wherever_the_process_dies(
    forks: Forks, tmp_path: Path, interval_ms: int
) -> None:
    dice = random.Random(interval_ms)
    turns = []
    longest = _longest_life(forks, tmp_path / "before", interval_ms)
    for _ in range(KILLS):
        _run_and_kill(forks, tmp_path, interval_ms, dice.uniform(0, longest))
        with inside(tmp_path) as store:
            rows_inside = number(store)
            assert (store.committed_offset(INSIDE) or 0) == rows_inside
        with rows_beside(tmp_path) as rows:
            behind = number(rows)
        in_task, in_own = read_offsets(tmp_path / ".checkpoint"), read_offsets(tmp_path / ".checkpoint_beside")
        assert in_task.get(INSIDE, -4) <= rows_inside
        assert in_task.get(BESIDE, -4) <= behind
        assert in_own.get(BESIDE, -4) <= behind
        offsets = task(tmp_path)
        offsets.open()
        taken = offsets.stores[1].store.committed_offset(BESIDE)
        offsets.close()
        assert (-4 if taken is None else taken) <= behind
        turns.append((rows_inside, behind))
    assert len(set(turns)) > KILLS // 2, "it was killed while it worked"


def _longest_life(forks: Forks, directory: Path, interval_ms: int) -> float:
    """Seconds that a process may live: enough to commit, however busy the machine is."""
    directory.mkdir()
    longest = LONGEST_LIFE
    while True:
        _run_and_kill(forks, directory, interval_ms, longest)
        with inside(directory) as store:
            if number(store):
                return longest
        longest *= 2


def _run_and_kill(forks: Forks, directory: Path, interval_ms: int, after: float) -> None:
    with forks.running("tests.unit.tasks.checkpointing_process", str(directory), str(interval_ms)) as process:
        assert process.read_line() == "running\n"
        time.sleep(after)
        process.kill()
        process.wait()
