"""Which snapshots a new head goes on naming, so that a checkpoint every five minutes does not make it grow for ever.

What was made by hand or on purpose is kept, and what is pinned. Of what is made as a matter of routine, checkpoints and
folds, these stay::

    the newest                        12      an hour of a checkpoint every five minutes
    the newest of each hour of UTC    24      hours that have one
    the newest of each day of UTC      7      days that have one
    the newest of each week            4      weeks that have one; a week begins on Monday

Hours, days and weeks that have no snapshot are not counted, and no clock is asked. So what an application that rests
had last is kept until newer ones take its place, and one clock that is wrong costs no more than one of the hours, days
and weeks. Newer is what stands further ahead in the head.

**A snapshot that was left out is never wanted again.** The newest of an hour can only be followed by a newer one, and
an hour only move away from the newest. So to thin a head step by step leaves what thinning all that there ever was
would.

What a head does not name any more does not count. Its manifest, parts and files stay where they are, as garbage for
whoever collects it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from datetime import UTC, datetime
from itertools import islice

from statecore.repository.head import SnapshotEntry

ROUTINE = ("checkpoint", "fold")
"""Origins of snapshots of which a head names some only."""

NEWEST = 12
"""How many of the newest are kept."""

SPANS: tuple[tuple[int, Callable[[datetime], Hashable]], ...] = (
    (24, lambda made: (made.date(), made.hour)),
    (7, lambda made: made.date()),
    (4, lambda made: made.isocalendar()[:2]),
)
"""How many spans of a kind have their newest kept, and the span that a moment is in."""


def retained_entries(entries: Sequence[SnapshotEntry]) -> tuple[SnapshotEntry, ...]:
    """The entries that a new head keeps, in their order.

    Args:
        entries: all that there are, newest first.
    """
    routine = [entry for entry in entries if entry.origin in ROUTINE]
    wanted = {entry.snapshot for entry in routine[:NEWEST]}
    made = [_moment(entry.made) for entry in routine]
    for count, span in SPANS:
        newest: dict[Hashable, str] = {}
        for entry, moment in zip(routine, made, strict=True):
            newest.setdefault(span(moment), entry.snapshot)
        wanted |= set(islice(newest.values(), count))
    return tuple(entry for entry in entries if entry.origin not in ROUTINE or entry.pinned or entry.snapshot in wanted)


def _moment(made: str) -> datetime:
    """When a snapshot was made. All whose time cannot be read were made in one hour, a long time ago."""
    try:
        found = datetime.fromisoformat(made)
        return found.astimezone(UTC) if found.tzinfo else found.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return datetime.min.replace(tzinfo=UTC)
