"""Directories of stores that were deleted, or copied, in part: who takes them for none loses rows without a word."""

from __future__ import annotations

from pathlib import Path

from statecore.formats.segments import first_live_segment
from statecore.images.model import Segmentation
from statecore.spec.derived import retention_of, segment_interval_of
from statecore.spec.model import StoreSpec
from statecore.statedir.task_layout import StoreDirectory, rows_without_current, segment_start


def segmentation_of(store: StoreSpec) -> Segmentation | None:
    """How the rows of a declared store are divided by time; ``None`` where it is one database."""
    retention, interval = retention_of(store), segment_interval_of(store)
    if not store.kind.is_segmented or retention is None or interval is None:
        return None
    return Segmentation(retention, interval)


def half_deleted(place: StoreDirectory, segmentation: Segmentation | None = None) -> str:
    """Why a store has rows that nobody reads: files of rows without the file that names all others.

    Whoever makes a database writes ``CURRENT`` before the first row. A segment that has expired is no loss: a process
    was killed while it deleted it.

    Args:
        place: the store.
        segmentation: how its rows are divided by time, where that is known.
    """
    half = rows_without_current(place)
    expired = half_expired(place, segmentation) if half else []
    lost = next((path for path in half if path not in expired), None)
    return "" if lost is None else f"{lost} has files of rows and no CURRENT: it was deleted, or copied, in part."


def half_expired(place: StoreDirectory, segmentation: Segmentation | None) -> list[Path]:
    """Segments that a process was killed at while it deleted them, because they had expired by the newest segment.

    Where the retention is no multiple of the interval one may have expired by a later time within the newest segment,
    of which nobody knows any more; such a one is damage.
    """
    if not place.segmented or segmentation is None:
        return []
    half = rows_without_current(place)
    if not half:
        return []
    newest = max((segment.start or 0 for segment in place.segments), default=0)
    first = first_live_segment(newest, segmentation.retention_ms, segmentation.interval_ms) * segmentation.interval_ms
    starts = [(path, segment_start(path.name, place.store)) for path in half]
    return [path for path, start in starts if start is not None and start < first]
