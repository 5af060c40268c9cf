"""Digests of store contents (rows, bytes, hash), saved by store identity after a full read.

Stores of one identity hold the same rows, so a saved digest never goes stale.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from statecore.documents import DocumentType
from statecore.errors import Invalid, NotFound
from statecore.images.model import StoreDigest
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.blob_verification import parallel_map
from statecore.repository.manifest import VERSION


@dataclass(frozen=True)
class SavedDigest:
    """The content digest of a store."""

    identity: str  # the store's identity
    rows: int  # live rows
    bytes: int  # bytes of their keys and values
    digest: str  # see statecore.images.digest
    statecore_release: str  # the release of statecore that read them


_DOCUMENT = DocumentType(
    "content of a store", VERSION, SavedDigest, "The next verification computes it again.", is_open=True, is_sealed=True
)


def save_digest(
    app_repository: ApplicationRepository, identity: str, content: StoreDigest, statecore_release: str
) -> None:
    """Save a store's content digest, replacing one that cannot be read; not in a replica."""
    if app_repository.repository.is_replica:
        return
    document = _DOCUMENT.encode(SavedDigest(identity, content.rows, content.bytes, content.digest, statecore_release))
    name = app_repository.names.content(identity)
    if not app_repository.blobs.put_if_absent(name, document) and saved_digest(app_repository, identity) is None:
        app_repository.blobs.delete(name)
        app_repository.blobs.put_if_absent(name, document)


def saved_digests(app_repository: ApplicationRepository, identities: Sequence[str]) -> dict[str, StoreDigest]:
    """Saved content digests by identity, of the stores that have one."""
    found = parallel_map(lambda identity: saved_digest(app_repository, identity), identities)
    return {identity: content for identity, content in zip(identities, found, strict=True) if content is not None}


def saved_digest(app_repository: ApplicationRepository, identity: str) -> StoreDigest | None:
    """A store's saved content digest; ``None`` where there is none that can be read."""
    try:
        found = _DOCUMENT.decode(app_repository.blobs.get(app_repository.names.content(identity)))
    except (NotFound, Invalid):
        return None
    if found.identity != identity:
        return None
    return StoreDigest(found.rows, found.bytes, found.digest)
