"""Digests of several runs from their files, compared with a dict, and with RocksDB's scan."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statecore.formats.kinds import StoreKind
from statecore.formats.segments import Segmentation
from statecore.formats.topic_partition import TopicPartition
from statecore.images.digest import EMPTY, StoreDigest, digest_rows
from statecore.images.image import SegmentedRuns, build_image
from statecore.images.merge_reader import MergeLimits
from statecore.images.model import BaseDatabases, Run, RunFormat
from statecore.images.runs_digest import known_digest, merged_digest, overlapping
from statecore.images.universal_compaction import sorted_runs
from statecore.stores.rocksdb.store import RocksDBStore
from tests.harness.case_selection import one_of
from tests.harness.reference_digest import digest_of
from tests.harness.verify_image import verify_image
from tests.unit.images.changelog import RECORDS, CuttingRunBuilder, Record, batch, batches, expected_rows
from tests.unit.images.sst_files import Rows, files_of, written

CHANGELOG = TopicPartition("app-store-changelog", 0)

# Few enough that runs share keys, some the beginnings of others, some longer than a word.
KEYS = st.one_of(
    st.binary(max_size=2),
    st.builds(
        lambda head, rest: b"common-" * head + rest, st.integers(0, 5), st.sampled_from([b"", b"a", b"ab", b"\0"])
    ),
    st.builds(lambda size: b"k" * size, st.sampled_from([7, 8, 9, 16, 239, 240, 241, 249, 250, 500, 900, 5000])),
)
VALUES = st.one_of(st.none(), st.just(b""), st.binary(max_size=40), st.sampled_from([4000, 9000]).map(bytes))


def of_dict(runs: list[Rows]) -> StoreDigest:
    last: Rows = {}
    for run in runs:
        last |= run
    live = {key: value for key, value in last.items() if value is not None}
    size = sum(len(key) + len(value) for key, value in live.items())
    return StoreDigest(len(live), size, digest_of(live.items()))


def scanned(path: Path, runs: list[Run]) -> StoreDigest:
    with RocksDBStore(path, StoreKind.KEY_VALUE, create=True) as store:
        store.ingest(files_of(runs))
        store.commit({CHANGELOG: 1})
        return digest_rows(store.scan_lists())


@settings(max_examples=60, deadline=None)
@given(
    contents=st.lists(st.dictionaries(KEYS, VALUES, min_size=1, max_size=60), max_size=6),
    at_once=st.sampled_from([1, 2, 7, 100]),
)
def test_several_runs_are_what_a_dict_and_a_scan_make_of_them(
    tmp_path_factory: pytest.TempPathFactory, contents: list[Rows], at_once: int
) -> None:
    path = tmp_path_factory.mktemp("runs")
    runs = [written(path / f"{number}.sst", rows, at_once) for number, rows in enumerate(contents)]
    found = merged_digest(runs, files_of(runs))
    assert found == of_dict(contents)
    assert found == scanned(path / "database", runs)


@pytest.mark.parametrize("count", [2, 3, 9])
@pytest.mark.parametrize("rows_at_once", [1, 1000, 1 << 20])
def test_runs_of_many_blocks_however_many_rows_are_read_at_once(tmp_path: Path, count: int, rows_at_once: int) -> None:
    limits = MergeLimits(entries=rows_at_once)
    source = random.Random(count)
    contents: list[Rows] = []
    for _ in range(count):
        keys = {b"key-%07d" % source.randrange(2000) + b"x" * source.randrange(3) for _ in range(1200)}
        contents.append({key: source.choice([None, source.randbytes(source.randrange(200))]) for key in keys})
    runs = [written(tmp_path / f"{number}.sst", rows) for number, rows in enumerate(contents)]
    assert min(run.file_bytes for run in runs) > 10 * 4096
    found = merged_digest(runs, files_of(runs), limits)
    assert found == of_dict(contents)
    other_order = merged_digest(runs[::-1], files_of(runs[::-1]), limits)
    assert other_order == of_dict(contents[::-1])
    assert found != other_order


def test_no_runs_and_runs_of_deletes_have_no_rows(tmp_path: Path) -> None:
    assert merged_digest([], []) == (0, 0, EMPTY)
    rows, deletes = (
        written(tmp_path / "0.sst", {b"a": b"1", b"b": b"2"}),
        written(tmp_path / "1.sst", {b"b": None, b"a": None}),
    )
    assert merged_digest([rows, deletes], files_of([rows, deletes])) == (0, 0, EMPTY)
    assert merged_digest([deletes, rows], files_of([deletes, rows])) == (2, 4, rows.digest)


def test_runs_that_share_no_range_of_keys_are_not_read(tmp_path: Path) -> None:
    contents: list[Rows] = [{b"m": b"1", b"p": None}, {b"a": b"2", b"c": b"3"}, {b"z": b""}]
    runs = [written(tmp_path / f"{number}.sst", rows) for number, rows in enumerate(contents)]
    for file in files_of(runs):
        file.unlink()
    assert merged_digest(runs, files_of(runs)) == of_dict(contents)


RANGES = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 12)), max_size=12)


@given(RANGES)
def test_groups_are_the_runs_that_are_linked_by_shared_ranges(ranges: list[tuple[int, int]]) -> None:
    runs = [
        Run("", RunFormat.SST, 1, 0, 1, 1, EMPTY, bytes([first]).hex(), bytes([first + size]).hex())
        for first, size in ranges
    ]
    taken = [
        {number for number, (first, size) in enumerate(ranges) if first <= key <= first + size} for key in range(60)
    ]
    expected: list[set[int]] = []
    for together in filter(None, taken):
        linked = [group for group in expected if group & together]
        expected = [group for group in expected if not group & together] + [together.union(*linked)]
    groups = overlapping(runs)
    assert sorted(groups) == sorted(sorted(group) for group in expected)
    assert (len(sorted_runs(runs)) <= 1) == all(len(group) == 1 for group in groups)


@pytest.mark.parametrize("rows_at_once", one_of([1, 1 << 20]))
def test_runs_whose_keys_grow_to_megabytes(tmp_path: Path, rows_at_once: int) -> None:
    source = random.Random(3)
    stem = source.randbytes(20 << 20)
    lengths = [*range(230, 270), 1000, 1020, 5000, 100_000, 1 << 20, (1 << 20) + 1, 20 << 20]
    keys = [stem[: length - 1] + bytes([last]) for length in lengths for last in (0, 255)]
    contents: list[Rows] = [
        {key: source.choice([None, b"%d" % number]) for key in source.sample(keys, 60)} for number in range(3)
    ]
    runs = [written(tmp_path / f"{number}.sst", rows, 9) for number, rows in enumerate(contents)]
    assert merged_digest(runs, files_of(runs), MergeLimits(entries=rows_at_once)) == of_dict(contents)
    image = build_image(tmp_path / "image", StoreKind.KEY_VALUE, runs, {CHANGELOG: 1})
    assert (image.rows, image.bytes, image.digest) == of_dict(contents)
    if rows_at_once > 1:
        found = verify_image(tmp_path / "image", StoreKind.KEY_VALUE, [CHANGELOG], identity=image.identity)
        assert found == image


def runs_of(path: Path, kind: StoreKind, records: list[Record], rows: int) -> list[Run]:
    path.mkdir(parents=True)
    builder = CuttingRunBuilder(kind, path, memory_budget=1, base=BaseDatabases.NONE)
    for part in batches(records, rows):
        builder.add(part)
    return builder.finish()


@pytest.mark.parametrize("kind", [StoreKind.KEY_VALUE, StoreKind.TIMESTAMPED_KEY_VALUE])
@pytest.mark.parametrize("rows", [3000, 1500, 700])
def test_an_image_says_what_its_verification_finds(tmp_path: Path, kind: StoreKind, rows: int) -> None:
    runs = runs_of(tmp_path / "runs", kind, RECORDS, rows)
    assert len(runs) > 1
    image = build_image(tmp_path / "image", kind, runs, {CHANGELOG: 1})
    assert verify_image(tmp_path / "image", kind, [CHANGELOG], identity=image.identity) == image
    assert image.digest == digest_of(expected_rows(kind, RECORDS).items())


def test_an_image_of_windows_says_what_its_verification_finds(tmp_path: Path) -> None:
    kind, segmentation = StoreKind.TIMESTAMPED_WINDOW, Segmentation(retention_ms=1000, interval_ms=500)
    (tmp_path / "runs").mkdir()
    builder = CuttingRunBuilder(
        kind,
        tmp_path / "runs",
        memory_budget=1,
        base=BaseDatabases.ALL,
        segmentation=segmentation,
    )
    for first in range(0, 3000, 500):
        writes: list[Record] = []
        for number in range(first, first + 500):
            key = b"k%02d" % (number % 31) + (number * 7 % 1900).to_bytes(8, "big") + bytes(4)
            writes.append((key, None if number % 11 == 0 else b"value-%d" % number))
        builder.add(batch(writes, first))
    runs = builder.finish()
    assert len(runs) > len({run.segment for run in runs}) > 1
    segmented = SegmentedRuns("w", segmentation, builder.statistics.stream_time)
    image = build_image(tmp_path / "image", kind, runs, {CHANGELOG: 1}, segmented=segmented)
    found = verify_image(tmp_path / "image", kind, [CHANGELOG])
    assert image.rows > 500
    assert replace(found, expired=image.expired, identity=image.identity) == image


def test_runs_tell_what_they_show_together_unless_two_of_them_overlap(tmp_path: Path) -> None:
    low = written(tmp_path / "low", {b"a": b"1", b"c": b"2"})
    high = written(tmp_path / "high", {b"d": b"3", b"f": None})
    assert known_digest([]) == StoreDigest(0, 0, EMPTY)
    assert known_digest([low, high]) == of_dict([{b"a": b"1", b"c": b"2"}, {b"d": b"3"}])
    assert known_digest([low, high, low]) is None
