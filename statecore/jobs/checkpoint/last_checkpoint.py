"""The last checkpoint of an application, by the entries of its head: when it was made, and whether another followed.

Snapshots that a compaction made are no checkpoints.
"""

from __future__ import annotations

from collections.abc import Sequence

from statecore.errors import Reason
from statecore.jobs.attempt import parsed_time
from statecore.repository.head import Origin, SnapshotEntry
from statecore.spec.model import DEFAULT_CHECKPOINT_INTERVAL_MS

NO_SNAPSHOT = "none"
"""Stands for "no snapshot" in place of an id."""


def last_made(entries: Sequence[SnapshotEntry]) -> SnapshotEntry | None:
    """The newest snapshot that is no compaction; ``entries`` are newest first."""
    return next((one for one in entries if one.origin != Origin.COMPACTION), None)


def made_since(entries: Sequence[SnapshotEntry], last_snapshot: str | None) -> Reason | None:
    """Reason not to checkpoint if another job has made one since the check; ``None`` if none has."""
    last = last_made(entries)
    if last is None or last_snapshot in (None, last.snapshot):
        return None
    return Reason(
        f"Nothing was done: since this was found to be due, {last.snapshot} was made at {last.created_at}.",
        "made-by-another",
        snapshot=last.snapshot,
        created_at=last.created_at,
    )


def made_ms(entries: Sequence[SnapshotEntry], interval_ms: int = DEFAULT_CHECKPOINT_INTERVAL_MS) -> int | None:
    """When the newest snapshot that is no compaction was made: when its ends were read, else when it was published.

    If the two times are further apart than an interval, some unchanged task could not be confirmed; if they are the
    wrong way round, the publishing machine's clock differs from the brokers'. Then the time of publication counts.

    Returns:
        In ms since the epoch; ``None`` if there is none.
    """
    entry = last_made(entries)
    if entry is None:
        return None
    published = parsed_time(entry.created_at)
    made = 0 if published is None else int(published.timestamp() * 1000)
    return made if entry.read_at_ms is None or not 0 <= made - entry.read_at_ms <= interval_ms else entry.read_at_ms
