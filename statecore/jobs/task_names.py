"""Names of tasks in a request: kept apart from ``request.py``, which Dag files read and which imports no formats."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from statecore.errors import Invalid
from statecore.formats.releases import GLOBAL, TASK_NAME
from statecore.jobs.declaration import declare
from statecore.jobs.request import WHAT
from statecore.jobs.values import Several, Text
from statecore.runtime.assignment.static import Instance


def check_tasks(_: str, tasks: tuple[str, ...]) -> None:
    """Refuse what is no task."""
    wrong = [task for task in tasks if task != GLOBAL and not TASK_NAME.fullmatch(task)]
    if wrong:
        raise Invalid(
            f"{wrong[0]!r} is no task.",
            action=f"Name tasks as their directories are called: 0_1, or {GLOBAL} for the global stores.",
        )


def check_instance(_: str, instance: str) -> None:
    """Refuse what is no instance."""
    Instance.parse(instance)


def only_tasks(otherwise: str) -> Mapping[str, Any]:
    """What is said of ``tasks``.

    Args:
        otherwise: which tasks it is where none is named.
    """
    return declare(
        Several(Text("TASK")),
        title="Tasks",
        help="only these tasks, such as 0_1, or global",
        section=WHAT,
        otherwise=otherwise,
        option="--task",
        check=check_tasks,
    )
