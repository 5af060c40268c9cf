"""Reads the reports that jobs have left in an application's directory, each by the suffix of its file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from statecore.documents import DocumentType
from statecore.errors import Invalid
from statecore.jobs.fetch.report import FETCH_REPORT, FETCH_SUFFIX
from statecore.jobs.migrate.report import MIGRATE_REPORT, MIGRATION_SUFFIX
from statecore.jobs.planning.request_files import REPORT_SUFFIX
from statecore.jobs.repair.report import REPAIR_REPORT, REPAIR_SUFFIX
from statecore.jobs.report import JobReport
from statecore.jobs.restore.report import REPORT

KINDS: Mapping[str, tuple[str, DocumentType[Any]]] = {
    REPORT_SUFFIX: ("restore", REPORT),
    FETCH_SUFFIX: ("fetch", FETCH_REPORT),
    MIGRATION_SUFFIX: ("migration", MIGRATE_REPORT),
    REPAIR_SUFFIX: ("repair", REPAIR_REPORT),
}
"""Suffix of a report's file → job, and type of the document."""


def read_reports(files: Iterable[Path], problems: list[str]) -> Iterator[JobReport[Any]]:
    """Read reports, in the order of the files; ``problems`` receives what could not be read."""
    for file in files:
        if file.suffix not in KINDS:
            continue
        kind, document = KINDS[file.suffix]
        try:
            yield JobReport.of(kind, document.decode(file.read_bytes()))
        except FileNotFoundError:  # a running job removed it
            continue
        except Invalid as error:
            problems.append(f"{file}: {error}")
