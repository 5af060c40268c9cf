"""Processes that restore a store until somebody kills them.

    python -m tests.unit.tasks.restore_kills <directory>

forks one for each line it reads, ``<what to do with a stale store>`` (it opens no database itself, so its children
may), and says ``end`` when that child is gone. A child says its process id, ``commit`` before each commit of the store,
and ``done`` when the store is restored. Its changelog is made up: what is read is the same at every run, in batches of
other sizes at every start.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from statecore.changelog.cluster import Cluster
from statecore.changelog.model import LogOffsets, OffsetRange
from statecore.formats.kinds import StoreKind
from statecore.formats.topic_partition import TopicPartition
from statecore.stores.rocksdb.config_setter import ConfigurableOptions
from statecore.stores.rocksdb.store import RocksDBStore
from statecore.stores.settings import Durability, StoreSettings
from statecore.tasks.restoration import restore as restoring
from statecore.tasks.restoration.records import RestoredRows
from statecore.tasks.restoration.restore import OnStale, RestoreSettings, restore

KIND = StoreKind.KEY_VALUE
CHANGELOG = TopicPartition("app-store-changelog", 0)
END = 4000
_KEYS = 150


def merge_often(_: str, options: ConfigurableOptions) -> None:
    """A config setter: RocksDB flushes and merges files meanwhile."""
    options.set_write_buffer_size(64_000)
    options.set_level_zero_file_num_compaction_trigger(2)


SETTINGS = StoreSettings(Durability.PROCESS, uncommitted_max_bytes=5_000, rocksdb_config_setter=merge_often)


def record(offset: int) -> tuple[bytes, bytes | None]:
    """A record of the changelog: keys come again and again, some are deleted."""
    return b"k%03d" % (offset * 7919 % _KEYS), None if offset % 11 == 5 else b"%d" % offset * 40


def rows_at(offset: int) -> dict[bytes, bytes]:
    """What a store holds that stands at an offset."""
    last = dict(map(record, range(offset + 1)))
    return {key: value for key, value in last.items() if value is not None}


def read(span: OffsetRange) -> Iterator[RestoredRows]:
    """The records of a span."""
    at, sizes = span.start, random.Random()
    while at < span.end:
        following = min(at + sizes.randint(1, 60), span.end)
        rows = [record(offset) for offset in range(at, following)]
        yield RestoredRows(rows, len(rows), following)
        at = following


def restored(path: Path, on_stale: OnStale) -> None:
    """Restore the store, made where there is none, from the made-up changelog."""
    with RocksDBStore(path, KIND, create_if_missing=True, exactly_once=True, settings=SETTINGS) as store:
        restore(store, CHANGELOG, cast(Cluster, None), RestoreSettings(on_stale=on_stale))


SCRIPT: dict[str, Any] = {
    "topic_id_of": lambda *_: "id",
    "settled_offsets": lambda *_, **__: LogOffsets(0, END, END),
    "_rows": lambda _, plan, *__: read(plan.span),
}
"""What restores take from elsewhere in place of a cluster."""


def _said_commits() -> None:
    publish = RocksDBStore._publish

    def publishing(store: RocksDBStore, prepared: Any) -> None:
        os.write(1, b"commit\n")
        publish(store, prepared)

    RocksDBStore._publish = publishing  # type: ignore[method-assign]


def serve(path: Path) -> None:
    import rocksdict  # noqa: F401 - once, for all children

    for name, scripted in SCRIPT.items():
        setattr(restoring, name, scripted)
    _said_commits()
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            os.write(1, b"pid %d\n" % os.getpid())
            restored(path, OnStale(line.strip()))
            os.write(1, b"done\n")
            os._exit(0)
        os.waitpid(child, 0)
        os.write(1, b"end\n")


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
