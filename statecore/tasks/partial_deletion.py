"""Detects stores that were deleted, or copied, in part: data files that no database reads."""

from __future__ import annotations

from pathlib import Path

from statecore.formats.segments import Segmentation
from statecore.statedir.task_layout import StoreDirectory, rows_without_current, segment_start


def why_partially_deleted(place: StoreDirectory, segmentation: Segmentation | None = None) -> str:
    """Why a store has rows that no database reads: data files without ``CURRENT``; empty where it has none.

    RocksDB writes ``CURRENT`` before the first row. An expired segment is no loss: a process was killed while it
    deleted that. ``segmentation`` says how rows are segmented, where that is known.
    """
    half = rows_without_current(place)
    expired = half_expired(place, segmentation) if half else []
    lost = next((path for path in half if path not in expired), None)
    return "" if lost is None else f"{lost} has data files and no CURRENT: it was deleted, or copied, in part."


def half_expired(place: StoreDirectory, segmentation: Segmentation | None) -> list[Path]:
    """Partly deleted segments that had expired by the newest segment.

    Where the retention is not a multiple of the interval, a segment may have expired by a later time within the newest
    segment, which is unknown; such a segment counts as damage.
    """
    if not place.segmented or segmentation is None:
        return []
    half = rows_without_current(place)
    if not half:
        return []
    newest = max((segment.start or 0 for segment in place.segments), default=0)
    first = segmentation.first_live(newest) * segmentation.interval_ms
    starts = [(path, segment_start(path.name, place.store)) for path in half]
    return [path for path, start in starts if start is not None and start < first]
