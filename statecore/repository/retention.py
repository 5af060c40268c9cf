"""Decides which snapshots a new head keeps, so that frequent checkpoints do not grow it without bound.

``docs/repository-format.md`` has the rule. Hours, days and weeks without a snapshot are not counted, and no clock is
read: the last snapshots of an idle application are kept, and a wrong clock costs no more than one of each.

**A snapshot that was left out is never wanted again.** The newest of an hour can only be followed by a newer one, and
an hour only move away from the newest. So thinning a head step by step leaves the same as thinning all snapshots at
once.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from datetime import UTC, datetime
from itertools import islice

from statecore.repository.head import Origin, SnapshotEntry

ROUTINE = (Origin.CHECKPOINT, Origin.COMPACTION)  # Origins of snapshots that are thinned
NEWEST = 12  # How many of the newest are kept

SPANS: tuple[tuple[int, Callable[[datetime], Hashable]], ...] = (
    (24, lambda made: (made.date(), made.hour)),
    (7, lambda made: made.date()),
    (4, lambda made: made.isocalendar()[:2]),
)
"""For each kind of span: how many have their newest kept, and the span of a time."""


def retained_entries(entries: Sequence[SnapshotEntry]) -> tuple[SnapshotEntry, ...]:
    """The entries that a new head keeps, in their order (newest first)."""
    routine = [entry for entry in entries if entry.origin in ROUTINE]
    wanted = {entry.snapshot for entry in routine[:NEWEST]}
    made = [_made_at(entry.created_at) for entry in routine]
    for count, span in SPANS:
        newest: dict[Hashable, str] = {}
        for entry, time in zip(routine, made, strict=True):
            newest.setdefault(span(time), entry.snapshot)
        wanted |= set(islice(newest.values(), count))
    return tuple(entry for entry in entries if entry.origin not in ROUTINE or entry.pinned or entry.snapshot in wanted)


def _made_at(made: str) -> datetime:
    """When a snapshot was made; unreadable times all fall into one hour, long ago."""
    try:
        found = datetime.fromisoformat(made)
        return found.astimezone(UTC) if found.tzinfo else found.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return datetime.min.replace(tzinfo=UTC)
