"""Offsets and positions of a store of a stopped application, as Kafka Streams 4.3 and later would use them at a start.

An entry of ``.checkpoint``, where 4.2 and older keep all offsets, wins over the store's own. Of a segmented store Kafka
Streams uses the newest segment's; of a grace buffer that in ``.checkpoint_<store>``.

``jobs/diff/planner.py`` and ``standby/promote/store_check.py`` ask. Others deliberately do not:

- Backups, and offset sums without a young ``.checkpoint``, use the smallest offset of all segments: below it no
  record is missing.
- A base of a restore is refused if its segments differ, or ``.checkpoint`` does (``jobs/bases/directory_bases.py``).
- A migration keeps the offset in the store (``conversion/upward.py``), and so does this library when it opens a task
  (``tasks/task_offsets.py``): the records after a lower one are in the store already.
- The doctor reads both sides, and reports where they differ (``doctor/checks/offset_files.py``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from statecore.errors import NotFound
from statecore.filesystem import tree_bytes
from statecore.formats.checkpoint import position_file
from statecore.formats.kinds import StoreKind
from statecore.formats.position import Position, merge_position, offsets_of_position, position_of_offsets
from statecore.formats.releases import CHECKPOINT_FILE
from statecore.formats.topic_partition import TopicPartition
from statecore.statedir.checkpoint_overlay import entries_of, overlaid
from statecore.statedir.readonly_database import opened_database
from statecore.statedir.store_places import StorePlace
from statecore.statedir.task_layout import Segment
from statecore.stores.legacy_offsets import read_offsets


@dataclass(frozen=True)
class StoppedStoreOffsets:
    """Offsets, position and databases of a store.

    Attributes:
        offsets: changelog partition → offset that counts at a start; -4 if unknown.
        position: input partition → greatest offset seen, merged over the segments.
        databases: by segment start in ms, or ``None`` for a store without segments.
    """

    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    position: Mapping[TopicPartition, int] = field(default_factory=dict)
    databases: Mapping[int | None, Path] = field(default_factory=dict)
    families: frozenset[str] = frozenset()
    file_bytes: int = 0


def read_stopped_store_offsets(place: StorePlace, changelogs: Iterable[str], kind: StoreKind) -> StoppedStoreOffsets:
    """Read a store's offsets. Segments that expire meanwhile are skipped."""
    offsets: Mapping[TopicPartition, int] = {}
    position: Position = {}
    families: frozenset[str] = frozenset()
    databases: dict[int | None, Path] = {}
    size = 0
    for segment in _segments(place):
        with suppress(NotFound), opened_database(segment.path) as (on_disk, _):
            state = on_disk.opened()
            offsets = state.offsets or offsets
            merge_position(position, state.position)
            families |= {*state.column_families}
            databases[segment.start] = segment.path
            size += tree_bytes(segment.path)
    directory = place.checkpoint_file.parent
    if not kind.manages_offsets:
        offsets = read_offsets(place.checkpoint_file)
    elif not are_known(offsets):
        offsets = {**offsets, **read_offsets(place.checkpoint_file)}
    topics = {*changelogs, *(part.topic for part in offsets)}
    entries = entries_of(read_offsets(directory / CHECKPOINT_FILE), offsets, topics, place.partition)
    offsets = overlaid(offsets, entries)
    merge_position(position, position_of_offsets(read_offsets(directory / position_file(place.store))))
    return StoppedStoreOffsets(offsets, offsets_of_position(position), databases, families, size)


def are_known(offsets: Mapping[TopicPartition, int]) -> bool:
    """Whether the offsets are known: there are some, and none is negative, as -4."""
    return bool(offsets) and min(offsets.values()) >= 0


def _segments(place: StorePlace) -> tuple[Segment, ...]:
    """Its databases, the oldest segment first; directories without a time in their name are skipped."""
    if place.segmented:
        return tuple(segment for segment in place.segments if segment.start is not None)
    return tuple(Segment(path, None) for path in place.databases)
