"""Pins: the head keeps naming a pinned snapshot, however old it is, until it is unpinned.

A pin is set by one swap of the head, against the version that was read: of two that exclude each other the second reads
the head again. Unknown fields in the head are preserved. The retention record has each pin, too
(:mod:`statecore.repository.maintenance.retention_record`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from statecore.errors import Invalid, NotFound
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.head import Head, SnapshotEntry
from statecore.repository.listing import entry_of
from statecore.repository.maintenance.retention_record import (
    head_change_in_errors,
    read_retention,
    record_pinned,
    record_unpinned,
)
from statecore.repository.maintenance.reverted_head import check_not_reverted
from statecore.repository.repository import check_descriptor_unchanged

NOTE_CHARACTERS = 200  # Longest note, in characters


class Pinned(NamedTuple):
    """What a pin or unpin has done.

    Attributes:
        snapshot: id of the snapshot.
        entry: its entry then; ``None`` if only the retention record had its pin, which is removed.
        changed: whether that changed anything.
    """

    snapshot: str
    entry: SnapshotEntry | None
    changed: bool


def pin(app_repository: ApplicationRepository, snapshot: str, note: str | None = None) -> Pinned:
    """Pin a snapshot, by id or :data:`statecore.repository.layout.NEWEST`.

    Raises ``Corrupted`` if its manifest is missing or damaged: it could not be fetched.
    """
    if note is not None and len(note) > NOTE_CHARACTERS:
        raise Invalid(
            f"The note has {len(note)} characters; the head, which is read often, allows {NOTE_CHARACTERS}.",
            code="note-invalid",
            action="Give a shorter note.",
        )
    return _set(app_repository, snapshot, pinned=True, note=note)


def unpin(app_repository: ApplicationRepository, snapshot: str) -> Pinned:
    """Unpin a snapshot; retention may leave it out of the next head.

    A pin that only the retention record has is removed from it: nothing keeps the snapshot then.
    """
    try:
        return _set(app_repository, snapshot, pinned=False, note="")
    except NotFound:
        if snapshot not in read_retention(app_repository).notes:
            raise
        record_unpinned(app_repository, snapshot)
        return Pinned(snapshot, None, changed=True)


def _set(app_repository: ApplicationRepository, snapshot: str, *, pinned: bool, note: str | None) -> Pinned:
    app_repository.repository.check_primary()
    read_retention(app_repository)  # refuses one of a newer release before anything is changed
    head = app_repository.head()
    app_repository.check_needs(head)  # also before the pin of a snapshot that only the record has is removed
    check_not_reverted(app_repository, head)  # the new generation would hide it
    # A retry keeps to the snapshot that was the newest first.
    before = wanted = entry_of(app_repository, head, snapshot)
    if pinned:
        app_repository.manifest(before)  # what cannot be fetched is not to be relied upon

    def change(head: Head) -> Head:
        nonlocal before, wanted
        head.needs.check_writable(f"The head of {head.application_id}")
        check_descriptor_unchanged(app_repository.repository)
        before = entry_of(app_repository, head, before.snapshot)
        wanted = replace(before, pinned=pinned, note=before.note if note is None else note)
        if pinned:
            record_pinned(app_repository, head, wanted)
        if wanted == before:
            return head
        entries = tuple(wanted if entry == before else entry for entry in head.snapshots)
        return replace(head, generation=head.generation + 1, snapshots=entries)

    try:
        app_repository.change_head(change)
    except NotFound:  # another process has forgotten it meanwhile
        record_unpinned(app_repository, wanted.snapshot)
        raise
    if not pinned:
        with head_change_in_errors(app_repository):
            record_unpinned(app_repository, wanted.snapshot)
    return Pinned(wanted.snapshot, wanted, changed=wanted != before)
