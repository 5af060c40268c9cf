"""Assign tasks by a rule instead of a group: the share of instance i of n, or named tasks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self

from statecore.errors import Invalid
from statecore.formats.releases import GLOBAL
from statecore.formats.task_id import TaskId

INSTANCE = re.compile(r"([0-9]{1,6})/([1-9][0-9]{0,5})")


@dataclass(frozen=True)
class Instance:
    """One of several instances that share the tasks by number.

    Attributes:
        number: counted from 0, like a StatefulSet's.
        count: how many there are.
    """

    number: int
    count: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse ``i/n``. Raises ``Invalid``."""
        match = INSTANCE.fullmatch(text)
        if match is None or int(match[1]) >= int(match[2]):
            raise Invalid(
                f"{text!r} is not an instance.",
                code="instance-invalid",
                action="Give its number, counted from 0, and how many there are: 0/3, 1/3 or 2/3.",
                instance=text,
            )
        return cls(int(match[1]), int(match[2]))

    def has(self, task: str) -> bool:
        """Whether a task is in its share: (subtopology + partition) mod n equals its number.

        The global stores are in every share.
        """
        if task == GLOBAL:
            return True
        task_id = TaskId.parse(task)
        return (task_id.subtopology + (task_id.partition or 0)) % self.count == self.number


def share(
    tasks: Iterable[str], *, instance: Instance | None = None, named: Sequence[str] = ()
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The tasks of one process without a group.

    Returns:
        The tasks, and those that were named and do not exist, both in order.
    """
    there = set(tasks)
    wanted = there & set(named) if named else there
    mine = [task for task in wanted if instance is None or instance.has(task)]
    return tuple(sorted(mine, key=lambda task: TaskId.parse(task).order)), tuple(sorted(set(named) - there))
