"""What stores hold, once somebody has read all of one: rows, bytes and digest, kept beside by the store's identity.

Stores of one identity hold the same rows, so this is never out of date, and never a guess: where it is not known, it is
not there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from statecore.documents import DocumentType
from statecore.errors import Invalid, NotFound
from statecore.images.model import StoreDigest
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.blob_verification import each


@dataclass(frozen=True)
class KnownContent:
    """What a store holds.

    Attributes:
        identity: the store's identity.
        rows: live rows.
        bytes: bytes of their keys and values.
        digest: their digest (see ``statecore.images.digest``).
        made_by: the release of statecore that has read them.
    """

    identity: str
    rows: int
    bytes: int
    digest: str
    made_by: str


_DOCUMENT = DocumentType(
    "content of a store",
    0,
    KnownContent,
    "It is found out again by the next verification.",
    is_open=True,
    is_sealed=True,
)


def keep_content(shelf: ApplicationRepository, identity: str, content: StoreDigest, made_by: str) -> None:
    """Keep what a store holds; in place of what cannot be read.

    Raises:
        Invalid, Capacity, Retryable: see :meth:`Blobs.put_if_absent`.
    """
    document = _DOCUMENT.encode(KnownContent(identity, content.rows, content.bytes, content.digest, made_by))
    name = shelf.names.content(identity)
    if not shelf.blobs.put_if_absent(name, document) and known_content(shelf, identity) is None:
        shelf.blobs.delete(name)
        shelf.blobs.put_if_absent(name, document)


def known_contents(shelf: ApplicationRepository, identities: Sequence[str]) -> dict[str, StoreDigest]:
    """What stores hold, of each of which somebody knows it; several are asked for at once.

    Raises:
        Retryable: nobody could look.
    """
    found = each(lambda identity: known_content(shelf, identity), identities)
    return {identity: content for identity, content in zip(identities, found, strict=True) if content is not None}


def known_content(shelf: ApplicationRepository, identity: str) -> StoreDigest | None:
    """What a store holds; ``None`` where nobody knows it, or what was written of it cannot be read.

    Raises:
        Retryable: nobody could look.
    """
    try:
        found = _DOCUMENT.decode(shelf.blobs.get(shelf.names.content(identity)))
    except (NotFound, Invalid):
        return None
    if found.identity != identity:
        return None
    return StoreDigest(found.rows, found.bytes, found.digest)
