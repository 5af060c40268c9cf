"""What the system says no with while the databases of a task are worked on, said of the task and the store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from statecore.system_errors import RUN_AS_APPLICATION, system_error


@contextmanager
def said_of(task: str, store: str, what: str) -> Iterator[None]:
    """Around what may fail for want of room, rights or a sound disk.

    Args:
        task: whose databases these are.
        store: the store; empty where it is the whole task.
        what: what could not be done: ``could not be opened``.

    Raises:
        Capacity: there is no room.
        Retryable: the disk failed.
        Invalid: this user has no right to it, or it cannot be written to.
    """
    try:
        yield
    except OSError as error:
        whose = f"The store {store} of task {task}" if store else f"The task {task}"
        where = f" ({error.filename})" if isinstance(error.filename, str) else ""
        named = {"task": task, **({"store": store} if store else {})}
        raise system_error(error, f"{whose} {what}{where}", action=RUN_AS_APPLICATION, **named) from error
