"""Report of a migration, task by task, stored in the application's directory if it was migrated::

<application>/.statecore/plans/<request>.migration
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from statecore.documents import DocumentType
from statecore.jobs.attempt import Attempt
from statecore.jobs.engine.protocol import RanOn

MIGRATION_SUFFIX = ".migration"
"""File suffix of the report."""


class MigrationOutcome(StrEnum):
    """Outcome of a migration."""

    PLANNED = "planned"
    MIGRATED = "migrated"
    UNCHANGED = "nothing to do"
    REFUSED = "refused"


@dataclass(frozen=True)
class MigratedStep:
    """One change of a store.

    Attributes:
        text: description, the same for every task; in messages the number of rows precedes it, and the offset follows
            it.
        rows: number of changed rows; 0 if it does not concern rows.
        offsets: resulting offsets, by ``<topic>-<partition>``; empty if it does not concern offsets.
    """

    text: str
    rows: int = 0
    offsets: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class MigratedStore:
    """A store of one task.

    Attributes:
        kind: its kind; ``?`` if it is unknown and not needed.
        steps: changes of the store; empty if none is needed.
        offsets: offsets for the target release, by ``<topic>-<partition>``: the last applied one (global stores: the
            next one), or -4.
        rewritten_bytes: bytes of files that are rewritten, because the release cannot read them.
    """

    store: str
    kind: str
    steps: tuple[MigratedStep, ...]
    offsets: Mapping[str, int]
    rewritten_bytes: int = 0


@dataclass(frozen=True)
class MigratedTask:
    """One task directory, or ``global``.

    Attributes:
        seen: description of the releases that its layout belongs to.
        steps: changes of files beside the stores.
        left: why something is not changed, and what the application will do with it.
        refused: why it cannot be migrated; then no task is.
        problems: ``refused`` with codes and values: ``code``, ``what``, ``task``, ``store`` (empty if it concerns the
            whole task), and those of the reason; empty in reports of older releases.
    """

    task: str
    seen: str
    stores: tuple[MigratedStore, ...] = ()
    steps: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    problems: tuple[Mapping[str, Any], ...] = ()
    seconds: float = 0.0

    @property
    def is_changed(self) -> bool:
        return bool(self.steps or any(store.steps for store in self.stores))


@dataclass(frozen=True)
class MigrateReport(Attempt):
    """The result of one migration of one state directory.

    Attributes besides those of the attempt:
        to: the target release of Kafka Streams.
        kept: where files that were moved away are kept; empty if there are none.
        notes: notes for the operator on all tasks.
    """

    finished: str
    to: str
    outcome: MigrationOutcome
    plan_id: str
    kept: str = ""
    seconds: float = 0.0
    phases: Mapping[str, float] = field(default_factory=dict)
    ran_on: RanOn = field(default_factory=RanOn)
    tasks: tuple[MigratedTask, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def changed(self) -> int:
        """Number of changed tasks."""
        return sum(task.is_changed for task in self.tasks)

    @property
    def refused(self) -> tuple[str, ...]:
        """Reasons why the directory cannot be migrated, each with its task."""
        return tuple(f"{task.task}: {why}" for task in self.tasks for why in task.refused)

    def to_json(self) -> dict[str, Any]:
        return MIGRATE_REPORT.to_json(self)


MIGRATE_REPORT = DocumentType(
    "report of a migration", 2, MigrateReport, "Read it with the release that wrote it.", is_open=True
)
