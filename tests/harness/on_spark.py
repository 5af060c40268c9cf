"""A restore on Spark, as ``statecore restore`` and the job that Airflow submits make it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from statecore.faults import FaultPoints
from statecore.jobs.engine.protocol import Engine
from statecore.jobs.planning.plan import ReadPlan
from statecore.jobs.read_report import ReadReport
from statecore.jobs.restore import run as restore
from statecore.jobs.restore.request import RestoreRequest
from statecore.progress import Progress
from statecore.spark.engine import SparkEngine

SPARK_LEFTOVERS = (
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
)
"""Marks of tests with Spark: PySpark leaves its gateway's sockets and pipe to the end of the process."""


def run_restore(
    request: RestoreRequest,
    progress: Progress | None = None,
    *,
    master: str | None = None,
    spark_conf: Mapping[str, str] | None = None,
    engine: Engine | None = None,
    faults: FaultPoints | None = None,
    say: Callable[[str], None] | None = None,
) -> ReadReport | ReadPlan:
    """A restore on Spark, unless another engine is given."""
    engine = engine or SparkEngine(master, spark_conf or {})
    return restore.run_restore(request, engine, progress, faults=faults, say=say)
