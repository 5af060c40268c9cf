"""Report of a backup."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from statecore.documents import DocumentType
from statecore.jobs.attempt import Attempt


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
