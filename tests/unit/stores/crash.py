"""A process that writes to a store until somebody kills it, and what must hold afterwards.

    python -m tests.unit.stores.crash commit|ingest <directory>

It prints the number of each batch once the store has returned from committing it. Every batch sets all keys to its
number, so rows of two different numbers, or rows and an offset that differ, show a mix.
"""

from __future__ import annotations

import sys
from itertools import count
from pathlib import Path

from statecore.formats.kinds import StoreKind
from statecore.formats.topic_partition import TopicPartition
from statecore.stores.options import data_options
from statecore.stores.rocksdb import RocksDBStore

KIND = StoreKind.TIMESTAMPED_KEY_VALUE
CHANGELOG = TopicPartition("app-store-changelog", 0)
KEYS = [b"key-%03d" % number for number in range(100)]


def write(mode: str, directory: Path) -> None:
    from rocksdict import SstFileWriter

    path = directory / "db"
    with RocksDBStore(path, KIND, create=not path.exists()) as store:
        start = (store.committed_offset(CHANGELOG) or 0) + 1
        print("open", flush=True)
        for number in count(start):
            value = b"%d" % number
            if mode == "commit":
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
