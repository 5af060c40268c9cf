"""Starting Spark: what does not come up in time, and what comes up too late. (Real clusters: ``tests/integration``.)"""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Any

import py4j.java_gateway
import pyspark
import pytest

from statecore.errors import Invalid, Retryable
from statecore.spark import session
from tests.harness.raising import raises


class SlowContext:
    """Takes the place of ``SparkContext`` and comes up when it is told to."""

    come_up = threading.Event()
    stopped = threading.Event()
    _jvm = None

    def __init__(self, conf: Any) -> None:
        assert self.come_up.wait(300)
        self._accumulatorServer = None

    def setLogLevel(self, level: str) -> None:
        """Quiet already."""

    def stop(self) -> None:
        self.stopped.set()


def test_a_context_that_starts_after_the_timeout_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyspark, "SparkContext", SlowContext)
    with raises(Retryable, "spark-master-not-responding", master="spark://one:7077"):
        session.start_registered(None, "spark://one:7077", seconds=0.05)  # type: ignore[arg-type]
    assert not SlowContext.stopped.is_set()
    SlowContext.come_up.set()
    assert SlowContext.stopped.wait(300)


def test_without_java_a_sentence_says_so_and_names_the_engine_that_needs_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(pyspark, "SparkContext", SlowContext)
    monkeypatch.setattr(SlowContext, "_active_spark_context", None, raising=False)
    for name in ("JAVA_HOME", "PYSPARK_GATEWAY_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with raises(Invalid, "java-missing") as caught, session.spark_context("job", "local[1]"):
        pass
    assert "--engine processes" in caught.value.action


def test_a_ctrl_c_leaves_no_stack_trace_of_py4j(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert session.INTERRUPTED in Path(py4j.java_gateway.__file__).read_text()
    monkeypatch.setattr(logging.getLogger(), "filters", [session.is_no_interrupt])
    logging.getLogger().error(session.INTERRUPTED)
    logging.getLogger().error("another")
    assert caplog.messages == ["another"]
