"""SIGKILL at any moment of a store's life: data and offset agree, and what was acknowledged is there."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from statecore.errors import Corrupted, Invalid, NotFound
from statecore.stores.rocksdb import manifest_guard
from statecore.stores.rocksdb.store import RocksDBStore
from statecore.stores.settings import Durability, StoreSettings
from tests.harness.case_selection import one_of
from tests.harness.raising import raises
from tests.unit.stores.crash import CHANGELOG, KEYS, KIND, MERGES, PADDING

LONGEST_LIFE = 0.1
"""Seconds; a writer opens its store in some 20 ms and commits every millisecond or two."""

OPENING = 0.03
"""Seconds, in which a writer has not much more than opened its store."""


class Writers:
    """Writers of one directory, one after the other, each killed."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def killed(self, mode: str, durability: Durability, delay: float) -> int:
        """Start one, kill it some time later; the last number it acknowledged, or 0."""
        requests, answers = self._process.stdin, self._process.stdout
        assert requests is not None
        assert answers is not None
        requests.write(f"{mode} {durability}\n".encode())
        requests.flush()
        word, pid = answers.readline().split()
        assert word == b"pid"
        time.sleep(delay)
        os.kill(int(pid), signal.SIGKILL)
        acknowledged = 0
        while (line := answers.readline()) != b"end\n":
            acknowledged = int(line)
        return acknowledged

    def longest_life(self, mode: str, durability: Durability) -> float:
        """Seconds that a writer may live: enough to commit, however busy the machine is."""
        delay = LONGEST_LIFE
        while not self.killed(mode, durability, delay):
            delay *= 2
        return delay


