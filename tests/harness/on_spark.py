"""A restore on Spark, as ``statecore restore`` and the job that Airflow submits make it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from statecore.faults import FaultPoints
from statecore.jobs import restore
from statecore.jobs.plan import RestorePlan
from statecore.jobs.report import RestoreReport
from statecore.jobs.request import RestoreRequest
from statecore.progress import Progress
from statecore.spark.engine import SparkEngine


def run_restore(
    request: RestoreRequest,
    progress: Progress | None = None,
    *,
    master: str | None = None,
    spark_conf: Mapping[str, str] | None = None,
    faults: FaultPoints | None = None,
    say: Callable[[str], None] | None = None,
) -> RestoreReport | RestorePlan:
    return restore.run_restore(request, SparkEngine(master, spark_conf or {}), progress, faults=faults, say=say)
