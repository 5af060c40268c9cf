"""What a migration did, or would do: task by task, for people and for programs.

The report lies in the application's
directory, where a migration was made::

    <application>/.statecore/plans/<request>.migration
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from statecore.documents import DocumentType
from statecore.jobs.attempt import Attempt
from statecore.jobs.restore.report import RanOn

MIGRATION_SUFFIX = ".migration"
"""Of the report's file."""


class Outcome(StrEnum):
    """What became of a migration."""

    PLANNED = "planned"
    MIGRATED = "migrated"
    UNCHANGED = "nothing to do"
    REFUSED = "refused"


@dataclass(frozen=True)
class MigratedStep:
    """One thing that is done to a store.

    Attributes:
        text: what, the same for every task; in words rows stand before it, and that it is the offset behind it.
        rows: how many rows it is done to; 0 where it is not about rows.
        offsets: the offsets that it ends with, by ``<topic>-<partition>``; empty where it is not about offsets.
    """

    text: str
    rows: int = 0
    offsets: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class MigratedStore:
    """A store of one task.

    Attributes:
        store: its name.
        kind: its kind, ``?`` where nothing told it and nothing depends on it.
        steps: what is done to it; nothing where it is as it must be.
        offsets: what the next release finds, by ``<topic>-<partition>``: the last applied offset (global stores: the
            next one), or -4.
        rewritten_bytes: bytes of files that are written anew, because the release cannot read those that are there.
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
        task: the task.
        seen: which releases its layout is of, in words.
        stores: its stores.
        steps: what is done to files beside them, in words.
        left: why something stays as it is, and what the application will do about it.
        refused: why it cannot be migrated; then nothing is, of any task.
        notes: what an operator should know.
        problems: ``refused`` with codes and values: ``code``, ``what``, ``task``, ``store`` (empty where it is of the
            whole task), and those of the reason; empty in reports of older releases.
        seconds: time that was spent on it; 0 of a plan.
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
        """Whether anything is done to it."""
        return bool(self.steps or any(store.steps for store in self.stores))


@dataclass(frozen=True)
class MigrateReport(Attempt):
    """The result of one migration of one state directory.

    Attributes beside those of the try:
        finished: when it ended.
        to: the release of Kafka Streams that is to open the directory.
        outcome: what became of it.
        plan_id: hash of the plan.
        kept: where the files lie that were moved aside; empty where there are none.
        seconds: wall time.
        phases: wall seconds of each phase, in order.
        ran_on: where the tasks were converted; empty where none was.
        tasks: what was done to each task.
        notes: what an operator should know of all tasks.
    """

    finished: str
    to: str
    outcome: Outcome
    plan_id: str
    kept: str = ""
    seconds: float = 0.0
    phases: Mapping[str, float] = field(default_factory=dict)
    ran_on: RanOn = field(default_factory=RanOn)
    tasks: tuple[MigratedTask, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def changed(self) -> int:
        """How many tasks something is done to."""
        return sum(task.is_changed for task in self.tasks)

    @property
    def refused(self) -> tuple[str, ...]:
        """Why nothing can be migrated, each with its task."""
        return tuple(f"{task.task}: {why}" for task in self.tasks for why in task.refused)

    def to_json(self) -> dict[str, Any]:
        """The report as a JSON document."""
        return MIGRATE_REPORT.to_json(self)


MIGRATE_REPORT = DocumentType(
    "report of a migration", 2, MigrateReport, "Read it with the release that wrote it.", is_open=True
)
