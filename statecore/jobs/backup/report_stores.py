"""Builds the report of a backup, and its entries of stores."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict

from statecore.jobs.attempt import utc_now
from statecore.jobs.backup.changelog_check import Logs
from statecore.jobs.backup.copies import StoreCopy
from statecore.jobs.backup.files import Files
from statecore.jobs.backup.link import LinkedStores
from statecore.jobs.backup.newest_snapshot import NewestSnapshot
from statecore.jobs.backup.report import BackupReport, Outcome, StoreBackup
from statecore.jobs.backup.stores import StoreKey
from statecore.jobs.job import Job
from statecore.repository.manifest import StoredDatabase, StoreSnapshot
from statecore.repository.upload import LocalFile


def backup_report(
    job: Job,
    outcome: Outcome,
    linked: LinkedStores | None = None,
    *,
    snapshot: str = "",
    identity: str = "",
    stores: Sequence[StoreBackup] = (),
    put_bytes: int = 0,
    notes: Sequence[str] = (),
) -> BackupReport:
    return BackupReport(
        **asdict(job.attempt),
        finished=utc_now(),
        repository=job.context.repository.url,
        outcome=outcome,
        snapshot=snapshot,
        identity=identity,
        running=linked is not None and linked.running,
        seconds=time.monotonic() - job.began,
        phases=dict(job.phases),
        put_bytes=put_bytes,
        notes=tuple(notes),
        stores=tuple(stores),
    )


def published_stores(
    copies: Sequence[StoreCopy],
    logs: Logs,
    databases: Mapping[StoreKey, Sequence[StoredDatabase]],
    uploaded: Collection[str],
) -> list[StoreBackup]:
    """Published stores; ``uploaded`` has the hashes of uploaded files."""
    files = {copy.key: [file for one in databases[copy.key] for file in one.base] for copy in copies}
    return [
        _store_backup(copy, logs, [(file.extent.bytes, file.sha256 in uploaded) for file in files[copy.key]])
        for copy in copies
    ]


def planned_stores(copies: Sequence[StoreCopy], logs: Logs, listed: Files, newest: NewestSnapshot) -> list[StoreBackup]:
    hashes = newest.hashes
    return [_planned(copy, logs, listed[copy.key], newest.store(copy.key), hashes) for copy in copies]


def _planned(
    copy: StoreCopy,
    logs: Logs,
    files: Mapping[int | None, Sequence[LocalFile]],
    before: StoreSnapshot | None,
    hashes: Collection[str],
) -> StoreBackup:
    """A store that would be published; a large data file is known by name and size, because it never changes."""
    stored = {} if before is None else {database.segment: database for database in before.databases}

    def is_known(segment: int | None, file: LocalFile) -> bool:
        if file.sha256:
            return file.sha256 in hashes
        database = stored.get(segment)
        alike = [(one.name, one.extent.bytes) for one in database.base] if database else []
        runs = [one.extent.bytes for one in database.runs] if database else []
        return (file.path.name, file.bytes) in alike or file.bytes in runs

    known = {(segment, file.path): is_known(segment, file) for segment, its in files.items() for file in its}
    originals = [
        (segment, file.path) for segment, its in files.items() for file in its if file.path.name in copy.linked[segment]
    ]
    is_equivalent = (
        copy.written and before is not None and before.offsets == copy.offsets and stored.keys() == files.keys()
    )
    if is_equivalent and all(known[one] for one in originals):
        known = dict.fromkeys(known, True)
    return _store_backup(
        copy, logs, [(file.bytes, not known[segment, file.path]) for segment, its in files.items() for file in its]
    )


def _store_backup(copy: StoreCopy, logs: Logs, files: Sequence[tuple[int, bool]]) -> StoreBackup:
    """A store, from the size of each file and whether it is new."""
    ends = logs.ends[copy.key]
    return StoreBackup(
        task=copy.selected.task,
        store=copy.selected.spec.name,
        kind=str(copy.selected.spec.kind),
        offsets={str(partition): offset for partition, offset in sorted(copy.offsets.items())},
        tail=-1 if logs.read_ms is None else sum(end.log_end - max(end.end, end.log_start) for end in ends),
        databases=len(copy.databases),
        files=len(files),
        bytes=sum(size for size, _ in files),
        new_files=sum(1 for _, is_new in files if is_new),
        new_bytes=sum(size for size, is_new in files if is_new),
        written=copy.written,
        restored_by_kafka_streams=copy.restored_by_kafka_streams,
    )
