"""Which runs are merged, compared with all other ways, and with a RocksDB with Kafka Streams' options."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations, pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statecore.formats.kinds import StoreKind
from statecore.formats.topic_partition import TopicPartition
from statecore.images.image import build_image
from statecore.images.linked_bases import ImageBase, ImageBases
from statecore.images.model import MergedDatabase, RunFile
from statecore.images.runs_digest import merged_digest
from statecore.images.universal_compaction import MOST_UNMERGED, groups_to_merge, rewrites
from statecore.stores.rocksdb.manifest_guard import remove_guard_record
from statecore.stores.rocksdb.store import RocksDBStore
from statecore.stores.settings import KEEP_FILES
from tests.harness.case_selection import three_of
from tests.unit.images.sst_files import Rows
from tests.unit.images.test_merge_writer import runs_of

CHANGELOG = TopicPartition("app-store-changelog", 0)
KIND = StoreKind.KEY_VALUE
SIZES = st.lists(st.integers(1, 1 << 40), max_size=9)


@given(SIZES, st.lists(st.integers(1, 1 << 40), max_size=5))
def test_what_is_left_is_not_rewritten_and_nothing_cheaper_would_do(sizes: list[int], base: list[int]) -> None:
    groups = groups_to_merge(sizes, base)
    assert all(part.stop - part.start > 1 and part.step is None for part in groups)
    assert all(one.stop <= other.start for one, other in pairwise(groups))
    left, at = list(base), 0
    for part in [*groups, slice(len(sizes), len(sizes))]:
        left += sizes[at : part.start] + ([sum(sizes[part])] if part.stop > part.start else [])
        at = part.stop
    assert sum(left) == sum(base) + sum(sizes)
    if len(base) < MOST_UNMERGED:
        assert not rewrites(left)
    elif groups:
        assert len(left) == len(base) + 1
    written = sum(sum(sizes[part]) for part in groups)
    if not sizes or not rewrites([*base, *sizes]):
        assert written == 0
    else:
        assert written == cheapest(sizes, max(1, MOST_UNMERGED - len(base)))


def cheapest(sizes: list[int], groups: int) -> int:
    """The fewest bytes with which neighbours become so many groups, of all ways to cut."""
    costs = []
    for cuts in combinations(range(1, len(sizes)), min(groups, len(sizes)) - 1):
        ends = [0, *cuts, len(sizes)]
        parts = [sizes[start:end] for start, end in pairwise(ends)]
        costs.append(sum(sum(part) for part in parts if len(part) > 1))
    return min(costs, default=0)


def test_the_cases_that_kafka_streams_distinguishes() -> None:
    assert rewrites([10_000, 2000, 1000, 991]), "a hundredth smaller is about as large"
    assert not rewrites([10_000, 2000, 1000, 990])
    assert rewrites([300, 250, 200, 150]), "twice the oldest"
    assert not rewrites([301, 250, 200, 150])
    assert groups_to_merge([5, 5, 5]) == []
    assert groups_to_merge([5, 5, 5, 5]) == [slice(0, 2)]
    assert groups_to_merge([100, 1, 1, 1]) == [slice(1, 3)]
    assert groups_to_merge([1, 1, 1], [100]) == [slice(0, 2)]
    assert groups_to_merge([1, 1, 1], [100, 50, 20]) == [slice(0, 3)]
    assert groups_to_merge([64, 16, 4, 1]) == [], "four that shrink are left alone by RocksDB, too"
    assert groups_to_merge([]) == groups_to_merge([], [1, 1, 1, 1]) == []


ROWS = [
    [300, 300, 300],
    [300] * 4,
    [3000, 50, 50],
    [3000, 50, 50, 50],
    [2400, 600, 150, 30],
    [10, 100, 1000],
    [10, 100, 1000, 3000],
    [3000, 300, 30, 3, 1],
]


@pytest.mark.parametrize("merging", [True, False])
@pytest.mark.parametrize("rows", three_of(ROWS), ids=str)
def test_rocksdb_with_kafka_streams_options_rewrites_as_modelled(
    tmp_path: Path, rows: list[int], merging: bool
) -> None:
    runs = runs_of(tmp_path, [{b"key-%05d" % key: os.urandom(500) for key in range(count)} for count in rows])
    build_image(tmp_path / "image", KIND, runs, {CHANGELOG: 1}, merged={} if merging else as_they_are(runs))
    before = sst_files(tmp_path / "image")
    with RocksDBStore(tmp_path / "image", KIND) as store:  # automatic compaction, as Kafka Streams has it
        wait_until_rested(store)
        after = sst_files(tmp_path / "image")
    assert (before.items() <= after.items()) is (merging or not rewrites([run.file_bytes for run in runs]))


@pytest.mark.parametrize("level", ["no base", "first level", "last level"])
def test_runs_without_a_common_key_are_left_unmerged_or_not_as_rocksdb_has_it(tmp_path: Path, level: str) -> None:
    """Three times all keys, in four runs each."""
    contents: list[Rows] = [
        {b"key-%05d" % key: os.urandom(500) for key in range(part * 100, part * 100 + 100)}
        for _ in range(3)
        for part in range(4)
    ]
    runs = runs_of(tmp_path, contents)
    bases = None
    if level != "no base":
        with RocksDBStore(tmp_path / "base", KIND, create=True, settings=KEEP_FILES) as store:
            for key in range(0, 400, 3):
                store.put(b"key-%05d" % key, os.urandom(5000))
            store.commit({CHANGELOG: 6})
            if level == "last level":
                store.compact()
        remove_guard_record(tmp_path / "base")
        bases = ImageBases({None: ImageBase(tmp_path / "base")}, {CHANGELOG: 7})
        runs = [replace(run, start=run.start + 7, end=run.end + 7) for run in runs]
    build_image(tmp_path / "image", KIND, runs, {CHANGELOG: runs[-1].end - 1}, bases=bases)
    before = sst_files(tmp_path / "image")
    if bases is None:
        assert len(before) == len(runs) + 1, "nothing had to be merged"
    with RocksDBStore(tmp_path / "image", KIND) as store:
        wait_until_rested(store)
        assert before.items() <= sst_files(tmp_path / "image").items()


def as_they_are(runs: Sequence[RunFile]) -> dict[int | None, MergedDatabase]:
    """Says of runs that they were merged as far as they have to be."""
    return {None: MergedDatabase(tuple(runs), merged_digest(runs, [run.path for run in runs]))}


def sst_files(path: Path) -> dict[str, int]:
    return {file.name: file.stat().st_ino for file in path.glob("*.sst")}


def wait_until_rested(store: RocksDBStore) -> None:
    """A compaction is chosen just after the opening; two looks that agree, with none at work, and it is over."""
    deadline, same = time.monotonic() + 300, 0
    while same < 4:
        assert time.monotonic() < deadline
        running = store._data.property_value("rocksdb.num-running-compactions")
        same = same + 1 if running == "0" else 0
        time.sleep(0.1)
