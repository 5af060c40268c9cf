"""The head of an application: the one document that changes, by compare-and-swap; it names the published snapshots.

A manifest that no head names is not published. Only the driver of a job swaps the head, after everything that the new
snapshot names is durable. ``generation`` rises with every swap, so no two contents are equal. ``epoch`` rises when a
head is repaired (:mod:`statecore.repository.maintenance.head_repair`): jobs that began under an older one are fenced.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any, NamedTuple

from statecore.documents import Document, DocumentType, encode_json
from statecore.errors import Corrupted, Invalid
from statecore.repository.manifest import VERSION
from statecore.repository.needs import NO_NEEDS, Needs


class Origin(StrEnum):
    """The jobs of this release that publish snapshots."""

    BACKUP = "backup"
    CHECKPOINT = "checkpoint"
    COMPACTION = "compaction"
    RESTORE = "restore"


@dataclass(frozen=True)
class SnapshotEntry:
    """A published snapshot."""

    snapshot: str  # its id
    sha256: str  # hex digest of its manifest
    identity: str  # hash of what all its stores are made of
    created_at: str  # when it was published (ISO 8601, UTC)
    read_at_ms: int | None  # when the first of its ends was read, in ms since the epoch; None where it is unknown
    request_id: str  # the request, by which a retry recognises what an earlier attempt has published
    origin: str  # the job that made it, as in its manifest: an Origin, or one of another release
    tasks: int
    file_bytes: int  # bytes of all files that it names
    new_bytes: int  # bytes of those that the snapshot before it does not name
    pinned: bool = False  # whether retention keeps it until it is unpinned (statecore.repository.maintenance.pins)
    note: str = ""  # why it is pinned; may be empty


@dataclass(frozen=True)
class Retention:
    """Which snapshots a new head keeps besides pinned ones (:mod:`statecore.repository.retention`)."""

    last: int = 12  # the newest
    hourly: int = 24  # hours that have a snapshot, of each of which the newest is kept
    daily: int = 7
    weekly: int = 4
    monthly: int = 0
    yearly: int = 0
    within_ms: int = 0  # all that are at most this much older than the newest

    def or_more(self, other: Retention) -> Retention:
        """A retention that keeps what either of the two keeps."""
        return Retention(*(max(getattr(self, one.name), getattr(other, one.name)) for one in fields(Retention)))

    @property
    def keeps_nothing(self) -> bool:
        return not any((self.last, self.hourly, self.daily, self.weekly, self.monthly, self.yearly, self.within_ms))


@dataclass(frozen=True)
class Head:
    """The content of a head."""

    repository_id: str  # id of the repository
    application_id: str  # Kafka Streams' application.id
    epoch: int  # jobs that publish under an older one are fenced
    generation: int  # number of swaps
    snapshots: tuple[SnapshotEntry, ...]  # published snapshots, newest first
    collection: int = 0  # number of collections of garbage begun; the names of new blobs end with it
    collection_began_ms: int = 0  # when it was raised, by the object store's clock, in ms since the epoch
    keep: Retention = Retention()  # which snapshots later heads keep
    needs: Needs = NO_NEEDS

    @property
    def order(self) -> tuple[int, int]:
        """Epoch and generation: of two heads the one with the greater order is the later one."""
        return self.epoch, self.generation

    @property
    def newest(self) -> SnapshotEntry | None:
        """The newest snapshot; ``None`` where there is none."""
        return self.snapshots[0] if self.snapshots else None

    @property
    def pins(self) -> dict[str, str]:
        """The note of each pinned snapshot."""
        return {entry.snapshot: entry.note for entry in self.snapshots if entry.pinned}

    def entry(self, snapshot: str) -> SnapshotEntry | None:
        """The entry of a snapshot, if it is published."""
        return next((entry for entry in self.snapshots if entry.snapshot == snapshot), None)


class ReadHead(NamedTuple):
    """A head as read: the typed value, the whole JSON, and the pointer's version to swap against."""

    head: Head
    raw: Mapping[str, Any]
    version: str


SAME_BUT_FOR_CASE = "Check the application id: in a directory that ignores case two ids must not differ in case alone."
"""What an operator does first about a head or manifests of another application of the same repository."""
OTHER_HEAD_RELEASE = "Use the release of statecore that wrote it, or a newer one."
HEAD = DocumentType("head", VERSION, Head, OTHER_HEAD_RELEASE, is_open=True, is_sealed=True)


def decoded_head(content: bytes, repository: str, application_id: str, advice: str) -> Document[Head]:
    """Decode and validate a head; ``advice`` is what an operator does about a damaged one."""
    try:
        found = HEAD.read(content)
    except Invalid as error:
        if HEAD.seal_holds(content):  # of another release
            raise
        raise Corrupted(
            f"The head of {application_id} is damaged: {error.what}",
            code="head-damaged",
            action=advice,
            application_id=application_id,
        ) from error
    head = found.value
    head.needs.check_readable(f"The head of {application_id}")
    if (head.repository_id, head.application_id) != (repository, application_id):
        is_copied = head.repository_id != repository
        raise Invalid(
            f"The head of {application_id} is that of {head.application_id} in repository {head.repository_id}, and "
            f"this is repository {repository}.",
            code="head-foreign",
            action=f"It was copied here, or the repository descriptor was lost and replaced. {advice}"
            if is_copied
            else f"{SAME_BUT_FOR_CASE} If the head was copied here, delete it first. {advice}",
            application_id=application_id,
            repository_id=repository,
            found_application_id=head.application_id,
            found_repository_id=head.repository_id,
        )
    return found


def encoded_head(head: Head, before: Mapping[str, Any] | None) -> bytes:
    """Encode a head; unknown fields of ``before``, the JSON of the head that it replaces, are preserved."""
    head.needs.check_writable(f"The head of {head.application_id}")
    document = HEAD.to_json(head)
    if before is not None:
        document |= HEAD.unknown(before)
        document["keep"] = {**before.get("keep", {}), **document["keep"]}
        entries = {entry["snapshot"]: entry for entry in before.get("snapshots", ())}
        document["snapshots"] = [{**entries.get(entry["snapshot"], {}), **entry} for entry in document["snapshots"]]
    return encode_json(HEAD.sealed(document))
