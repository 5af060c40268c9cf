"""Names of tasks in a request: kept apart from ``request.py``, which Dag files read and which imports no formats."""

from __future__ import annotations

from statecore.errors import Invalid
from statecore.formats.releases import GLOBAL, TASK_NAME


def check_tasks(_: str, tasks: tuple[str, ...]) -> None:
    """Refuse what is no task."""
    wrong = [task for task in tasks if task != GLOBAL and not TASK_NAME.fullmatch(task)]
    if wrong:
        raise Invalid(
            f"{wrong[0]!r} is no task.",
            action=f"Name tasks as their directories are called: 0_1, or {GLOBAL} for the global stores.",
        )
