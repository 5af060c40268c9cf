"""Progress of a stage while its tasks run elsewhere."""

from __future__ import annotations

import threading

import pytest

from statecore.errors import Retryable, StatecoreError
from statecore.jobs.pipeline import stage_progress
from statecore.jobs.pipeline.stage_progress import StageProgress
from statecore.progress import NullProgress


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
    monkeypatch.setattr(stage_progress, "POLL_INTERVAL", 0.001)
    answers, progress = iter([error, 7]), Advances()

    def done() -> int:
        answer = next(answers, 7)
        if isinstance(answer, Exception):
            raise answer
        return answer

    with StageProgress(done, progress) as watch:
        assert progress.advanced.wait(30)
    assert watch.seen == 7
