"""What a job asks of an engine: workers that take batches of tasks and give answers.

A job knows what is to be done (plan, tasks, results), an engine only where it is done. There are two, and the same plan
gives the same digests on each: Spark (:mod:`statecore.spark.engine`), and processes on this machine
(:mod:`statecore.jobs.processes`). What a task may fail with comes back as a value, because an engine would turn an
exception into text and the operator needs its kind (:class:`Failure`); what an engine raises is of the engine itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from statecore.errors import StatecoreError, error_from_json
from statecore.jobs.restore.report import RanOn
from statecore.spec.model import ApplicationSpec

TaskT = TypeVar("TaskT")
ResultT = TypeVar("ResultT")

_FILES = ("ssl_cafile", "ssl_certfile", "ssl_keyfile", "ssl_crlfile")


class HandedOver(BaseException):
    """Raised where an engine is to start: another process goes on with the work, by the plan that was frozen.

    It is no error, so nobody who looks for errors may take it for one.
    """


@dataclass(frozen=True)
class Failure:
    """An error that stopped a task, as a value; ``error`` is the JSON form of a ``StatecoreError``."""

    error: Mapping[str, Any]

    def to_error(self) -> StatecoreError:
        """The error, to be raised by the driver."""
        return error_from_json(self.error)


@dataclass(frozen=True)
class Question:
    """What every worker on another machine is asked before the work begins.

    Attributes:
        directory: where images are built, which it has to share with the driver; ``None`` where it builds none.
        bootstrap: where clients begin; one of them has to be reached.
        brokers: addresses that the brokers advertise; all that the driver reaches have to be reached.
        files: files that client settings name (certificates); all have to be readable.
    """

    directory: Path | None
    bootstrap: tuple[str, ...]
    brokers: tuple[str, ...]
    files: tuple[str, ...] = ()

    @staticmethod
    def of(
        directory: Path | None, bootstrap_servers: str, brokers: Sequence[str], kafka: Mapping[str, Any]
    ) -> Question:
        """The question of a job that reads changelogs.

        Args:
            directory: its staging directory, if its workers have to share it.
            bootstrap_servers: ``host:port[,...]``.
            brokers: what the brokers advertise, ``host:port`` each.
            kafka: client settings; behind a proxy nothing can be said of addresses.
        """
        files = tuple(str(kafka[name]) for name in _FILES if kafka.get(name))
        if kafka.get("proxy_url"):
            return Question(directory, (), (), files)
        return Question(directory, tuple(bootstrap_servers.split(",")), tuple(brokers), files)


class Workers(Protocol):
    """The workers of one job, from when the engine was told to start until the job has ended."""

    @property
    def called(self) -> str:
        """What people call them: they wait for ``Spark``."""

    def are_here(self) -> bool:
        """Whether all of them run on this machine, and see its files; waits until the workers are there.

        Raises:
            Invalid, Retryable, Capacity: as :meth:`parallelism`.
        """

    def parallelism(self) -> int:
        """Batches that are worked on at once; waits until the workers are there.

        Raises:
            Invalid, Retryable, Capacity: there will be none, and why.
        """

    def check(self, question: Question) -> RanOn:
        """Where the tasks will run, after every worker was asked whether it could take part.

        Raises:
            Invalid, Retryable: one could not, or was lost.
        """

    def run(
        self, work: Callable[[Sequence[TaskT]], list[ResultT | Failure]], batches: Sequence[Sequence[TaskT]], doing: str
    ) -> list[ResultT | Failure]:
        """Have all batches worked on, begun in their order.

        Args:
            work: a function of a module, which workers import; it answers for each task that it came to.
            batches: what it is called with.
            doing: what is being done, to follow "while" in an error: ``the changelogs of app were read``.

        Returns:
            All answers, in no certain order. After a :class:`Failure` batches may be left out.

        Raises:
            StatecoreError: the engine gave up; nothing is known of the batches.
        """


class Engine(Protocol):
    """Where the tasks of jobs are worked on."""

    def expected(self, spec: ApplicationSpec) -> int:
        """Batches that its workers would work on at once, as far as that is known before they are started; else 1.

        Args:
            spec: the application it is done for.
        """

    def start(self, job: str, spec: ApplicationSpec) -> AbstractContextManager[Workers]:
        """Start workers, in the background, as the driver plans meanwhile; at the end they are let go.

        Args:
            job: what is done, for lists of jobs: ``restore``.
            spec: the application it is done for.
        """


@dataclass(frozen=True)
class Started:
    """Workers that a job has already, as the engine of another job that it runs.

    Attributes:
        workers: they; nobody lets them go at the end of the other job.
    """

    workers: Workers

    def expected(self, spec: ApplicationSpec) -> int:  # noqa: ARG002
        """See :class:`Engine`."""
        return self.workers.parallelism()

    def start(self, job: str, spec: ApplicationSpec) -> AbstractContextManager[Workers]:  # noqa: ARG002
        """See :class:`Engine`."""
        return nullcontext(self.workers)
