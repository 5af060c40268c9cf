"""Processes that hand one store over: each opens it, adds one to a count in it, and closes it, many times.

    python -m tests.unit.stores.handover write <directory> <rounds>
    python -m tests.unit.stores.handover read <directory> <file that ends it>

A writer says as JSON how often it was let in and what else it met, by kind of error, with an example of each text; a
reader what it met, and whether the count ever went back or differed from the offset that was committed with it.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections import Counter
from pathlib import Path

from statecore.errors import StatecoreError
from statecore.formats.kinds import StoreKind
from statecore.formats.topic_partition import TopicPartition
from statecore.stores.rocksdb.store import RocksDBStore
from statecore.stores.settings import Durability, StoreSettings

KIND = StoreKind.TIMESTAMPED_KEY_VALUE
CHANGELOG = TopicPartition("app-store-changelog", 0)
SETTINGS = StoreSettings(Durability.PROCESS)


class Met:
    """What was met, by name."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.examples: dict[str, str] = {}

    def add(self, where: str, error: BaseException) -> None:
        name = f"{where}: {type(error).__name__}"
        self.counts[name] += 1
        self.examples.setdefault(name, str(error))


def write(path: Path, rounds: int) -> None:
    met = Met()
    done = 0
    pauses = random.Random()
    while done < rounds:
        store = RocksDBStore(path, KIND, create_if_missing=True, settings=SETTINGS)
        try:
            store.open()
        except Exception as error:
            met.add("open", error)
            time.sleep(pauses.uniform(0, 0.004))
            continue
        count = int(store.get(b"count") or 0)
        assert (store.committed_offset(CHANGELOG) or 0) == count
        store.put(b"count", b"%d" % (count + 1))
        store.commit({CHANGELOG: count + 1})
        try:
            store.close()
        except Exception as error:
            met.add("close", error)
        done += 1
    print(json.dumps({"counts": met.counts, "examples": met.examples}), flush=True)


def read(path: Path, end: Path) -> None:
    met = Met()
    last = 0
    while not end.exists():
        try:
            with RocksDBStore(path, KIND, read_only=True) as store:
                met.counts["opened"] += 1
                count = int(store.get(b"count") or 0)
                met.counts["wrong"] += count < last or (store.committed_offset(CHANGELOG) or 0) != count
                last = max(last, count)
        except StatecoreError as error:
            met.add("open", error)
        time.sleep(0.005)  # else readers alone keep every core busy
    print(json.dumps({"counts": met.counts, "examples": met.examples}), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "write":
        write(Path(sys.argv[2]), int(sys.argv[3]))
    else:
        read(Path(sys.argv[2]), Path(sys.argv[3]))
