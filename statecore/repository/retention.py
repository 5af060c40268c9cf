"""Decides which snapshots a new head keeps, so that frequent checkpoints do not grow it without bound.

``docs/repository-format.md`` has the rule, in restic's words. Hours, days, weeks, months and years without a snapshot
are not counted, and no clock is read: the last snapshots of an idle application are kept. A snapshot of a wrong clock
costs no more than one of each, and its time makes no other too old, because the object store says when it was put.

**A snapshot that was left out is never wanted again.** The newest of an hour can only be followed by a newer one, and
an hour only move away from the newest. So thinning a head step by step leaves the same as thinning all snapshots at
once.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import NamedTuple

from statecore.errors import NotFound
from statecore.repository.application_repository import ApplicationRepository
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


def newest_put_at(
    app_repository: ApplicationRepository, entries: Sequence[SnapshotEntry], keep: Retention
) -> float | None:
    """When the manifest of the newest entry was put, by the object store's clock; ``None`` if no age is compared.

    In seconds since the epoch; 0, so that nothing is too old, if the object store does not have it.
    """
    if not entries or not keep.within_ms:
        return None
    try:
        return app_repository.blobs.head(app_repository.names.manifest(entries[0].snapshot)).modified
    except NotFound:
        return 0.0


def entries_with_reasons(
    entries: Sequence[SnapshotEntry], keep: Retention, put_at: float | None = None
) -> list[KeptSnapshot]:
    """Each entry, in their order (newest first), with the reasons for which it is kept.

    ``put_at`` is :func:`newest_put_at`; without it the times of the entries are believed.
    """
    made = [_made_at(entry.created_at) for entry in entries]
    reasons: dict[str, list[str]] = {entry.snapshot: ["pinned"] if entry.pinned else [] for entry in entries}
    for entry in entries[: keep.last]:
        reasons[entry.snapshot].append("last")
    # At most the second of all times: one clock that is ahead must not make all others old.
    now = min(made[0], sorted(made)[-2:][0]) if made else None
    if now is not None and put_at is not None:  # and neither must a clock that has made many
        now = min(now, datetime.fromtimestamp(put_at, UTC))
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


def retained_entries(
    entries: Sequence[SnapshotEntry], keep: Retention, put_at: float | None = None
) -> tuple[SnapshotEntry, ...]:
    """The entries that a new head keeps, in their order (newest first); see :func:`entries_with_reasons`."""
    return tuple(one.entry for one in entries_with_reasons(entries, keep, put_at) if one.reasons)


def _made_at(made: str) -> datetime:
    """When a snapshot was made; unreadable times all fall into one hour, long ago."""
    try:
        found = datetime.fromisoformat(made)
        return found.astimezone(UTC) if found.tzinfo else found.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return datetime.min.replace(tzinfo=UTC)
