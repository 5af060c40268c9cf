"""Processes that write to a store until somebody kills them, and what must hold afterwards.

    python -m tests.unit.stores.crash before-write|after-write <directory>
    python -m tests.unit.stores.crash serve <directory>

The first form kills itself in the third commit, right before or after its write to the database. The second loads
everything once and forks a writer for each line ``<mode> <durability>`` it reads (it opens no database itself, so its
children may), and says ``end`` when that child is gone; children are quick to start, so they can be many. A writer says
its process id, then the number of each batch once the store has returned from committing it.

Every batch sets all keys to its number: rows of two different numbers, or rows and an offset that differ, show a mix.
Modes: ``commit`` writes and commits, with a flush now and then; ``lives`` also closes and opens the store every few
batches; ``families`` also flushes single column families behind the store's back; ``ingest`` ingests files instead;
``merges`` has large rows and small write buffers, so that RocksDB flushes and merges files all the time.
"""

from __future__ import annotations

import os
import signal
import sys
from itertools import count
from pathlib import Path
from typing import Any

from statecore.formats.kinds import StoreKind
from statecore.formats.topic_partition import TopicPartition
from statecore.stores.rocksdb.config_setter import ConfigurableOptions
from statecore.stores.rocksdb.options import data_options
from statecore.stores.rocksdb.store import RocksDBStore
from statecore.stores.settings import Durability, StoreSettings

KIND = StoreKind.TIMESTAMPED_KEY_VALUE
CHANGELOG = TopicPartition("app-store-changelog", 0)
KEYS = [b"key-%03d" % number for number in range(100)]
MERGES = "merges"
PADDING = b" " * 1000


def merge_often(_: str, options: ConfigurableOptions) -> None:
    """A config setter: two batches fill a write buffer, and two files are enough to be merged."""
    options.set_write_buffer_size(200_000)
    options.set_level_zero_file_num_compaction_trigger(2)


def settings_of(mode: str, durability: Durability = Durability.SYNC) -> StoreSettings:
    return StoreSettings(durability, rocksdb_config_setter=merge_often if mode == MERGES else None)


def kill_at_write(when: str) -> None:
    """Let the process kill itself around the write of the third commit."""
    publish = RocksDBStore._publish
    commits = count(1)

    def publishing(store: RocksDBStore, prepared: Any) -> None:
        third = len(prepared[0]) > len(KEYS) and next(commits) == 3
        if third and when == "before-write":
            os.kill(os.getpid(), signal.SIGKILL)
        publish(store, prepared)
        if third:
            os.kill(os.getpid(), signal.SIGKILL)

    RocksDBStore._publish = publishing  # type: ignore[method-assign]


def opened(directory: Path, settings: StoreSettings) -> RocksDBStore:
    store = RocksDBStore(directory / "db", KIND, create_if_missing=True, settings=settings)
    store.open()
    return store


def ingest(store: RocksDBStore, directory: Path, number: int) -> None:
    from rocksdict import SstFileWriter

    (directory / "next.sst").unlink(missing_ok=True)  # may be a second name of an ingested file
    writer = SstFileWriter(data_options())
    writer.open(str(directory / "next.sst"))
    for key in KEYS:
        writer[key] = b"%d" % number
    writer.finish()
    store.ingest([directory / "next.sst"])
    if number % 20 == 0:
        store.compact()


def disturb(store: RocksDBStore, directory: Path, mode: str, number: int, settings: StoreSettings) -> RocksDBStore:
    """What happens to a store between two batches."""
    if mode == MERGES and number % 5 == 0:
        store.compact()
    if mode == "families":
        families = sorted(store._families)
        store._families[families[number % len(families)]].flush()
    elif mode != "ingest" and number % 7 == 0:
        store.flush()
    if mode == "lives" and number % 5 == 0:
        store.close()
        return opened(directory, settings)
    return store


def write(mode: str, directory: Path, durability: Durability = Durability.SYNC) -> None:
    settings = settings_of(mode, durability)
    store = opened(directory, settings)
    padding = PADDING if mode == MERGES else b""
    for number in count((store.committed_offset(CHANGELOG) or 0) + 1):
        if mode == "ingest":
            ingest(store, directory, number)
        else:
            with store.transaction() as aborted:
                aborted.put(KEYS[number % len(KEYS)], b"-1")
            store.put_all((key, b"%d" % number + padding) for key in KEYS)
        store.commit({CHANGELOG: number})
        os.write(1, b"%d\n" % number)
        store = disturb(store, directory, mode, number, settings)


def serve(directory: Path) -> None:
    import rocksdict  # noqa: F401 - once, for all children

    for line in sys.stdin:
        mode, durability = line.split()
        child = os.fork()
        if child == 0:
            os.write(1, b"pid %d\n" % os.getpid())
            write(mode, directory, Durability(durability))
        os.waitpid(child, 0)
        os.write(1, b"end\n")


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(Path(sys.argv[2]))
    else:
        kill_at_write(sys.argv[1])
        write("commit", Path(sys.argv[2]))