@contextmanager
def writers(directory: Path) -> Iterator[Writers]:
    command = [sys.executable, "-m", "tests.unit.stores.crash", "serve", str(directory)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        yield Writers(process)


def rows_and_offset(path: Path) -> tuple[dict[bytes, bytes], int | None, int | None]:
    with RocksDBStore(path, KIND, read_only=True) as store:
        return dict(store.all()), store.committed_offset(CHANGELOG), store.status


def check(mode: str, durability: Durability, directory: Path, kills: int, seed: int) -> None:
    moments = random.Random(seed)
    acknowledged = 0
    (directory / "before").mkdir()
    with writers(directory / "before") as killed:
        longest = killed.longest_life(mode, durability)
    with writers(directory) as killed:
        for _ in range(kills):
            last = killed.killed(mode, durability, moments.uniform(0, longest))
            acknowledged = max(acknowledged, last)
            try:
                rows, offset, status = rows_and_offset(directory / "db")
            except (NotFound, Corrupted, Invalid):  # killed while it made the database: nothing was acknowledged
                assert acknowledged == 0
                continue
            assert (offset or 0) >= acknowledged
            numbers = {int(value) for value in rows.values()}
            assert len(rows) in (0, len(KEYS))
            assert len(numbers) <= 1
            behind = (next(iter(numbers)) if numbers else 0) - (offset or 0)
            # Ingested rows may be one batch ahead of the offset, never behind it; the status says so.
            assert behind in (0, 1) if mode == "ingest" else behind == 0
            if behind:
                assert status == 1
                with raises(Corrupted, "not-closed-cleanly"):
                    RocksDBStore(directory / "db", KIND, exactly_once=True).open()
    assert acknowledged > 0


@pytest.mark.parametrize(
    ("mode", "durability", "kills"),
    one_of(
        [
            ("commit", Durability.PROCESS, 60),
            ("commit", Durability.SYNC, 30),
            ("lives", Durability.PROCESS, 60),
            ("families", Durability.PROCESS, 40),
            ("ingest", Durability.SYNC, 20),
        ],
        by=lambda case: case[0],
    ),
)
def test_a_kill_leaves_data_and_offset_in_agreement(
    tmp_path: Path, mode: str, durability: Durability, kills: int
) -> None:
    check(mode, durability, tmp_path, kills, seed=11)


def check_merging(directory: Path, kills: int, seed: int) -> int:
    """Kill writers that flush and merge files, and those after them while they open what is left.

    After each kill a copy is opened for writing, so that what the kill left is still there for the next one.

    Returns:
        How many kills left files that the MANIFEST does not name.
    """
    moments = random.Random(seed)
    acknowledged = unnamed = 0
    path, copy = directory / "db", directory / "copy"
    with writers(directory) as killed:
        for _ in range(kills):
            for longest in (5 * LONGEST_LIFE, OPENING, OPENING):
                last = killed.killed(MERGES, Durability.PROCESS, moments.uniform(0, longest))
                acknowledged = max(acknowledged, last)
                if not (path / "CURRENT").exists():
                    assert acknowledged == 0
                    continue
                shutil.copytree(path, copy)
                inspected = manifest_guard._inspect(copy, copy)
                assert inspected is not None
                unnamed += bool(inspected.unlisted)
                whole = acknowledged > 0  # a store of which nobody knows is opened as one in the making
                with RocksDBStore(copy, KIND, exactly_once=whole, create_if_missing=not whole) as store:
                    offset = store.committed_offset(CHANGELOG) or 0
                    assert offset >= acknowledged
                    assert dict(store.all()) == (dict.fromkeys(KEYS, b"%d" % offset + PADDING) if offset else {})
                assert not (copy / manifest_guard.LOST_DIRECTORY).exists()
                shutil.rmtree(copy)
    assert acknowledged > 0
    return unnamed


def test_a_kill_in_a_flush_a_compaction_or_an_opening_leaves_a_store_that_opens(tmp_path: Path) -> None:
    check_merging(tmp_path, kills=5, seed=3)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_a_campaign_of_kills_in_flushes_compactions_and_openings_leaves_stores_that_open(
    tmp_path: Path, seed: int
) -> None:
    assert check_merging(tmp_path, kills=100, seed=seed) > 0


@pytest.mark.parametrize(("mode", "number"), [("before-write", 2), ("after-write", 3)])
def test_a_commit_is_one_write(tmp_path: Path, mode: str, number: int) -> None:
    """Nothing of a commit is there before its only write, and all of it after, flushed or not."""
    command = [sys.executable, "-m", "tests.unit.stores.crash", mode, str(tmp_path)]
    assert subprocess.run(command, capture_output=True, timeout=300, check=False).returncode == -signal.SIGKILL
    rows, offset, _ = rows_and_offset(tmp_path / "db")
    assert offset == number
    assert rows == dict.fromkeys(KEYS, b"%d" % number)


def test_a_log_that_ends_anywhere_or_has_a_flipped_bit_gives_an_earlier_commit_whole(tmp_path: Path) -> None:
    """What a loss of power may leave of a log that was not forced to the disk."""
    original = tmp_path / "original"
    with RocksDBStore(original, KIND, create=True, settings=StoreSettings(Durability.PROCESS)) as store:
        for number in range(1, 21):
            store.put_all((key, b"%d" % number) for key in KEYS)
            store.commit({CHANGELOG: number})
        left = {file.name: file.read_bytes() for file in original.iterdir()}
    (log,) = (name for name, data in left.items() if name.endswith(".log") and data)
    moments = random.Random(5)
    seen = set()
    for number in range(40):
        data, at = bytearray(left[log]), moments.randrange(len(left[log]))
        if number % 2:
            data[at] ^= 1 << moments.randrange(8)
        damaged = tmp_path / f"{number}"
        damaged.mkdir()
        for name, content in {**left, log: bytes(data if number % 2 else data[:at])}.items():
            (damaged / name).write_bytes(content)
        with RocksDBStore(damaged, KIND) as store:
            rows, offset = dict(store.all()), store.committed_offset(CHANGELOG)
        assert rows == ({} if offset is None else dict.fromkeys(KEYS, b"%d" % offset))
        seen.add(offset)
    assert len(seen) > 10


@pytest.mark.long
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("durability", Durability)
@pytest.mark.parametrize("mode", ["commit", "lives", "families", "ingest"])
def test_a_campaign_of_kills_leaves_data_and_offset_in_agreement(
    tmp_path: Path, mode: str, durability: Durability, seed: int
) -> None:
    check(mode, durability, tmp_path, kills=50, seed=seed)
