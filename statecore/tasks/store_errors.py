"""Converts system errors on the databases of a task into errors that name the task and store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from statecore.system_errors import RUN_AS_APPLICATION, system_error


@contextmanager
def translated_errors(task: str, store: str, what: str) -> Iterator[None]:
    """Convert ``OSError`` into ``Capacity``, ``Retryable`` or ``Invalid``."""
    try:
        yield
    except OSError as error:
        whose = f"The store {store} of task {task}" if store else f"The task {task}"
        where = f" ({error.filename})" if isinstance(error.filename, str) else ""
        named = {"task": task, **({"store": store} if store else {})}
        raise system_error(error, f"{whose} {what}{where}", action=RUN_AS_APPLICATION, **named) from error
