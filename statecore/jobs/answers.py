"""How a worker answers for its tasks: with a result, or with the error that stopped it, as a value."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar

from statecore.errors import Retryable
from statecore.jobs.engine import Failure
from statecore.jobs.failures import as_statecore_error
from statecore.jobs.pipeline.staging_place import StagingPlace


class Task(Protocol):
    """What every task says of itself."""

    @property
    def place(self) -> StagingPlace:
        """Where its blobs are."""

    @property
    def task(self) -> str:
        """Kafka Streams' task id."""

    @property
    def store(self) -> str:
        """The store."""

    @property
    def where(self) -> str:
        """Where its work is done, for messages."""


TaskT = TypeVar("TaskT", bound=Task)
ResultT = TypeVar("ResultT")


def answers(work: Callable[[TaskT], ResultT], tasks: Iterable[TaskT]) -> list[ResultT | Failure]:
    """One after the other, up to the first that fails: the job fails with it, and the others would be for nothing."""
    found: list[ResultT | Failure] = []
    for task in tasks:
        found.append(answer(work, task))
        if isinstance(found[-1], Failure):
            break
    return found


def answer(work: Callable[[TaskT], ResultT], task: TaskT) -> ResultT | Failure:
    """The answer for one; a failure that no retry can help is announced to the others."""
    doing = f"store {task.store!r} of task {task.task} was built in {task.where}"
    try:
        task.place.check_failure()
        return work(task)
    except Exception as error:
        failure = as_statecore_error(error, doing, task=task.task, store=task.store)
        if not isinstance(failure, Retryable):
            task.place.announce_failure()
        return Failure(failure.to_json())
