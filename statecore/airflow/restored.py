"""What was last restored, store partition by store partition, from the report files: the data of the UI page.

Reports stay where the jobs wrote them. A run may restore some stores or partitions only, so the latest word on each
store partition may lie in an older file than the application's latest report. Nothing here touches Airflow's database.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from statecore.airflow import reports

log = logging.getLogger(__name__)

FILES_READ = 50
"""Newest reports of an application that are looked at; a page must not read years of them."""


@dataclass(frozen=True)
class RestoredPartition:
    """The latest restore of one store partition.

    Attributes:
        task: Kafka Streams' task id.
        store: the store.
        partition: the partition.
        kind: the store's kind.
        rows: live rows.
        records: changelog records read.
        committed_offset: the offset stored with the data; -4 for an empty changelog, and for a store that is left to
            Kafka Streams.
        tail_left: offsets that the application had left to restore itself.
        digest: order-free digest of the rows.
        when: when the report was written (UTC).
        left_to_restore: nothing was read, and Kafka Streams restores the store itself.
    """

    task: str
    store: str
    partition: int
    kind: str
    rows: int
    records: int
    committed_offset: int
    tail_left: int
    digest: str
    when: datetime
    left_to_restore: bool = False


@dataclass(frozen=True)
class RestoredApplication:
    """What is known of one application.

    Attributes:
        application_id: the application.
        partitions: the latest restore of each store partition, by store, then task.
        state_dir: where the latest restore put them; ``None`` when none succeeded.
        seconds: how long the latest successful restore took.
        notes: what the latest successful restore had to say.
        failure: the error document of the latest attempt when that one failed, else ``None``.
        failed_at: when it failed.
        unreadable: report files that could not be read.
    """

    application_id: str
    partitions: tuple[RestoredPartition, ...]
    state_dir: str | None
    seconds: float | None
    notes: tuple[str, ...]
    failure: dict[str, Any] | None
    failed_at: datetime | None
    unreadable: int


def restored_applications(directory: Path) -> list[RestoredApplication]:
    """Every application with a report under ``directory``, by its id; an absent directory holds none."""
    if not directory.is_dir():
        return []
    return [_application(one) for one in sorted(directory.iterdir()) if one.is_dir()]


def _application(directory: Path) -> RestoredApplication:
    application_id = directory.name
    partitions: dict[tuple[str, str, int], RestoredPartition] = {}
    latest: dict[str, Any] | None = None
    failure: dict[str, Any] | None = None
    failed_at: datetime | None = None
    unreadable = 0
    for written, path in _newest_first(directory):
        try:
            report = reports.read_report(path)
            if "error" in report:
                if latest is None and failure is None:
                    failure, failed_at = report, written
                continue
            for entry in report["stores"]:
                one = _partition(entry, written)
                partitions.setdefault((one.store, one.task, one.partition), one)
        except (reports.ReportError, KeyError, TypeError, ValueError) as cause:
            log.warning("The report %s is passed over: %s", path, cause)
            unreadable += 1
            continue
        if latest is None:
            latest = report
            application_id = str(report.get("application_id", application_id))
    latest = latest or {}
    return RestoredApplication(
        application_id=application_id,
        partitions=tuple(partitions[key] for key in sorted(partitions, key=lambda key: (key[0], key[2], key[1]))),
        state_dir=latest.get("state_dir"),
        seconds=latest.get("seconds"),
        notes=tuple(str(note) for note in latest.get("notes") or ()),
        failure=failure,
        failed_at=failed_at,
        unreadable=unreadable,
    )


def _newest_first(directory: Path) -> list[tuple[datetime, Path]]:
    found = []
    for path in directory.glob("*.json"):
        try:
            found.append((datetime.fromtimestamp(path.stat().st_mtime, tz=UTC), path))
        except OSError:
            continue  # a retry has just removed it
    return sorted(found, reverse=True)[:FILES_READ]


def _partition(entry: dict[str, Any], written: datetime) -> RestoredPartition:
    return RestoredPartition(
        task=str(entry["task"]),
        store=str(entry["store"]),
        partition=int(entry["partition"]),
        kind=str(entry["kind"]),
        rows=int(entry["rows"]),
        records=int(entry["records"]),
        committed_offset=int(entry["committed_offset"]),
        tail_left=int(entry.get("tail_left") or 0),
        digest=str(entry["digest"]),
        when=written,
        # Reports of earlier releases do not say it; they gave a versioned store no offset for this reason alone.
        left_to_restore=bool(
            entry.get("left_to_restore", entry["kind"] == "versioned-key-value" and int(entry["committed_offset"]) < 0)
        ),
    )
