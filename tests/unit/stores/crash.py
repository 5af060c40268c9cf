"""A process that writes to a store until somebody kills it, and what must hold afterwards.

    python -m tests.unit.stores.crash commit|ingest|before-write|after-write <directory>

It prints the number of each batch once the store has returned from committing it; with the last two it kills itself in
the third commit, right before or after its write to the database. Every batch sets all keys to its number, so rows of
two different numbers, or rows and an offset that differ, show a mix.
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
from statecore.stores.options import data_options
from statecore.stores.rocksdb import RocksDBStore

KIND = StoreKind.TIMESTAMPED_KEY_VALUE
CHANGELOG = TopicPartition("app-store-changelog", 0)
KEYS = [b"key-%03d" % number for number in range(100)]


def kill_at_write(when: str) -> None:
    """Let the process kill itself around the write of the third commit."""
    write = RocksDBStore._write
    commits = count(1)

    def writing(store: RocksDBStore, batch: Any) -> None:
        third = len(batch) > len(KEYS) and next(commits) == 3
        if third and when == "before-write":
            os.kill(os.getpid(), signal.SIGKILL)
        write(store, batch)
        if third:
            os.kill(os.getpid(), signal.SIGKILL)

    RocksDBStore._write = writing  # type: ignore[method-assign]


def write(mode: str, directory: Path) -> None:
    from rocksdict import SstFileWriter

    if mode.endswith("-write"):
        kill_at_write(mode)
    path = directory / "db"
    with RocksDBStore(path, KIND, create=not path.exists()) as store:
        start = (store.committed_offset(CHANGELOG) or 0) + 1
        print("open", flush=True)
        for number in count(start):
            value = b"%d" % number
            if mode != "ingest":
                for key in KEYS:
                    store.put(key, value)
                if number % 7 == 0:
                    store.flush()
            else:
                (directory / "next.sst").unlink(missing_ok=True)  # may be a second name of an ingested file
                writer = SstFileWriter(data_options())
                writer.open(str(directory / "next.sst"))
                for key in KEYS:
                    writer[key] = value
                writer.finish()
                store.ingest([directory / "next.sst"])
                if number % 20 == 0:
                    store.compact()
            store.commit({CHANGELOG: number})
            print(number, flush=True)


if __name__ == "__main__":
    write(sys.argv[1], Path(sys.argv[2]))
