"""Finds the last migration and repair of a directory, and unfinished attempts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from statecore.jobs.attempt import Attempt
from statecore.jobs.history.job_reports import read_reports
from statecore.jobs.history.report_head import ReportError, read_report
from statecore.jobs.migrate.report import MIGRATION_SUFFIX, MigrateReport
from statecore.jobs.planning.request_files import ATTEMPT_SUFFIX, PLAN_SUFFIX
from statecore.jobs.repair.report import REPAIR_SUFFIX, RepairReport
from statecore.statedir.work_directory import PLANS
from statecore.stores.lock_holder import Holder


@dataclass(frozen=True)
class UnfinishedChange:
    """An unfinished attempt of a migration or a repair.

    Attributes:
        file: its file.
        job: ``migration`` or ``repair``.
        words: command line that resumes it, without ``statecore``.
        running: whether its process holds the application's lock.
    """

    file: Path
    job: str
    attempt: Attempt
    words: tuple[str, ...]
    running: bool = False

    def to_json(self) -> dict[str, Any]:
        """The attempt as a JSON document."""
        return {**vars(self), "file": str(self.file), "attempt": vars(self.attempt), "words": list(self.words)}


@dataclass(frozen=True)
class Changes:
    """Migrations and repairs of a directory.

    Attributes:
        migration: the last finished one; ``None`` if there is none.
        repair: likewise.
        unfinished: unfinished attempts.
    """

    migration: MigrateReport | None = None
    repair: RepairReport | None = None
    unfinished: tuple[UnfinishedChange, ...] = ()

    @property
    def requests(self) -> frozenset[str]:
        """Request ids of unfinished attempts."""
        return frozenset(one.attempt.request_id for one in self.unfinished)

    def to_json(self) -> dict[str, Any]:
        """All changes as a JSON document."""
        return {
            "last_migration": self.migration.to_json() if self.migration else None,
            "last_repair": self.repair.to_json() if self.repair else None,
            "unfinished_changes": [one.to_json() for one in self.unfinished],
        }


def read_changes(work: Path, files: Iterable[Path], holder: Holder | None, here: str, trouble: list[str]) -> Changes:
    """Read the migrations and repairs of a directory."""
    missing = {MIGRATION_SUFFIX, REPAIR_SUFFIX}
    migration: MigrateReport | None = None
    repair: RepairReport | None = None
    for report in read_reports((file for file in files if file.suffix in missing), trouble):
        if isinstance(report.body, MigrateReport):
            migration = report.body
            missing.remove(MIGRATION_SUFFIX)
        elif isinstance(report.body, RepairReport):
            repair = report.body
            missing.remove(REPAIR_SUFFIX)
    return Changes(migration, repair, tuple(unfinished_changes(work, holder, here)))


def unfinished_changes(work: Path, holder: Holder | None = None, here: str = "") -> Iterator[UnfinishedChange]:
    """Attempts of migrations and repairs without a recorded end."""
    for file in sorted((work / PLANS).glob(f"*{ATTEMPT_SUFFIX}")):
        if file.with_suffix(PLAN_SUFFIX).exists():
            continue  # of a job that resumes from a plan
        try:
            document = read_report(file)
        except ReportError:  # it has just finished
            continue
        if "job" in document:
            attempt = Attempt.of(document)
            running = holder is not None and (holder.process, here) == (attempt.process, attempt.host)
            yield UnfinishedChange(
                file, str(document["job"]), attempt, tuple(map(str, document.get("words") or ())), running
            )
