"""Detects stores that were deleted in part or not closed cleanly, so that the next start loses rows or a task."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from statecore.formats.segments import first_live_segment
from statecore.images.model import Segmentation
from statecore.spec.model import StoreSpec, retention_of, segment_interval_of
from statecore.statedir.store_on_disk import read_database
from statecore.statedir.task_layout import StoreDirectory, rows_without_current, segment_start, stores_in


def segmentation_of(store: StoreSpec) -> Segmentation | None:
    """How the rows of a declared store are segmented; ``None`` where it is one database."""
    retention, interval = retention_of(store), segment_interval_of(store)
    if not store.kind.is_segmented or retention is None or interval is None:
        return None
    return Segmentation(retention, interval)


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
    first = first_live_segment(newest, segmentation.retention_ms, segmentation.interval_ms) * segmentation.interval_ms
    starts = [(path, segment_start(path.name, place.store)) for path in half]
    return [path for path, start in starts if start is not None and start < first]


def is_unclean(database: Path) -> bool:
    """Whether Kafka Streams would not accept a database under exactly-once; raises as :func:`read_database`."""
    return not read_database(database).opened().closed_cleanly


def is_rejected(database: Path) -> bool:
    """Whether neither Kafka Streams nor this library accepts a database under exactly-once; raises as
    :func:`read_database`.
    """
    return not read_database(database, manifests=True).checked().trusted


def first_rejected(databases: Iterable[Path]) -> Path | None:
    """The first of some databases that :func:`is_rejected`; ``None`` where there is none."""
    return next((database for database in databases if is_rejected(database)), None)


def rejected_in_task(path: Path) -> Path | None:
    """The first database in a task directory that :func:`is_rejected`, of any store."""
    return first_rejected(database for store in stores_in(path) for database in store.databases)
