"""Starting Spark: what does not come up in time, and what comes up too late. (Real clusters: ``tests/integration``.)"""

from __future__ import annotations

import threading
from typing import Any

import pyspark
import pytest

from statecore.errors import Retryable
from statecore.spark import session


class SlowContext:
    """Takes the place of ``SparkContext`` and comes up when it is told to."""

    come_up = threading.Event()
    stopped = threading.Event()

    def __init__(self, conf: Any) -> None:
        assert self.come_up.wait(300)
        self._accumulatorServer = None

    def setLogLevel(self, level: str) -> None:
        """Quiet already."""

    def stop(self) -> None:
        self.stopped.set()


def test_a_context_that_comes_up_when_nobody_waits_any_more_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyspark, "SparkContext", SlowContext)
    monkeypatch.setattr(session, "REGISTRATION_SECONDS", 0.05)
    with pytest.raises(Retryable, match="What listens at spark://one:7077 did not take the job"):
        session._registered(None, "spark://one:7077")  # type: ignore[arg-type]
    assert not SlowContext.stopped.is_set()
    SlowContext.come_up.set()
    assert SlowContext.stopped.wait(300)
