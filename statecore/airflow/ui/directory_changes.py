"""The last migrations of state directories and recoveries of global stores, for the page *State stores*.

Their Dags write a report for each step below ``<reports>/<application>/migrations`` and ``recoveries``. Shown is what
was changed or refused, and what failed; plans that wait for an approval are among Airflow's required actions.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from statecore.airflow.directory_change.change import Change
from statecore.airflow.directory_change.migration import Migration
from statecore.airflow.directory_change.recovery import Recovery
from statecore.errors import Invalid
from statecore.jobs.attempt import Attempt, Instance
from statecore.jobs.history.report_head import ReportError, read_report
from statecore.jobs.history.report_index import directory_name
from statecore.jobs.migrate.report import MigrateReport, MigrationOutcome
from statecore.jobs.repair.report import RepairOutcome, RepairReport
from statecore.words import number_of, shortened_list

SHOWN = 20
"""Number of changes on a page."""

_READ = 200
"""Number of newest reports that are read for it; most are of plans."""

_KINDS: tuple[Change, ...] = (Migration(), Recovery())
_SUFFIX = ".json"
_DOCTOR = (".doctor.json", ".doctor.earlier.json")
_NOT_SHOWN = frozenset(
    {MigrationOutcome.PLANNED, MigrationOutcome.UNCHANGED, RepairOutcome.PLANNED, RepairOutcome.UNCHANGED}
)


class DirectoryChange(NamedTuple):
    """What a Dag has done to a state directory.

    Attributes:
        when: its end (ISO 8601, UTC).
        outcome: of the report, or ``failed``.
        what: what was changed, or why not.
        is_bad: whether somebody has to act.
    """

    attempt: Attempt
    when: str
    outcome: str
    what: str
    is_bad: bool


def last_changes(reports: Path, instance: Instance | None = None) -> list[DirectoryChange]:
    """The last changes of an instance, by default of all, newest first."""
    below = "*" if instance is None else directory_name(instance.application_id)
    files = (
        (file.stat().st_mtime_ns, str(file), kind)
        for kind in _KINDS
        for file in reports.glob(f"{below}/{kind.folder}/*{_SUFFIX}")
        if not file.name.endswith(_DOCTOR)
    )
    newest = heapq.nlargest(_READ, files, key=lambda one: one[:2])
    found = (change for _, file, kind in newest for change in _read(Path(file), kind))
    of_instance = (one for one in found if instance in (None, one.attempt.instance))
    return sorted(of_instance, key=lambda one: one.when, reverse=True)[:SHOWN]


def _read(file: Path, kind: Change) -> Iterator[DirectoryChange]:
    try:
        document = read_report(file)
        attempt, finished = Attempt.of(document), str(document.get("finished") or "")
        if "error" in document:
            yield DirectoryChange(attempt, finished or attempt.started, "failed", _why(document), is_bad=True)
        elif "outcome" in document:
            report = kind.document.from_json(document)
            if report.outcome not in _NOT_SHOWN:
                yield DirectoryChange(attempt, finished, str(report.outcome), *_done(report))
    except (ReportError, Invalid, ValueError):  # the log of its task says why
        return


def _why(document: Mapping[str, Any]) -> str:
    return f"{document['error']} ({document.get('code', '')}): {document.get('what', '')}"


def _done(report: MigrateReport | RepairReport) -> tuple[str, bool]:
    """What was changed, or why not; and whether somebody has to act."""
    if isinstance(report, MigrateReport):
        if report.outcome is MigrationOutcome.REFUSED:
            return shortened_list(report.refused), True
        return f"{number_of(report.changed, 'task')} to Kafka Streams {report.to}", False
    if report.outcome in (RepairOutcome.NOT_REPAIRED, RepairOutcome.PARTLY_REPAIRED):
        return shortened_list([str(one["what"]) for one in report.remaining]), True
    stores = [store for one in report.rebuilt for store in one.stores]
    return f"rebuilt {shortened_list(stores)}" if stores else f"{number_of(len(report.repaired), 'task')}", False
