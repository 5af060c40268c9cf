"""A processor that commits and checkpoints as fast as it can, until it is killed.

``python -m tests.unit.tasks.checkpointing_process DIRECTORY INTERVAL_MS``: each turn writes its number into both
stores and commits it as their offset; now and then the stores are set back. It goes on from where it finds itself.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

from statecore.formats.kinds import StoreKind
from statecore.formats.topic_partition import TopicPartition
from statecore.stores.base import StateStore
from statecore.stores.legacy_checkpointing import LegacyCheckpointingStore
from statecore.stores.rocksdb.store import RocksDBStore
from statecore.stores.settings import Durability, StoreSettings
from statecore.tasks.checkpoint_policy import CheckpointSettings, TaskCheckpointer
from statecore.tasks.task_offsets import TaskOffsets, TaskStore
from tests.unit.stores.rows_in_file import RowsInFile

INSIDE, BESIDE = TopicPartition("app-inside-changelog", 0), TopicPartition("app-beside-changelog", 0)
NUMBER = b"number"
_QUICK = StoreSettings(durability=Durability.PROCESS)


def inside(directory: Path) -> RocksDBStore:
    """The store with its offset inside."""
    path = directory / "rocksdb" / "inside"
    return RocksDBStore(path, StoreKind.KEY_VALUE, create_if_missing=True, settings=_QUICK)


def rows_beside(directory: Path) -> RowsInFile:
    """The rows of the store with its offset beside it."""
    return RowsInFile(directory / "beside.rows", _QUICK)


def task(directory: Path) -> TaskOffsets:
    """Both stores, at-least-once."""
    beside = LegacyCheckpointingStore(rows_beside(directory), directory, "beside", [BESIDE], exactly_once=False)
    stores = [TaskStore("inside", inside(directory), (INSIDE,)), TaskStore("beside", beside, (BESIDE,))]
    return TaskOffsets(directory, stores, exactly_once=False)


def number(store: StateStore) -> int:
    """What its rows say."""
    return int(store.get(NUMBER) or b"0")


def main(directory: Path, interval_ms: int) -> None:
    """Run until killed."""
    offsets = task(directory)
    checkpointer = TaskCheckpointer(offsets, CheckpointSettings(interval_ms))
    checkpointer.open()
    first, second = (one.store for one in offsets.stores)
    turn = max(number(first), number(second))
    sys.stdout.write("running\n")
    sys.stdout.flush()
    while True:
        turn = random.randrange(turn + 1) if random.random() < 0.2 else turn + random.randrange(1, 100)
        for store in (first, second):
            store.put(NUMBER, b"%d" % turn)
        checkpointer.commit({"inside": {INSIDE: turn}, "beside": {BESIDE: turn}})


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
