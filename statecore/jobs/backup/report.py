"""Report of a backup, and its entries of stores."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from statecore.documents import DocumentType
from statecore.formats.topic_partition import offsets_by_name
from statecore.jobs.attempt import Attempt, utc_now
from statecore.jobs.backup.changelog_check import Logs
from statecore.jobs.backup.copies import StoreCopy
from statecore.jobs.backup.files import Files
from statecore.jobs.backup.link import LinkedStores
from statecore.jobs.backup.newest_snapshot import NewestSnapshot, equivalent_databases, has_file
from statecore.jobs.backup.stores import StoreKey
from statecore.jobs.job import Job
from statecore.repository.manifest import StoredDatabase
from statecore.repository.publish.upload import LocalFile


class BackupOutcome(StrEnum):
    """Outcome of a backup."""

    PUBLISHED = "published"
    EARLIER = "published by an earlier try"
    UNCHANGED = "unchanged"
    PLANNED = "planned"


@dataclass(frozen=True)
class StoreBackup:
    """A published store of one task.

    Attributes:
        offsets: offsets in its databases, by ``<topic>-<partition>``.
        tail: offsets after them in the log, which an application that starts from it restores; -1 without brokers.
        databases: number of databases; 0 if Kafka Streams restores it from the start.
        new_files: files that were missing in the newest snapshot, or lost since.
        written: whether copies were changed: closed, or set to one offset.
    """

    task: str
    store: str
    kind: str
    offsets: Mapping[str, int]
    tail: int
    databases: int
    files: int = 0
    bytes: int = 0
    new_files: int = 0
    new_bytes: int = 0
    written: bool = False
    restored_by_kafka_streams: bool = False


@dataclass(frozen=True)
class BackupReport(Attempt):
    """The result of one backup of an application's state directory.

    Attributes besides those of the attempt:
        snapshot: id of the snapshot; of the newest one if nothing had changed; empty if there is none.
        identity: hash of what all its stores are made of; empty if there is none.
    """

    finished: str
    repository: str
    outcome: BackupOutcome
    snapshot: str = ""
    identity: str = ""
    running: bool = False
    seconds: float = 0.0
    phases: Mapping[str, float] = field(default_factory=dict)
    put_bytes: int = 0
    notes: tuple[str, ...] = ()
    stores: tuple[StoreBackup, ...] = ()

    @property
    def files(self) -> int:
        return sum(store.files for store in self.stores)

    @property
    def bytes(self) -> int:
        return sum(store.bytes for store in self.stores)

    @property
    def new_files(self) -> int:
        """Number of files that were missing in the newest snapshot."""
        return sum(store.new_files for store in self.stores)

    @property
    def new_bytes(self) -> int:
        return sum(store.new_bytes for store in self.stores)

    def to_json(self) -> dict[str, Any]:
        return BACKUP_REPORT.to_json(self)


BACKUP_REPORT = DocumentType(
    "report of a backup", 1, BackupReport, "Read it with the release that wrote it.", is_open=True
)


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
