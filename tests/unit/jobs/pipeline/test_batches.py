"""Batches of tasks: what shares one, what does not, and their progress."""

from __future__ import annotations

import threading

import pytest

from statecore.errors import Retryable, StatecoreError
from statecore.jobs.pipeline import batches as pipeline_batches
from statecore.jobs.pipeline.batches import StageProgress, batched
from statecore.progress import NullProgress


def test_small_tasks_share_a_spark_task_and_large_ones_do_not() -> None:
    many = list(range(600))
    batches = batched(many, [100] * 600, parallelism=2)
    assert [each for batch in batches for each in batch] == many
    assert (len(batches), max(map(len, batches))) == (8, 75)
    assert len(batched(many, [100] * 600, parallelism=200)) == 600
    assert [len(batch) for batch in batched(many[:5], [5_000_000] * 5, 1)] == [1] * 5
    assert [len(batch) for batch in batched(many[:40], [5_000_000] * 4 + [90_000] * 36, 1)] == [1] * 4 + [2] * 18
    assert batched([], [], 2) == []


def test_a_worker_that_is_alone_gets_all_small_tasks_at_once() -> None:
    assert [len(batch) for batch in batched(list(range(100)), [100] * 100, 1)] == [100]
    assert [len(batch) for batch in batched(list(range(4)), [150_000] * 4, 1)] == [1] * 4


class Advances(NullProgress):
    def __init__(self) -> None:
        self.advanced = threading.Event()

    def advance(self, amount: int = 1) -> None:
        self.advanced.set()


@pytest.mark.parametrize(
    "error",
    [
        Retryable("The store is slow.", code="test-error", action="Try again."),
        StatecoreError("The store refuses.", code="test-error", action="Look."),
        PermissionError("progress"),
    ],
)
def test_progress_goes_on_after_an_error(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline_batches, "POLL_INTERVAL", 0.001)
    answers, progress = iter([error, 7]), Advances()

    def done() -> int:
        answer = next(answers, 7)
        if isinstance(answer, Exception):
            raise answer
        return answer

    with StageProgress(done, progress) as watch:
        assert progress.advanced.wait(30)
    assert watch.seen == 7
