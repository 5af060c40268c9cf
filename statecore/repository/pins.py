"""Pins: the head keeps naming a pinned snapshot, however old it is, until it is unpinned.

A pin is set by one swap of the head, against the version that was read: of two that exclude each other the second reads
the head again. Unknown fields in the head are preserved.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from statecore.documents import encode_json
from statecore.errors import Invalid
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.head import HEAD, ReadHead, SnapshotEntry
from statecore.repository.listing import entry_of
from statecore.repository.repository import check_descriptor_unchanged

NOTE_CHARACTERS = 200  # Longest note, in characters
_TRIES = 20


class Pinned(NamedTuple):
    """The snapshot's entry after a pin or unpin, and whether that changed it."""

    entry: SnapshotEntry
    changed: bool


def pin(app_repository: ApplicationRepository, snapshot: str, note: str | None = None) -> Pinned:
    """Pin a snapshot, by id or :data:`statecore.repository.layout.NEWEST`."""
    if note is not None and len(note) > NOTE_CHARACTERS:
        raise Invalid(
            f"The note has {len(note)} characters; the head, which is read often, allows {NOTE_CHARACTERS}.",
            code="note-invalid",
            action="Give a shorter note.",
        )
    return _set(app_repository, snapshot, pinned=True, note=note)


def unpin(app_repository: ApplicationRepository, snapshot: str) -> Pinned:
    """Unpin a snapshot; retention may leave it out of the next head."""
    return _set(app_repository, snapshot, pinned=False, note="")


def _set(app_repository: ApplicationRepository, snapshot: str, *, pinned: bool, note: str | None) -> Pinned:
    app_repository.repository.check_primary()
    for _ in range(_TRIES):
        read = app_repository.read_head()
        if read is None or not read.head.snapshots:
            app_repository.head()  # raises the error for a head without snapshots
            continue
        entry = entry_of(app_repository, read.head, snapshot)
        snapshot = entry.snapshot  # a retry keeps to the snapshot that was the newest first
        wanted = replace(entry, pinned=pinned, note=entry.note if note is None else note)
        if entry == wanted:
            return Pinned(entry, changed=False)
        check_descriptor_unchanged(app_repository.repository)
        if app_repository.pointers.swap(app_repository.names.head, _document(read, wanted), read.version) is not None:
            return Pinned(wanted, changed=True)
    raise app_repository.contended_error(_TRIES, "nothing was changed")


def _document(read: ReadHead, wanted: SnapshotEntry) -> bytes:
    """The head with one pin changed, and everything else as read."""
    read.head.needs.check_writable(f"The head of {read.head.application_id}")
    changed = {"pinned": wanted.pinned, "note": wanted.note}
    entries = [
        {**entry, **changed} if entry["snapshot"] == wanted.snapshot else entry for entry in read.raw["snapshots"]
    ]
    return encode_json(HEAD.sealed({**read.raw, "generation": read.head.generation + 1, "snapshots": entries}))
