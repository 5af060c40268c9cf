"""Builds the report of a backup, and its entries of stores."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict

from statecore.formats.topic_partition import offsets_by_name
from statecore.jobs.attempt import utc_now
from statecore.jobs.backup.changelog_check import Logs
from statecore.jobs.backup.copies import StoreCopy
from statecore.jobs.backup.files import Files
from statecore.jobs.backup.link import LinkedStores
from statecore.jobs.backup.newest_snapshot import NewestSnapshot, equivalent_databases, has_file
from statecore.jobs.backup.report import BackupOutcome, BackupReport, StoreBackup
from statecore.jobs.backup.stores import StoreKey
from statecore.jobs.job import Job
from statecore.repository.manifest import StoredDatabase
from statecore.repository.upload import LocalFile


def backup_report(
    job: Job,
    outcome: BackupOutcome,
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
        seconds=job.phases.elapsed,
        phases=dict(job.phases.wall),
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
    return [
        _store_backup(copy, logs, [(file.bytes, is_new) for file, is_new in _listed(copy, listed, newest, hashes)])
        for copy in copies
    ]


def _listed(
    copy: StoreCopy, listed: Files, newest: NewestSnapshot, hashes: Collection[str]
) -> Iterator[tuple[LocalFile, bool]]:
    """The files of a store that would be published, and whether each is new."""
    before, is_equivalent = newest.store(copy.key), equivalent_databases(copy, listed, newest) is not None
    stored = {} if before is None else before.by_segment
    for segment, files in listed[copy.key].items():
        for file in files:
            yield file, not (is_equivalent or _is_known(file, stored.get(segment), hashes))


def _is_known(file: LocalFile, stored: StoredDatabase | None, hashes: Collection[str]) -> bool:
    """Whether the newest snapshot has a file, of which a large one of a plan has no hash."""
    if file.sha256:
        return file.sha256 in hashes
    return stored is not None and (has_file(stored, file) or file.bytes in [run.extent.bytes for run in stored.runs])


def _store_backup(copy: StoreCopy, logs: Logs, files: Sequence[tuple[int, bool]]) -> StoreBackup:
    """A store, from the size of each file and whether it is new."""
    ends = logs.ends[copy.key]
    return StoreBackup(
        task=copy.selected.task,
        store=copy.selected.spec.name,
        kind=str(copy.selected.spec.kind),
        offsets=offsets_by_name(copy.offsets),
        tail=-1 if logs.read_ms is None else sum(end.log_end - max(end.end, end.log_start) for end in ends),
        databases=len(copy.databases),
        files=len(files),
        bytes=sum(size for size, _ in files),
        new_files=sum(1 for _, is_new in files if is_new),
        new_bytes=sum(size for size, is_new in files if is_new),
        written=copy.written,
        restored_by_kafka_streams=copy.restored_by_kafka_streams,
    )
