"""Decides which snapshots a new head keeps, so that frequent checkpoints do not grow it without bound.

``docs/repository-format.md`` has the rule, in restic's words. Hours, days, weeks, months and years without a snapshot
are not counted, and no clock is read: the last snapshots of an idle application are kept, and a wrong clock costs no
more than one of each.

**A snapshot that was left out is never wanted again.** The newest of an hour can only be followed by a newer one, and
an hour only move away from the newest. So thinning a head step by step leaves the same as thinning all snapshots at
once.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import NamedTuple

from statecore.repository.head import Retention, SnapshotEntry

_SPANS: Mapping[str, Callable[[datetime], Hashable]] = {
    "hourly": lambda made: (made.date(), made.hour),
    "daily": lambda made: made.date(),
    "weekly": lambda made: made.isocalendar()[:2],
    "monthly": lambda made: (made.year, made.month),
    "yearly": lambda made: made.year,
}
"""Field of a retention → the span of a time, of which the newest snapshot is kept."""


class KeptSnapshot(NamedTuple):
    """A snapshot, and why it is kept: ``pinned``, ``last``, ``within`` or a span; empty if it is not."""

    entry: SnapshotEntry
    reasons: tuple[str, ...]


def entries_with_reasons(entries: Sequence[SnapshotEntry], keep: Retention) -> list[KeptSnapshot]:
    """Each entry, in their order (newest first), with the reasons for which it is kept."""
    made = [_made_at(entry.created_at) for entry in entries]
    reasons: dict[str, list[str]] = {entry.snapshot: ["pinned"] if entry.pinned else [] for entry in entries}
    for entry in entries[: keep.last]:
        reasons[entry.snapshot].append("last")
    # At most the second of all times: one clock that is ahead must not make all others old.
    now = min(made[0], sorted(made)[-2:][0]) if made else None
    for entry, time in zip(entries, made, strict=True):
        if now is not None and keep.within_ms and (now - time).total_seconds() * 1000 <= keep.within_ms:
            reasons[entry.snapshot].append("within")
    for field, span in _SPANS.items():
        newest: dict[Hashable, str] = {}
        for entry, time in zip(entries, made, strict=True):
            newest.setdefault(span(time), entry.snapshot)
        for snapshot in islice(newest.values(), getattr(keep, field)):
            reasons[snapshot].append(field)
    return [KeptSnapshot(entry, tuple(reasons[entry.snapshot])) for entry in entries]


def retained_entries(entries: Sequence[SnapshotEntry], keep: Retention) -> tuple[SnapshotEntry, ...]:
    """The entries that a new head keeps, in their order (newest first)."""
    return tuple(one.entry for one in entries_with_reasons(entries, keep) if one.reasons)


def _made_at(made: str) -> datetime:
    """When a snapshot was made; unreadable times all fall into one hour, long ago."""
    try:
        found = datetime.fromisoformat(made)
        return found.astimezone(UTC) if found.tzinfo else found.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return datetime.min.replace(tzinfo=UTC)
