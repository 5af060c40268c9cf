"""Changelogs that are not those of before: the last snapshot of the old ones is pinned, and a note warns.

A topic that was deleted and created again, or set back, has other records. What is read from it is right, and may be
nothing: if that was no intention, only an earlier snapshot has the rows, and retention would leave it out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress

from statecore.errors import Corrupted, NotFound
from statecore.jobs.bases.base import Key, Refused
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.head import SnapshotEntry
from statecore.repository.maintenance.pins import NOTE_CHARACTERS, pin, unpin
from statecore.words import WARNING, shortened_list

_OF_ANOTHER_LOG = frozenset({"topic-recreated", "log-ends-before-base", "leader-epoch-decreased", "log-truncated"})

PIN_NOTE = "the last one before these changelogs were replaced: "
"""How the note of such a pin begins."""

MOST_PINS = 3
"""Most pins of this kind of an application: the oldest, which may be the only one with the rows, and the newest."""


def last_before(entries: Iterable[SnapshotEntry]) -> SnapshotEntry | None:
    """The newest snapshot with such a pin; ``None`` where there is none, or a person has unpinned it."""
    return next(filter(_is_last_before, entries), None)


def _is_last_before(entry: SnapshotEntry) -> bool:
    return entry.pinned and entry.note.startswith(PIN_NOTE)


def replaced_stores(refused: Iterable[Refused], rebuilt: Collection[Key], newest: str) -> list[str]:
    """The stores that are read whole because their changelog is another one than that of the newest snapshot.

    Older snapshots may be of a changelog that was replaced long ago.
    """
    of_newest = (one for one in refused if one.base == newest and one.code in _OF_ANOTHER_LOG)
    return sorted({one.store for one in of_newest if one.key in rebuilt})


def replaced_notes(stores: Sequence[str]) -> tuple[str, ...]:
    """Warning about these stores."""
    if not stores:
        return ()
    return (
        f"{WARNING}The changelogs of {shortened_list(stores, 5)} are not those of before: they were deleted and "
        "created again, or set back. The new snapshot has only what is in them now. The one before it is "
        "pinned, if it can be read; unpin it when it is not needed (statecore repo unpin).",
    )


def pin_last_before(app_repository: ApplicationRepository, entries: Sequence[SnapshotEntry], stores: list[str]) -> None:
    """Pin the first of these snapshots, unless it is pinned; one that cannot be read is of no use."""
    last = entries[0]
    if last.pinned:  # with the note of this kind it would be unpinned in the end, also if a person has pinned it
        return
    try:
        pin(app_repository, last.snapshot, f"{PIN_NOTE}{shortened_list(stores, 5)}"[:NOTE_CHARACTERS])
    except (Corrupted, NotFound):
        return
    others = [one for one in entries[1:] if _is_last_before(one)]
    for one in others[MOST_PINS - 2 : -1]:
        with suppress(NotFound):  # it was unpinned and forgotten meanwhile
            unpin(app_repository, one.snapshot)
