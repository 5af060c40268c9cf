"""Run a worker's tasks, with each result or error as a value."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar

from statecore.errors import Retryable
from statecore.jobs.engine.protocol import Failure
from statecore.jobs.failures import as_statecore_error
from statecore.jobs.pipeline.staging_place import StagingPlace


class Task(Protocol):
    """What every task has."""

    @property
    def place(self) -> StagingPlace:
        """Staging of its blobs."""

    @property
    def task(self) -> str:
        """Kafka Streams' task id."""

    @property
    def store(self) -> str:
        """The store."""

    @property
    def where(self) -> str:
        """Where it runs, for messages."""


TaskT = TypeVar("TaskT", bound=Task)
ResultT = TypeVar("ResultT")


def run_tasks(work: Callable[[TaskT], ResultT], tasks: Iterable[TaskT]) -> list[ResultT | Failure]:
    """Run tasks one after the other, up to the first failure, with which the whole job fails."""
    found: list[ResultT | Failure] = []
    for task in tasks:
        found.append(run_task(work, task))
        if isinstance(found[-1], Failure):
            break
    return found


def run_task(work: Callable[[TaskT], ResultT], task: TaskT) -> ResultT | Failure:
    """Run a task; a failure that a retry cannot help is announced to the other tasks."""
    doing = f"store {task.store!r} of task {task.task} was built in {task.where}"
    try:
        task.place.check_failure()
        return work(task)
    except Exception as error:
        failure = as_statecore_error(error, doing, task=task.task, store=task.store)
        if not isinstance(failure, Retryable):
            task.place.announce_failure()
        return Failure(failure.to_json())
