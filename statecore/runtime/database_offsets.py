"""What the databases of one store say of its offsets, and of themselves, read without touching them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from statecore.formats.topic_partition import TopicPartition
from statecore.placement.database_state import DatabaseState, read_database_state
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
