"""The head of an application: the one document that changes, by compare-and-swap, and says which snapshots count.

A snapshot is published when the head names it; a manifest that no head names is nothing. Only the driver of a job swaps
the head, after everything that the new snapshot names is durable::

    {"version": 0, "repository": "...", "application_id": "orders", "epoch": 1, "generation": 7,
     "snapshots": [{"snapshot": "20261123T010203Z-5f3a9c21", "sha256": "...", ...}, ...], "seal": "..."}

``generation`` rises with every swap, so no two contents are equal. ``epoch`` rises when a head is repaired
(:mod:`statecore.repository.head_repair`): who began to write under an older one is fenced.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from statecore.documents import Document, DocumentType, encoded, kept
from statecore.errors import Corrupted, Invalid
from statecore.repository.manifest import VERSION


@dataclass(frozen=True)
class SnapshotEntry:
    """A snapshot that counts.

    Attributes:
        snapshot: its id.
        sha256: hex digest of its manifest.
        identity: hash of what all its stores are made of.
        made: when it was published (ISO 8601, UTC).
        cut_ms: when the first of its ends was read, in ms since the epoch; ``None`` where nobody knows it.
        request: by which a retry recognises what an earlier try has published.
        origin: the command that made it.
        tasks: how many tasks it has.
        file_bytes: bytes of all files that it names.
        new_bytes: bytes of those that the snapshot before it does not name.
        pinned: whether heads name it until somebody takes the pin off (:mod:`statecore.repository.pins`).
        note: why it is pinned, in words; empty where nobody said it.
    """

    snapshot: str
    sha256: str
    identity: str
    made: str
    cut_ms: int | None
    request: str
    origin: str
    tasks: int
    file_bytes: int
    new_bytes: int
    pinned: bool = False
    note: str = ""


@dataclass(frozen=True)
class Head:
    """What a head says.

    Attributes:
        repository: id of the repository that it lies in.
        application_id: Kafka Streams' ``application.id``.
        epoch: who writes under an older one is fenced.
        generation: how often it was swapped.
        snapshots: those that count, newest first.
    """

    repository: str
    application_id: str
    epoch: int
    generation: int
    snapshots: tuple[SnapshotEntry, ...]

    @property
    def newest(self) -> SnapshotEntry | None:
        """The newest snapshot; ``None`` where there is none."""
        return self.snapshots[0] if self.snapshots else None

    def entry(self, snapshot: str) -> SnapshotEntry | None:
        """The entry of a snapshot, if it counts."""
        return next((entry for entry in self.snapshots if entry.snapshot == snapshot), None)


class ReadHead(NamedTuple):
    """A head, as it was read.

    Attributes:
        head: what it says.
        raw: all of it.
        version: of the pointer, to be swapped.
    """

    head: Head
    raw: Mapping[str, Any]
    version: str


HEAD = DocumentType(
    "head", VERSION, Head, "Use the release of statecore that wrote it, or a newer one.", is_open=True, is_sealed=True
)


def decoded_head(content: bytes, repository: str, application_id: str, repair: str) -> Document[Head]:
    """A head that was read.

    Args:
        content: its bytes.
        repository: id of the repository that it was read from.
        application_id: the application that it was read for.
        repair: the command that makes it anew, for messages.

    Raises:
        Corrupted: it is not what was written.
        Invalid: it is of another version, or was copied from another repository or application.
    """
    try:
        found = HEAD.read(content)
    except Invalid as error:
        if HEAD.seal_holds(content):  # of a version that this release does not know
            raise
        raise Corrupted(
            f"The head of {application_id} is damaged: {error.what}",
            code="head-damaged",
            action="Make it anew from the manifests that are there; without --apply this only says what it would do: "
            f"{repair} --apply",
            application_id=application_id,
        ) from error
    head = found.value
    if (head.repository, head.application_id) != (repository, application_id):
        raise Invalid(
            f"The head of {application_id} is that of {head.application_id} in repository {head.repository}, and this "
            f"is repository {repository}.",
            code="head-foreign",
            action=f"Somebody has copied it here, or the repository lost its mark and got another. See: {repair}",
            application_id=application_id,
            repository_id=repository,
            found_application_id=head.application_id,
            found_repository_id=head.repository,
        )
    return found


def encoded_head(head: Head, before: Mapping[str, Any] | None) -> bytes:
    """The bytes of a head; what this release does not know of the one before stays.

    Args:
        head: what it says.
        before: the head that it replaces, as it was read.
    """
    document = HEAD.to_json(head)
    if before is not None:
        document |= HEAD.unknown(before)
        document["snapshots"] = kept(document["snapshots"], before.get("snapshots", ()), "snapshot")
    return encoded(HEAD.sealed(document))
