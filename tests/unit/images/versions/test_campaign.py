"""Thousands of random histories, replayed by the kernel and by the port of ``RocksDBVersionedStore.put``."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path

import pytest

from statecore.formats.segments import Segmentation
from statecore.images.versions.build import VersionRunBuilder
from statecore.images.versions.replay import replay
from statecore.images.versions.sorted_records import MappedRecords, map_records
from tests.unit.images.versions.test_build import Put, batch, replayed


def history(chance: random.Random) -> tuple[list[Put], int, int]:
    """Records of a few keys around a clock that goes on, stands still or jumps; history retention and interval."""
    retention, interval = chance.choice([0, 1, 5, 20, 100, 1000]), chance.choice([1, 3, 7, 20, 100, 1000])
    keys, count = chance.choice([1, 1, 2, 5]), chance.choice([3, 8, 20, 60, 300])
    span, drift = chance.choice([10, 40, 100, 500]), chance.choice([0, 0.5, 2, 10])
    deletes = chance.choice([0.1, 0.3, 0.6])
    clock, puts = 0.0, list[Put]()
    for _ in range(count):
        clock += chance.random() * drift
        if chance.random() < 0.01:
            clock += retention * chance.random() * 3
        value = None if chance.random() < deletes else chance.randbytes(chance.choice([0, 1, 3]))
        timestamp = max(0, int(clock + chance.randint(-span, span // 3)))
        puts.append((b"key-%d" % chance.randrange(keys), value, timestamp))
    return puts, retention, interval


def rows_of(path: Path, puts: list[Put], chance: random.Random, retention: int, interval: int) -> dict[bytes, bytes]:
    """The finished rows, of records in random ranges and batches, without the SST files."""
    borders = [0, *sorted(chance.choices(range(len(puts) + 1), k=chance.randrange(3))), len(puts)]
    mapped: list[tuple[int, MappedRecords]] = []
    stream_time = -1
    for number, (low, high) in enumerate(pairwise(borders)):
        of_range = path / str(number)
        of_range.mkdir(exist_ok=True)
        builder = VersionRunBuilder(of_range, memory_budget=chance.choice([1, 1 << 20]))
        for at in range(low, high, 20):
            builder.add(batch(puts[at : min(at + 20, high)], at))
        mapped += [(stream_time, map_records(run)) for run in builder.finish()]
        stream_time = max(stream_time, builder.statistics.stream_time)
    found: dict[bytes, bytes] = {}
    of = Segmentation(retention, interval)
    slices = replay(mapped, of, first_live=of.first_live(stream_time), arena_bytes=1)
    for rows in slices:
        arena = rows.arena.tobytes()
        for _, at, key, value in rows.described.tolist():
            assert arena[at : at + key] not in found
            found[arena[at : at + key]] = arena[at + key : at + key + value]
    return found


def run(path: Path, seeds: range) -> None:
    for seed in seeds:
        chance = random.Random(seed)
        puts, retention, interval = history(chance)
        expected = replayed(puts, retention, interval).rows()
        assert rows_of(path, puts, chance, retention, interval) == expected, f"seed {seed}"


@pytest.mark.full
def test_random_histories(tmp_path: Path) -> None:
    run(tmp_path, range(300))


@pytest.mark.long
def test_very_many_random_histories(tmp_path: Path) -> None:
    run(tmp_path, range(1_000_000, 1_020_000))
