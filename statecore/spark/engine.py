"""Spark as an engine of jobs (:mod:`statecore.jobs.engine.protocol`).

Each stage is one RDD with one element per batch. RDDs, not DataFrames: no record of a changelog passes through the JVM,
the elements are a few dozen task descriptions, and the first DataFrame of a session costs two seconds of class loading.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field

from statecore.jobs.engine.protocol import Failure, RanOn, ResultT, TaskT, WorkerRequirements
from statecore.spark.executor_check import check_executors
from statecore.spark.failures import spark_failure
from statecore.spark.masters import is_local
from statecore.spark.session import SparkStart
from statecore.spec.model import ApplicationSpec


@dataclass(frozen=True)
class SparkEngine:
    """Runs jobs on Spark.

    Attributes:
        master: the Spark master (``local[*]``, ``spark://host:7077``); ``None`` for the one of ``spark-submit``. If it
            is a cluster, running on another master is an error.
        conf: Spark properties; under ``spark-submit`` the submitted ones take precedence.
    """

    master: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)

    @property
    def options(self) -> tuple[str, ...]:
        """See :class:`statecore.jobs.engine.protocol.Engine`; without properties, which may be secret."""
        master = () if self.master is None else ("--master", self.master)
        return ("--engine", "spark", *master)

    def expected(self, spec: ApplicationSpec) -> int:
        """See :class:`statecore.jobs.engine.protocol.Engine`; only known for a local master."""
        return spec.spark.local_cores(self.master, self.conf)

    @contextmanager
    def start(self, job: str, spec: ApplicationSpec) -> Iterator[SparkWorkers]:
        conf = {**spec.spark.to_conf(), **self.conf}
        with SparkStart(f"statecore {job} {spec.application_id}", self.master, conf) as starting:
            yield SparkWorkers(starting)


class SparkWorkers:
    """The executors of one Spark context; methods wait until it has started."""

    def __init__(self, starting: SparkStart) -> None:
        self._starting = starting

    @property
    def name(self) -> str:
        return "Spark"

    def are_local(self) -> bool:
        return is_local(self._starting.context().master)

    def parallelism(self) -> int:
        return int(self._starting.context().defaultParallelism)

    def check(self, required: WorkerRequirements) -> RanOn:
        context = self._starting.context()
        executors = check_executors(context, required)
        return RanOn(context.master, len(executors), tuple(sorted({one.host for one in executors})))

    def run(
        self, work: Callable[[Sequence[TaskT]], list[ResultT | Failure]], batches: Sequence[Sequence[TaskT]], doing: str
    ) -> list[ResultT | Failure]:
        context = self._starting.context()
        outcome: Future[list[ResultT | Failure]] = Future()

        def collect() -> None:
            try:
                outcome.set_result(context.parallelize(batches, len(batches)).flatMap(work).collect())
            except Exception as error:
                outcome.set_exception(error)

        # In a thread, so that an interrupt stops a wait here and not a command that is half sent to the JVM.
        threading.Thread(target=collect, name="spark-collect", daemon=True).start()
        try:
            return outcome.result()
        except Exception as error:  # of Spark itself, such as a dead worker or a stopped context
            raise spark_failure(error, doing) from error
