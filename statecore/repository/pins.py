"""A pin holds a snapshot: heads go on naming it, however old it is, until somebody takes the pin off.

A pin stands in the head, beside the snapshot that it holds, and nowhere else. It is set by one swap of the head,
against the version that was read, so it meets publications as these meet one another: who is second reads the head
again. What another release has written into the head stays as it is. With the head the pins are lost.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from statecore.documents import encoded
from statecore.errors import Invalid, Retryable
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.head import HEAD, ReadHead, SnapshotEntry
from statecore.repository.listing import entry_of
from statecore.repository.repository import refuse_another_descriptor

NOTE_CHARACTERS = 200
"""The longest note."""

_TRIES = 20


class Pinned(NamedTuple):
    """What became of a pin that was to be set, or taken off.

    Attributes:
        entry: what the head says of the snapshot now.
        changed: whether that is news.
    """

    entry: SnapshotEntry
    changed: bool


def pin(shelf: ApplicationRepository, snapshot: str, note: str | None = None) -> Pinned:
    """Hold a snapshot.

    Args:
        shelf: where it is.
        snapshot: its id, or :data:`statecore.repository.layout.NEWEST`.
        note: why, in words; ``None`` for what was said before, if anything was.

    Raises:
        NotFound: no such snapshot counts.
        Invalid: the note is too long for a head, which is read often.
        Fenced: the place has become another repository.
        Corrupted, Invalid, Capacity, Retryable: the head cannot be read or swapped, or nobody knows whether it was: to
            run it again finds out.
    """
    if note is not None and len(note) > NOTE_CHARACTERS:
        raise Invalid(
            f"The note has {len(note)} characters, and a head, which is read often, takes {NOTE_CHARACTERS}.",
            code="note-invalid",
            action="Say it in fewer words.",
        )
    return _set(shelf, snapshot, pinned=True, note=note)


def unpin(shelf: ApplicationRepository, snapshot: str) -> Pinned:
    """Hold a snapshot no more. A checkpoint that is of no use beside others is left out by the next new head.

    Args:
        shelf: where it is.
        snapshot: its id, or :data:`statecore.repository.layout.NEWEST`.

    Raises:
        NotFound, Fenced, Corrupted, Invalid, Capacity, Retryable: as :func:`pin`.
    """
    return _set(shelf, snapshot, pinned=False, note="")


def _set(shelf: ApplicationRepository, snapshot: str, *, pinned: bool, note: str | None) -> Pinned:
    for _ in range(_TRIES):
        read = shelf.read_head()
        if read is None or not read.head.snapshots:
            shelf.head()  # which says why there is none
            continue
        entry = entry_of(shelf, read.head, snapshot)
        snapshot = entry.snapshot  # whatever is the newest when it is tried again
        wanted = replace(entry, pinned=pinned, note=entry.note if note is None else note)
        if entry == wanted:
            return Pinned(entry, changed=False)
        refuse_another_descriptor(shelf.repository)
        if shelf.pointers.swap(shelf.names.head, _document(read, wanted), read.version) is not None:
            return Pinned(wanted, changed=True)
    raise Retryable(
        f"The head of {shelf.application_id} was swapped by others {_TRIES} times meanwhile, and nothing was changed.",
        code="head-contended",
        action="Run it again when fewer jobs publish to this application.",
        application_id=shelf.application_id,
        repository=shelf.url,
    )


def _document(read: ReadHead, wanted: SnapshotEntry) -> bytes:
    """The head with another pin, and all else of it as it was read."""
    said = {"pinned": wanted.pinned, "note": wanted.note}
    entries = [{**entry, **said} if entry["snapshot"] == wanted.snapshot else entry for entry in read.raw["snapshots"]]
    return encoded(HEAD.sealed({**read.raw, "generation": read.head.generation + 1, "snapshots": entries}))
