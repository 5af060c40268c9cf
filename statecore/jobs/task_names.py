"""Request field for task names; apart from ``request.py``, which Dag files import and which must not import formats."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from statecore.errors import Invalid
from statecore.formats.releases import GLOBAL
from statecore.formats.task_id import TaskId
from statecore.jobs.field_types import Several, Text
from statecore.jobs.fields import declare
from statecore.jobs.instance_share import Instance
from statecore.jobs.request_fields import WHAT


def check_tasks(_: str, tasks: tuple[str, ...]) -> None:
    """Refuse a value that is not a task."""
    wrong = [task for task in tasks if TaskId.match(task) is None]
    if wrong:
        raise Invalid(
            f"{wrong[0]!r} is not a task.",
            code="task-invalid",
            action=f"Name tasks like their directories: 0_1, or {GLOBAL} for the global stores.",
        )


def _check_no_global(name: str, tasks: tuple[str, ...]) -> None:
    check_tasks(name, tasks)
    if GLOBAL in tasks:
        raise Invalid(
            "Global stores have no standby tasks: every instance reads them from their topics.",
            code="global-task-unsupported",
            action=f"Leave --task {GLOBAL} out.",
        )


def check_instance(_: str, instance: str) -> None:
    """Refuse a value that is not an instance."""
    Instance.parse(instance)


def only_tasks(otherwise: str, *, global_too: bool = True) -> Mapping[str, Any]:
    """Declaration of ``tasks``."""
    return declare(
        Several(Text("TASK")),
        title="Tasks",
        help="only these tasks, such as 0_1" + (", or global" if global_too else ""),
        section=WHAT,
        otherwise=otherwise,
        option="--task",
        check=check_tasks if global_too else _check_no_global,
    )
