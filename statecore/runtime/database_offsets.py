"""What the databases of one store say of its offsets, and of themselves, read without touching them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from statecore.formats.segments import first_live_segment
from statecore.formats.topic_partition import TopicPartition
from statecore.images.model import Segmentation
from statecore.placement.contents import StoreDirectory, directories_in, segment_start
from statecore.placement.database_state import DatabaseState, read_database_state
from statecore.spec.derived import retention_of, segment_interval_of
from statecore.spec.model import StoreSpec
from statecore.stores.rocksdb_directory import has_database
from statecore.stores.rocksdb_witness import Witness


@dataclass
class DatabaseOffsets:
    """What the databases of a store say.

    Attributes:
        offsets: the smallest of each partition.
        disagree: whether they do not all say the same.
        states: of each.
    """

    offsets: dict[TopicPartition, int]
    disagree: bool
    states: list[DatabaseState]


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
    expired = half_expired(place, segmentation)
    lost = next((path for path in _without_current(place) if path not in expired), None)
    return "" if lost is None else f"{lost} has files of rows and no CURRENT: it was deleted, or copied, in part."


def half_expired(place: StoreDirectory, segmentation: Segmentation | None) -> list[Path]:
    """Segments that a process was killed at while it deleted them, because they had expired by the newest segment.

    Where the retention is no multiple of the interval one may have expired by a later time within the newest segment,
    of which nobody knows any more; such a one is damage.
    """
    if not place.segmented or segmentation is None:
        return []
    newest = max((segment.start or 0 for segment in place.segments), default=0)
    first = first_live_segment(newest, segmentation.retention_ms, segmentation.interval_ms) * segmentation.interval_ms
    starts = [(path, segment_start(path.name, place.store)) for path in _without_current(place)]
    return [path for path, start in starts if start is not None and start < first]


def _without_current(place: StoreDirectory) -> list[Path]:
    paths = directories_in(place.path) if place.segmented else [place.path]
    return [path for path in paths if not has_database(path) and any(map(_has_rows, path.glob("*.*")))]


def _has_rows(file: Path) -> bool:
    return file.suffix == ".sst" or (file.suffix == ".log" and file.stat().st_size > 0)


def newest_ns(databases: Sequence[Path]) -> int:
    """When a file of these databases was written last, in ns since the epoch; 0 where there is none."""
    newest = 0
    for database in databases:
        with os.scandir(database) as entries:
            for one in entries:
                with suppress(FileNotFoundError):  # whoever has it open deletes files
                    newest = max(newest, one.stat().st_mtime_ns)
    return newest


def read_databases(databases: Sequence[Path]) -> DatabaseOffsets:
    """What all databases of a store say, together.

    Raises:
        Corrupted: one is damaged, or has lost a part of its files.
        Fenced, Capacity, Invalid, NotFound, Retryable: see :func:`read_database_state`.
    """
    states = []
    for database in databases:
        Witness(database, database).look(read_only=True)
        states.append(read_database_state(database))
    offsets: dict[TopicPartition, int] = {}
    for state in states:
        for at, offset in state.offsets.items():
            offsets[at] = min(offset, offsets.get(at, offset))
    disagree = any(dict(state.offsets) != offsets for state in states)
    return DatabaseOffsets(offsets, disagree, states)
