"""How far a store of a state directory has come: the offsets and positions that the application would go by.

Up to 4.2 they lie in files beside the stores, and where ``.checkpoint`` names a store it wins over what the store says
itself. Of a store with segments Kafka Streams goes by the newest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from statecore.errors import NotFound
from statecore.filesystem import tree_bytes
from statecore.formats.checkpoint import position_file
from statecore.formats.offsets import OFFSET_UNKNOWN
from statecore.formats.position import Position, merge_position, offsets_of_position, position_of_offsets
from statecore.formats.releases import CHECKPOINT_FILE
from statecore.formats.topic_partition import TopicPartition
from statecore.statedir.readonly_database import opened_database
from statecore.statedir.store_places import StorePlace
from statecore.statedir.task_layout import Segment
from statecore.stores.legacy_offsets import read_offsets


@dataclass(frozen=True)
class Standing:
    """How far a store has come, and what it is on disk.

    Attributes:
        offsets: changelog partition → what counts when the application starts; -4 where that is not known.
        position: input partition → greatest offset seen, merged over the segments.
        databases: by the start of the segment in ms, or ``None`` where the store has none.
        families: all column families of them.
        file_bytes: bytes of them.
    """

    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    position: Mapping[TopicPartition, int] = field(default_factory=dict)
    databases: Mapping[int | None, Path] = field(default_factory=dict)
    families: frozenset[str] = frozenset()
    file_bytes: int = 0


def standing_of(place: StorePlace, changelogs: Iterable[str]) -> Standing:
    """Look at a store. Segments that expire meanwhile are passed over.

    Args:
        place: its directory.
        changelogs: the topics that entries of ``.checkpoint`` may name for it.

    Raises:
        Corrupted: a database, or a file beside it, cannot be read.
        Invalid: this user may not look.
    """
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
    if not known(offsets):
        offsets = {**offsets, **read_offsets(place.checkpoint_file)}
    topics = {*changelogs, *(part.topic for part in offsets)}
    for part, offset in read_offsets(directory / CHECKPOINT_FILE).items():
        if part.topic in topics and (offset != OFFSET_UNKNOWN or part not in offsets):
            offsets = {**offsets, part: offset}
    merge_position(position, position_of_offsets(read_offsets(directory / position_file(place.store))))
    return Standing(offsets, offsets_of_position(position), databases, families, size)


def known(offsets: Mapping[TopicPartition, int]) -> bool:
    """Whether anything tells how far a store has come."""
    return bool(offsets) and OFFSET_UNKNOWN not in offsets.values()


def _segments(place: StorePlace) -> tuple[Segment, ...]:
    """Its databases, the oldest segment first; those that have no time in their name are none."""
    if place.segmented:
        return tuple(segment for segment in place.segments if segment.start is not None)
    return tuple(Segment(path, None) for path in place.databases)
