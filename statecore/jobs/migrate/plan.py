"""Plan of a migration: the conversion of every task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from statecore.conversion import TaskConversion


@dataclass(frozen=True)
class MigrationPlan:
    """The conversion of every task, and notes for the operator on all of them."""

    tasks: Sequence[TaskConversion]
    plan_id: str
    notes: tuple[str, ...] = ()

    @property
    def to_convert(self) -> list[TaskConversion]:
        """Conversions that change something."""
        return [task for task in self.tasks if not task.is_empty]

    @property
    def is_empty(self) -> bool:
        return not self.to_convert and not any(task.refused for task in self.tasks)
