"""Finds the last fetch, migration and repair of a directory, and unfinished attempts.

Each is a report in the application's directory, and the suffix of its file says of which job.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from statecore.documents import DocumentType
from statecore.errors import Invalid
from statecore.jobs.attempt import Attempt
from statecore.jobs.fetch.report import FETCH_REPORT, FETCH_SUFFIX, FetchReport
from statecore.jobs.history.report_head import ReportError, read_report
from statecore.jobs.migrate.report import MIGRATE_REPORT, MIGRATION_SUFFIX, MigrateReport
from statecore.jobs.planning.frozen_plan import ATTEMPT_SUFFIX, PLAN_SUFFIX
from statecore.jobs.repair.report import REPAIR_REPORT, REPAIR_SUFFIX, RepairReport
from statecore.statedir.work_directory import PLANS
from statecore.stores.lock_holder import Holder

ReportT = TypeVar("ReportT")


@dataclass(frozen=True)
class Fetches:
    """Fetches of a directory.

    Attributes:
        unfinished: the last one, if it began to place stores and did not finish.
        requests: request ids of all unfinished ones.
    """

    last: FetchReport | None = None
    unfinished: FetchReport | None = None
    requests: frozenset[str] = frozenset()

    def to_json(self) -> dict[str, Any]:
        return {
            "last_fetch": self.last.to_json() if self.last else None,
            "unfinished_fetch": self.unfinished.to_json() if self.unfinished else None,
        }


@dataclass(frozen=True)
class UnfinishedChange:
    """An unfinished attempt of a migration or a repair.

    Attributes:
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
        return {**vars(self), "file": str(self.file), "attempt": vars(self.attempt), "words": list(self.words)}


@dataclass(frozen=True)
class Changes:
    """Migrations and repairs of a directory.

    Attributes:
        migration: the last finished one; ``None`` if there is none.
        repair: likewise.
    """

    migration: MigrateReport | None = None
    repair: RepairReport | None = None
    unfinished: tuple[UnfinishedChange, ...] = ()

    @property
    def requests(self) -> frozenset[str]:
        """Request ids of unfinished attempts."""
        return frozenset(one.attempt.request_id for one in self.unfinished)

    def to_json(self) -> dict[str, Any]:
        return {
            "last_migration": self.migration.to_json() if self.migration else None,
            "last_repair": self.repair.to_json() if self.repair else None,
            "unfinished_changes": [one.to_json() for one in self.unfinished],
        }


def read_fetches(files: Iterable[Path], problems: list[str], *, most: int) -> Fetches:
    """Read the newest fetches of a directory; ``problems`` receives what could not be read."""
    newest = islice((file for file in files if file.suffix == FETCH_SUFFIX), most)
    reports = list(_decoded(newest, FETCH_REPORT, problems))
    ended = _latest([report for report in reports if report.finished])
    begun = _latest([report for report in reports if not report.finished])
    if begun is not None and ended is not None and begun.started <= ended.started:
        begun = None
    return Fetches(ended, begun, frozenset(report.request_id for report in reports if not report.finished))


def _latest(reports: Sequence[FetchReport]) -> FetchReport | None:
    return max(reports, key=lambda report: report.finished or report.started, default=None)


def read_changes(work: Path, files: Sequence[Path], holder: Holder | None, here: str, problems: list[str]) -> Changes:
    """Read the migrations and repairs of a directory, from its files, newest first."""
    migrations = (file for file in files if file.suffix == MIGRATION_SUFFIX)
    repairs = (file for file in files if file.suffix == REPAIR_SUFFIX)
    migration = next(_decoded(migrations, MIGRATE_REPORT, problems), None)
    repair = next(_decoded(repairs, REPAIR_REPORT, problems), None)
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


def _decoded(files: Iterable[Path], document: DocumentType[ReportT], problems: list[str]) -> Iterator[ReportT]:
    """Read reports, in the order of the files; ``problems`` receives what could not be read."""
    for file in files:
        try:
            yield document.decode(file.read_bytes())
        except FileNotFoundError:  # a running job removed it
            continue
        except Invalid as error:
            problems.append(f"{file}: {error}")
