"""Interface between jobs and engines: workers that take batches of tasks and return results.

A job knows what is to be done (plan, tasks, results), an engine only where. There are three, and the same plan gives
the same digests on each: Spark (:mod:`statecore.spark.engine`), local processes (``processes.py``), and this process
alone, for little work (``in_process.py``). A task's failure is returned as a value (:class:`Failure`), because an
engine would turn an exception into text and lose its kind; what an engine raises concerns the engine itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from statecore.errors import StatecoreError, error_from_json
from statecore.spec.model import ApplicationSpec
from statecore.words import number_of

TaskT = TypeVar("TaskT")
ResultT = TypeVar("ResultT")

_FILES = ("ssl_cafile", "ssl_certfile", "ssl_keyfile", "ssl_crlfile")


PROCESSES = "processes"
"""In place of a Spark master for tasks in processes of the driver's machine."""


@dataclass(frozen=True)
class RanOn:
    """Where the tasks of a job ran.

    Attributes:
        master: the Spark master, or :data:`PROCESSES`; empty if a report lacks it.
        executors: number of executors or processes when the work began.
        hosts: their hosts, as the cluster manager names them.
    """

    master: str = ""
    executors: int = 0
    hosts: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.master == PROCESSES:
            return f"The work is done by {self.executors} process{'' if self.executors == 1 else 'es'} of this machine."
        count = number_of(self.executors, "executor")
        return f"Spark runs on {self.master} with {count} on {', '.join(self.hosts)}."


class HandedOver(BaseException):
    """Raised in place of starting an engine: another process continues the work with the frozen plan.

    A ``BaseException``, so that error handlers do not take it for a failure.
    """


@dataclass(frozen=True)
class Failure:
    """An error that stopped a task, as a value; ``error`` is the JSON form of a ``StatecoreError``."""

    error: Mapping[str, Any]

    def to_error(self) -> StatecoreError:
        """The error, to be raised by the driver."""
        return error_from_json(self.error)


@dataclass(frozen=True)
class WorkerRequirements:
    """What every worker on another machine has to check before the work begins.

    Attributes:
        directory: where images are built, shared with the driver; ``None`` if none are built.
        bootstrap: bootstrap addresses, one of which must be reachable.
        brokers: advertised addresses; all that the driver reaches must be reachable.
        files: files named in client settings (certificates); all must be readable.
    """

    directory: Path | None
    bootstrap: tuple[str, ...]
    brokers: tuple[str, ...]
    files: tuple[str, ...] = ()

    @staticmethod
    def of(
        directory: Path | None, bootstrap_servers: str, brokers: Sequence[str], kafka: Mapping[str, Any]
    ) -> WorkerRequirements:
        """Requirements of a job that reads changelogs."""
        files = tuple(str(kafka[name]) for name in _FILES if kafka.get(name))
        if kafka.get("proxy_url"):
            return WorkerRequirements(directory, (), (), files)
        return WorkerRequirements(directory, tuple(bootstrap_servers.split(",")), tuple(brokers), files)


class Workers(Protocol):
    """The workers of one job, from the start of the engine to the end of the job."""

    @property
    def name(self) -> str:
        """Name of what the job waits for, such as ``Spark``; empty for local workers, which have started."""

    def are_local(self) -> bool:
        """Whether all of them run on this machine, and see its files; waits, and raises, as :meth:`parallelism`."""

    def parallelism(self) -> int:
        """Batches that are worked on at once; waits until the workers have started.

        Raises:
            Invalid, Retryable, Capacity: they will not start, and why.
        """

    def check(self, required: WorkerRequirements) -> RanOn:
        """Ask every worker whether it can take part; returns where the tasks will run.

        Raises:
            Invalid, Retryable: one cannot, or was lost.
        """

    def run(
        self, work: Callable[[Sequence[TaskT]], list[ResultT | Failure]], batches: Sequence[Sequence[TaskT]], doing: str
    ) -> list[ResultT | Failure]:
        """Run all batches, started in their order.

        Args:
            work: a module-level function, which workers import; it returns one result for each task that it reached.
            batches: its arguments.
            doing: what is being done, to follow "while" in an error: ``the changelogs of app were read``.

        Returns:
            All results, in any order. After a :class:`Failure` batches may be left out.

        Raises:
            StatecoreError: the engine gave up; the state of the batches is unknown.
        """


class Engine(Protocol):
    """Starts the workers of jobs."""

    @property
    def options(self) -> tuple[str, ...]:
        """Options of a command that choose this engine, for a command to be pasted; empty if there are none."""

    def expected(self, spec: ApplicationSpec) -> int:
        """Batches that workers for this application will run at once, as far as known before they start; else 1."""

    def start(self, job: str, spec: ApplicationSpec) -> AbstractContextManager[Workers]:
        """Start workers in the background, while the driver plans; they are released at the end.

        Args:
            job: what is done, for lists of jobs: ``restore``.
        """


@dataclass(frozen=True)
class Started:
    """Running workers of a job as the engine of nested jobs, which do not release them."""

    workers: Workers
    options: tuple[str, ...] = ()

    def expected(self, spec: ApplicationSpec) -> int:  # noqa: ARG002
        return self.workers.parallelism()

    def start(self, job: str, spec: ApplicationSpec) -> AbstractContextManager[Workers]:  # noqa: ARG002
        return nullcontext(self.workers)


@dataclass(frozen=True)
class PlanOnlyEngine:
    """An engine that refuses to start; the plan is made for the Spark master that will run the job."""

    master: str | None = None

    options = ()

    def expected(self, spec: ApplicationSpec) -> int:
        return spec.spark.local_cores(self.master, {})

    def start(self, job: str, spec: ApplicationSpec) -> AbstractContextManager[Workers]:  # noqa: ARG002
        """Raises ``HandedOver``."""
        raise HandedOver
