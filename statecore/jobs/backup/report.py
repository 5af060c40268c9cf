"""What a snapshot of a state directory took, and what became of it: for people and for programs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from statecore.documents import DocumentType
from statecore.jobs.attempt import Attempt


class Outcome(StrEnum):
    """What became of a snapshot."""

    PUBLISHED = "published"
    EARLIER = "published by an earlier try"
    UNCHANGED = "unchanged"
    PLANNED = "planned"


@dataclass(frozen=True)
class StoreTaken:
    """A store of one task that is part of a snapshot.

    Attributes:
        task: Kafka Streams' task id, or ``global``.
        store: its name.
        kind: its kind.
        offsets: what its databases say, by ``<topic>-<partition>``.
        tail: offsets behind them in the log, which an application that starts from it restores; -1 where no broker was
            asked.
        databases: how many it has; 0 where Kafka Streams restores it from the start.
        files: files of it.
        bytes: their bytes.
        new_files: those that the newest snapshot did not have, or that were not there any more.
        new_bytes: their bytes.
        written: whether its databases were changed on the way: closed, or lowered to one offset.
        left_to_restore: whether it is empty, because Kafka Streams restores it from the start.
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
    left_to_restore: bool = False


@dataclass(frozen=True)
class BackupReport(Attempt):
    """The result of one snapshot of one application's state directory.

    Attributes beside those of the try:
        finished: when it ended.
        repository: where it was published.
        outcome: what became of it.
        snapshot: its id; of the newest where nothing had changed; empty where there is none.
        identity: hash of what all stores of that snapshot are made of; empty likewise.
        running: whether the application was at work meanwhile.
        seconds: wall time.
        phases: wall seconds of each phase, in order.
        put_bytes: bytes that were put into the repository.
        notes: what an operator should know although nothing failed.
        stores: what was taken, by task and store.
    """

    finished: str
    repository: str
    outcome: Outcome
    snapshot: str = ""
    identity: str = ""
    running: bool = False
    seconds: float = 0.0
    phases: Mapping[str, float] = field(default_factory=dict)
    put_bytes: int = 0
    notes: tuple[str, ...] = ()
    stores: tuple[StoreTaken, ...] = ()

    @property
    def files(self) -> int:
        """All files that were taken."""
        return sum(store.files for store in self.stores)

    @property
    def bytes(self) -> int:
        """Their bytes."""
        return sum(store.bytes for store in self.stores)

    @property
    def new_files(self) -> int:
        """Those that the newest snapshot did not have."""
        return sum(store.new_files for store in self.stores)

    @property
    def new_bytes(self) -> int:
        """Their bytes."""
        return sum(store.new_bytes for store in self.stores)

    def to_json(self) -> dict[str, Any]:
        """The report as a JSON document."""
        return SNAPSHOT_REPORT.to_json(self)


SNAPSHOT_REPORT = DocumentType(
    "report of a snapshot", 1, BackupReport, "Read it with the release that wrote it.", is_open=True
)
