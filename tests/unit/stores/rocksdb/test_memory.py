"""Memory that the stores of a process share."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from statecore.errors import Capacity, Corrupted, Invalid
from statecore.formats.kinds import StoreKind
from statecore.formats.topic_partition import TopicPartition
from statecore.stores.rocksdb.memory import memory_of
from statecore.stores.rocksdb.store import RocksDBStore
from statecore.stores.settings import KEEP_FILES, Durability, MemorySettings, StoreSettings
from tests.harness.directory import copy_of_open
from tests.unit.stores.rocksdb.test_store import sst

PLAIN = StoreKind.KEY_VALUE
CHANGELOG = TopicPartition("app-store-changelog", 0)
MIB = 1 << 20


def _fill(store: RocksDBStore, rows: int, offset: int = 1) -> None:
    for number in range(rows):
        store.put(b"%08d" % number, b"v" * 1000)
    store.commit({CHANGELOG: offset})


def test_stores_with_equal_settings_share_a_cache_that_stays_below_its_size(tmp_path: Path) -> None:
    settings = StoreSettings(Durability.PROCESS, memory=MemorySettings(3 * MIB, 2 * MIB))
    memory = memory_of(MemorySettings(3 * MIB, 2 * MIB))
    stores = [RocksDBStore(tmp_path / str(number), PLAIN, create=True, settings=settings) for number in range(4)]
    used = []
    for store in stores:
        store.open()
        _fill(store, 2000)
        store.flush()
        assert sum(1 for _ in store.all()) == 2000
        used.append(memory.cache.get_usage())
    assert min(used) > 0, "a compaction that ends at this moment frees the blocks of its input"
    assert max(used) <= 3 * MIB + MIB // 2
    for store in stores:
        store.close()


def test_the_limit_of_write_buffers_is_that_of_all_stores_together(tmp_path: Path) -> None:
    settings = StoreSettings(Durability.PROCESS, memory=MemorySettings(9 * MIB, 4 * MIB))
    stores = [RocksDBStore(tmp_path / str(number), PLAIN, create=True, settings=settings) for number in range(8)]
    for store in stores:
        store.open()
        for turn in range(1, 3):
            _fill(store, 600, turn)  # 0.6 MiB at a time: each store has room enough, all of them have not
            assert memory_of(settings.memory).write_buffers.get_usage() <= 4 * MIB
    assert [store for store in stores if list(store._path.glob("*.sst"))]
    for store in stores:
        assert (store.get(b"%08d" % 599), store.committed_offset(CHANGELOG)) == (b"v" * 1000, 2)
        store.close()


def test_the_store_that_has_most_makes_room_for_one_that_has_little(tmp_path: Path) -> None:
    settings = StoreSettings(Durability.PROCESS, memory=MemorySettings(10 * MIB, 4 * MIB))
    with (
        RocksDBStore(tmp_path / "rests", PLAIN, create=True, settings=settings) as rests,
        RocksDBStore(tmp_path / "works", PLAIN, create=True, settings=settings) as works,
    ):
        _fill(rests, 3500)
        for number in range(300):
            works.put(b"%d" % number, b"a")
            works.commit({CHANGELOG: number})
        assert list((tmp_path / "rests").glob("*.sst"))
        assert not list((tmp_path / "works").glob("*.sst"))


def test_memory_that_is_still_to_be_given_back_after_a_flush_makes_no_small_store_flush() -> None:
    settings = MemorySettings(10 * MIB, 4 * MIB, shared=False)
    memory, flushed = memory_of(settings), []

    class Rests:
        held = 3 * MIB

        def memtable_bytes(self) -> int:
            return self.held

        def flush_memtables(self) -> None:
            flushed.append(self)
            self.held = 2048

    class Usage:
        def get_usage(self) -> int:
            return 4 * MIB

    large, small = Rests(), Rests()
    small.held = 4096
    memory.write_buffers = Usage()
    memory.join(large)
    memory.join(small)
    for _ in range(3):
        memory.make_room(small)
    assert flushed == [large]


def test_a_store_that_cannot_make_room_does_not_harm_the_commit_of_another(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = StoreSettings(Durability.PROCESS, memory=MemorySettings(11 * MIB, 4 * MIB))
    with (
        RocksDBStore(tmp_path / "rests", PLAIN, create=True, settings=settings) as rests,
        RocksDBStore(tmp_path / "works", PLAIN, create=True, settings=settings) as works,
    ):
        _fill(rests, 3500)
        data, rests._families["default"] = rests._families["default"], _Full(rests._families["default"])
        _fill(works, 1)
        assert works.committed_offset(CHANGELOG) == 1
        assert "No space left" in caplog.text
        with pytest.raises(Capacity, match="rests"):
            _fill(rests, 1)
        rests._families["default"] = data


def test_a_flush_for_others_does_not_hide_that_rows_are_ahead_of_their_offset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noting, noted = threading.Event(), threading.Event()
    replace_file = os.replace

    def slowly(source: Path, target: Path) -> None:
        """The flush would write its record down last, if the ingest did not wait for it."""
        if threading.current_thread() is flusher:
            noting.set()
            noted.wait(1)
        replace_file(source, target)
        if threading.current_thread() is not flusher:
            noted.set()

    with RocksDBStore(tmp_path / "db", PLAIN, create=True) as store:
        _fill(store, 10)
        flusher = threading.Thread(target=store.flush_memtables)
        monkeypatch.setattr(os, "replace", slowly)
        flusher.start()
        assert noting.wait(300)
        store.ingest([sst(tmp_path / "run.sst", {b"ahead": b"of offset 1"})])
        flusher.join()
        killed = copy_of_open(tmp_path / "db", tmp_path / "killed")
    with pytest.raises(Corrupted, match="may be ahead"):
        RocksDBStore(killed, PLAIN, exactly_once=True).open()


class _Full:
    """A column family on a disk that is full."""

    def __init__(self, family: Any) -> None:
        self._family = family

    def __getattr__(self, name: str) -> Any:
        return getattr(self._family, name)

    def flush(self) -> None:
        raise Exception("IO error: No space left on device")  # as rocksdict does


def test_other_settings_have_a_cache_of_their_own() -> None:
    assert memory_of(MemorySettings()) is memory_of(StoreSettings().memory)
    assert memory_of(MemorySettings(7 * MIB, MIB)) is not memory_of(MemorySettings(8 * MIB, MIB))
    assert memory_of(KEEP_FILES.memory) is not memory_of(KEEP_FILES.memory)


@pytest.mark.parametrize(("total", "buffers"), [(10, 11), (10, 0), (0, 0), (-1, -1)])
def test_settings_that_cannot_be_are_refused(total: int, buffers: int) -> None:
    with pytest.raises(Invalid):
        MemorySettings(total, buffers)


def test_a_store_that_keeps_files_reads_them_from_disk_and_not_from_the_cache(tmp_path: Path) -> None:
    with RocksDBStore(tmp_path / "db", PLAIN, create=True) as store:
        _fill(store, 1000)
        store.flush()
        assert sum(1 for _ in store.all()) == 1000
    (largest,) = sorted((tmp_path / "db").glob("*.sst"), key=lambda file: file.stat().st_size)[-1:]
    damaged = bytearray(largest.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    largest.write_bytes(damaged)
    with pytest.raises(Corrupted), RocksDBStore(tmp_path / "db", PLAIN, read_only=True, settings=KEEP_FILES) as store:
        store.verify()


def test_a_store_is_opened_and_closed_again_while_others_use_the_same_cache(tmp_path: Path) -> None:
    settings = replace(StoreSettings(Durability.PROCESS), memory=MemorySettings(2 * MIB, MIB))
    with RocksDBStore(tmp_path / "stays", PLAIN, create=True, settings=settings) as stays:
        for turn in range(5):
            with RocksDBStore(tmp_path / "goes", PLAIN, create_if_missing=True, settings=settings) as goes:
                _fill(goes, 500, turn)
            _fill(stays, 500, turn)
            assert stays.get(b"%08d" % 499) == b"v" * 1000
        assert stays.committed_offset(CHANGELOG) == 4


def _measure(directory: Path, stores: int) -> dict[str, float]:
    command = [sys.executable, "-m", "bench.open_stores", "--json", "--directory", str(directory), str(stores)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800, check=False)
    assert done.returncode == 0, done.stderr
    measured: dict[str, float] = json.loads(done.stdout)
    return measured


@pytest.mark.full
@pytest.mark.parametrize("stores", [100, pytest.param(1000, marks=[pytest.mark.long, pytest.mark.timeout(1900)])])
def test_memory_of_open_stores_that_are_written_and_read_stays_below_its_ceiling(tmp_path: Path, stores: int) -> None:
    measured = _measure(tmp_path, stores)
    assert measured["written_mib"] > measured["shared_mib"]  # else nothing would have to be given up
    assert measured["cache_mib"] < 1.05 * measured["shared_mib"]
    # malloc keeps about half as much again of what it was given back, and an open store takes some of its own
    assert measured["rss_mib"] < 1.5 * measured["shared_mib"] + 0.5 * stores + 64
