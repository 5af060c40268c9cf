"""The executors of a job: lists them, and waits for the first of them.

A standalone cluster answers a driver at once and starts its executors later. The plan divides the work by the available
cores, so planning before the executors have started would divide a large restore into too few tasks.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from statecore.errors import Capacity
from statecore.spark.masters import is_local

if TYPE_CHECKING:
    from pyspark import SparkConf, SparkContext

WAIT_SECONDS = 120.0
"""How long a cluster may take to provide the first executor."""

MORE_EXECUTORS_SECONDS = 2.0
"""How long to wait for a further executor after the last one."""

EXPECTED_SECONDS = 20.0
"""The same if the configuration asks for a number of executors or cores.

``spark.scheduler.maxRegisteredResourcesWaitingTime`` overrides this wait and that for the first executor.
"""

_POLL_SECONDS = 0.1


@dataclass(frozen=True, order=True)
class Executor:
    """One executor as Spark knows it.

    Attributes:
        host: its host, as the cluster manager names it.
        id: its number within the application.
    """

    host: str
    id: str


def executors_of(context: SparkContext) -> tuple[Executor, ...]:
    """The registered executors, sorted by host; in local mode the driver."""
    if is_local(context.master):
        return (Executor(str(context._conf.get("spark.driver.host")), "driver"),)
    # PySpark's StatusTracker has hosts but no ids.
    registered = context._jsc.sc().env().blockManager().master().getMemoryStatus().keysIterator()
    found = []
    while registered.hasNext():
        one = registered.next()
        if one.executorId() != "driver":
            found.append(Executor(str(one.host()), str(one.executorId())))
    return tuple(sorted(found))


def await_executors(context: SparkContext) -> None:
    """Wait until a cluster has provided executors; returns at once in local mode."""
    if is_local(context.master):
        return
    limit = _waiting_time(context, WAIT_SECONDS)
    expected = _waiting_time(context, EXPECTED_SECONDS)
    # Under dynamic allocation there may be no executor before there is a job.
    _in_background(lambda: context._jsc.parallelize([0], 1).count())
    began = last = time.monotonic()
    count = 0
    while True:
        now, found = time.monotonic(), len(executors_of(context))
        if found > count:
            count, last = found, now
        waited = expected if any(_asked_for(context)) else MORE_EXECUTORS_SECONDS
        if (count and now - last >= waited) or _all_there(context, count):
            return
        if not count and now - began > limit:
            context._jsc.sc().cancelAllJobs()
            raise Capacity(
                f"The cluster {context.master} provided no executor within {limit:g} s.",
                code="executors-missing",
                action="Check that workers are alive and have the cores and the memory that spark.executor.cores and "
                "spark.executor.memory ask for, and that they can reach the driver at "
                f"{context._conf.get('spark.driver.host')} (spark.driver.host).",
                master=context.master,
            )
        time.sleep(_POLL_SECONDS)


def executor_python(conf: SparkConf) -> str:
    """The executors' interpreter: the configured one, of a packed environment, ``$PYSPARK_PYTHON``, or the driver's."""
    chosen = conf.get("spark.pyspark.python")
    if chosen:
        return str(chosen)
    if not is_local(str(conf.get("spark.master"))):
        for archive in str(conf.get("spark.archives", "")).split(","):
            _, separator, name = archive.partition("#")
            if separator:
                return f"./{name}/bin/python"
    return os.environ.get("PYSPARK_PYTHON") or sys.executable


def _asked_for(context: SparkContext) -> tuple[int, int]:
    """Executors and cores that the configuration asks for; 0 for none."""
    if context._conf.get("spark.dynamicAllocation.enabled", "false") == "true":
        return 0, 0
    return int(context._conf.get("spark.executor.instances", "0")), int(context._conf.get("spark.cores.max", "0"))


def _all_there(context: SparkContext, count: int) -> bool:
    """Whether as many executors are registered as the configuration asks for; false if it names no number."""
    instances, cores = _asked_for(context)
    scala = context._jsc.sc()
    if count < scala.getExecutorIds().size():  # the scheduler lists an executor before it can be addressed
        return False
    slots = scala.maxNumConcurrentTasks(scala.resourceProfileManager().defaultResourceProfile())
    return count > 0 and (0 < instances <= count or 0 < cores <= slots)


def _waiting_time(context: SparkContext, default: float) -> float:
    name = "spark.scheduler.maxRegisteredResourcesWaitingTime"
    if context._conf.get(name) is None:
        return default
    return int(context._jsc.sc().conf().getTimeAsMs(name)) / 1000


def _in_background(work: Callable[[], Any]) -> None:
    def run() -> None:
        try:
            work()
        except Exception:
            return  # cancelled; the waiting thread raises the error

    threading.Thread(target=run, name="spark-first-executor", daemon=True).start()
