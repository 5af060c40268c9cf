"""What the simulated day is made of: a clock that is moved, and what lies in a state directory."""

from __future__ import annotations

import time
from pathlib import Path

from bench.checkpoint_day import data_files, moved_clock
from statecore.formats.kinds import StoreKind
from statecore.formats.topic_partition import TopicPartition
from statecore.jobs.checkpoint import plan as checkpoint_plan
from statecore.jobs.checkpoint import publish as checkpoint_publish
from statecore.jobs.compact import run as compaction
from statecore.stores.rocksdb.store import RocksDBStore


def test_only_the_clock_of_checkpoints_and_their_compactions_is_moved_and_only_meanwhile() -> None:
    compact, now = compaction.compact, time.time()
    with moved_clock() as clock:
        clock.ahead = 86_400.0
        assert checkpoint_publish.time.time() - now >= 86_400
        assert checkpoint_plan.time.time() - now >= 86_400
        assert compaction.compact is not compact
        assert time.time() - now < 3_600
        assert checkpoint_publish.time.monotonic is time.monotonic
    assert checkpoint_publish.time is checkpoint_plan.time is time
    assert compaction.compact is compact


def test_data_files_are_those_of_rows(tmp_path: Path) -> None:
    changelog = TopicPartition("changelog", 0)
    with RocksDBStore(tmp_path / "app" / "0_0" / "rocksdb" / "store", StoreKind.KEY_VALUE, create=True) as store:
        store.put(b"key", b"value" * 1000)
        store.commit({changelog: 1})
        store.flush()
    found = data_files(tmp_path)
    assert len(found) == 1
    ((name, size),) = found.items()
    assert (tmp_path / name).stat().st_size == size
    assert len(list(tmp_path.rglob("*.sst"))) > 1
