"""Request fields that name tasks, or the share of one instance; apart from ``catalog.py``, which imports no formats."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from statecore.errors import Invalid
from statecore.formats.releases import GLOBAL
from statecore.formats.task_id import TaskId
from statecore.jobs.fields.catalog import WHAT
from statecore.jobs.fields.declaration import declare
from statecore.jobs.fields.types import Several, Text

TASK_SHARE = re.compile(r"([0-9]{1,6})/([1-9][0-9]{0,5})")
"""The share of instance i of n: ``i/n``."""


@dataclass(frozen=True)
class TaskShare:
    """The tasks of one of several instances, which share them by number.

    Attributes:
        number: number of the instance, counted from 0 like a StatefulSet's.
    """

    number: int
    count: int

    @classmethod
    def parse(cls, text: str) -> Self:
        match = TASK_SHARE.fullmatch(text)
        if match is None or int(match[1]) >= int(match[2]):
            raise Invalid(
                f"{text!r} is not an instance.",
                code="instance-invalid",
                action="Give its number, counted from 0, and how many there are: 0/3, 1/3 or 2/3.",
                instance=text,
            )
        return cls(int(match[1]), int(match[2]))

    def has(self, task: str) -> bool:
        """Whether a task is in the share: (subtopology + partition) mod n is the number. ``global`` always is."""
        if task == GLOBAL:
            return True
        task_id = TaskId.parse(task)
        return (task_id.subtopology + (task_id.partition or 0)) % self.count == self.number


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
    TaskShare.parse(instance)


def only_tasks(otherwise: str, *, global_too: bool = True) -> Mapping[str, Any]:
    return declare(
        Several(Text("TASK")),
        title="Tasks",
        help="only these tasks, such as 0_1" + (", or global" if global_too else ""),
        section=WHAT,
        otherwise=otherwise,
        option="--task",
        check=check_tasks if global_too else _check_no_global,
    )
