"""Versioned stores built from records, compared with a port of ``RocksDBVersionedStore`` byte for byte."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rocksdict import Options, Rdict

from statecore.changelog.decoder import CHANGELOG_SCHEMA
from statecore.errors import Corrupted, Invalid
from statecore.filesystem import file_sha256
from statecore.formats.segments import Segmentation
from statecore.formats.topic_partition import TopicPartition
from statecore.images.model import Run, RunFile
from statecore.images.versions.build import VersionRunBuilder, build_version_runs
from tests.harness.raising import raises
from tests.harness.reference_digest import digest_of
from tests.unit.images.versions.oracle import VersionedStore

CHANGELOG = TopicPartition("app-store-changelog", 0)
BIG = 1 << 24

Rows = list[tuple[bytes, bytes]]
Put = tuple[bytes | None, bytes | None, int]
"""Key, value, timestamp."""


def batch(puts: Sequence[Put], first_offset: int = 0) -> pa.RecordBatch:
    return pa.record_batch(
        [
            pa.array([key for key, _, _ in puts], pa.binary()),
            pa.array([value for _, value, _ in puts], pa.binary()),
            pa.array(range(first_offset, first_offset + len(puts)), pa.int64()),
            pa.array([timestamp for _, _, timestamp in puts], pa.int64()),
        ],
        schema=CHANGELOG_SCHEMA,
    )


def sorted_runs(path: Path, puts: Sequence[Put], rows: int = 100, budget: int = BIG) -> tuple[int, list[Run]]:
    """The runs of one range, with its stream time."""
    path.mkdir(parents=True)
    builder = VersionRunBuilder(path, memory_budget=budget, changelog=CHANGELOG)
    for at in range(0, len(puts), rows):
        builder.add(batch(puts[at : at + rows], at))
    runs = builder.finish()
    assert builder.statistics.records == len(puts)
    assert builder.statistics.null_keys == sum(key is None for key, _, _ in puts)
    assert sum(run.rows for run in runs) == sum(key is not None for key, _, _ in puts)
    assert sum(run.deletes for run in runs) == sum(key is not None and value is None for key, value, _ in puts)
    return builder.statistics.stream_time, runs


def replayed(puts: Sequence[Put], retention: int, interval: int) -> VersionedStore:
    store = VersionedStore(retention, interval)
    for key, value, timestamp in puts:
        if key is not None:
            store.put(key, value, timestamp)
    return store


def rows_of(path: Path, runs: Sequence[Run]) -> Rows:
    """The rows of a database of these runs."""
    database = Rdict(str(path), Options(raw_mode=True))
    try:
        if runs:
            database.ingest_external_file([str(run.path) for run in runs])
        return list(database.items())
    finally:
        database.close()


def assert_like_live(
    path: Path,
    ranges: Sequence[Sequence[Put]],
    retention: int,
    interval: int,
    *,
    rows: int = 100,
    budget: int = BIG,
    build_budget: int = BIG,
    slice_bytes: int = BIG,
) -> list[Run]:
    of_ranges = [sorted_runs(path / f"range-{number}", puts, rows, budget) for number, puts in enumerate(ranges)]
    (path / "rows").mkdir()
    of = Segmentation(retention, interval)
    runs = build_version_runs(path / "rows", of_ranges, of, build_budget, slice_bytes=slice_bytes)
    store = replayed([put for puts in ranges for put in puts], retention, interval)
    rows_found = rows_of(path / "image", runs)
    assert rows_found == sorted(store.rows().items())
    assert len(rows_found) == sum(run.rows for run in runs)
    assert sum(len(key) + len(value) for key, value in rows_found) == sum(run.bytes for run in runs)
    return runs


KEYS = st.one_of(st.none(), st.sampled_from([b"", b"a", b"a\0", b"key-of-more-than-16-bytes", b"b"]))
VALUES = st.one_of(st.none(), st.just(b""), st.binary(max_size=12))
# Few timestamps close to each other make versions meet; steps of the stream time make segments expire.
TIMES = st.one_of(st.integers(0, 40), st.integers(0, 400), st.sampled_from([0, 99, 100, 101, 5_000]))
PUTS = st.lists(st.tuples(KEYS, VALUES, TIMES), max_size=60)


@settings(max_examples=200, deadline=None)
@given(
    puts=PUTS,
    cuts=st.lists(st.integers(0, 60), max_size=3),
    rows=st.integers(1, 30),
    budget=st.sampled_from([1, 60_000, BIG]),
    build_budget=st.sampled_from([1, 6_000, BIG]),
    retention=st.sampled_from([0, 1, 20, 100, 1_000]),
    interval=st.sampled_from([1, 7, 20, 100]),
)
def test_any_records_in_any_ranges_under_any_budget_give_the_rows_that_kafka_streams_holds(
    tmp_path_factory: pytest.TempPathFactory,
    puts: list[Put],
    cuts: list[int],
    rows: int,
    budget: int,
    build_budget: int,
    retention: int,
    interval: int,
) -> None:
    borders = [0, *sorted(cuts), len(puts)]
    ranges = [puts[low:high] for low, high in pairwise(borders)]
    assert_like_live(
        tmp_path_factory.mktemp("versions"),
        ranges,
        retention,
        interval,
        rows=rows,
        budget=budget,
        build_budget=build_budget,
        slice_bytes=build_budget,
    )


def walk(count: int, keys: int, *, seed: int = 0, step: int = 3, late: int = 60) -> list[Put]:
    """Records whose time goes forward, many of them late."""
    chance, clock = random.Random(seed), 1000.0
    puts: list[Put] = []
    for number in range(count):
        clock += chance.random() * step
        value = None if chance.random() < 0.2 else b"%d" % number
        puts.append((b"key-%d" % chance.randrange(keys), value, int(clock - chance.random() * late)))
    return puts


def test_there_is_one_file_of_each_live_segment_and_one_of_the_latest_values(tmp_path: Path) -> None:
    puts = walk(4000, 50)
    runs = assert_like_live(tmp_path, [puts], 400, 100)
    last = max(timestamp for *_, timestamp in puts) // 100
    assert [Path(run.path).name for run in runs] == [
        *(f"segment-{number}.sst" for number in range(last - 4, last + 1)),
        "latest.sst",
    ]
    ends = [(bytes.fromhex(run.min_key), bytes.fromhex(run.max_key)) for run in runs]
    assert all(left[1] < right[0] for left, right in pairwise(ends))
    for number, run in enumerate(runs):
        rows = rows_of(tmp_path / f"run-{number}", [run])
        assert (rows[0][0], rows[-1][0]) == ends[number]
        assert (run.rows, run.deletes, run.digest) == (len(rows), 0, digest_of(rows))
        assert (run.file_bytes, run.sha256) == (Path(run.path).stat().st_size, file_sha256(Path(run.path)))


@pytest.mark.parametrize("budget", [1, 20_000])
def test_rows_that_do_not_fit_into_memory_are_written_slice_by_slice(tmp_path: Path, budget: int) -> None:
    runs = assert_like_live(tmp_path, [walk(6000, 900)], 400, 100, build_budget=budget)
    assert len(runs) == 6


def test_a_key_with_more_versions_than_fit_is_still_one_row_of_each_segment(tmp_path: Path) -> None:
    puts = [*walk(5000, 1, late=5), (b"key-0", b"latest", 50_000)]
    runs = assert_like_live(tmp_path, [puts], 100_000, 100_000, build_budget=1)
    assert [run.rows for run in runs] == [1, 1]


def test_versions_that_expire_while_a_key_is_replayed_make_room_for_others(tmp_path: Path) -> None:
    # Far more versions than the replay starts with; most are gone before the next come.
    assert_like_live(tmp_path, [walk(6000, 1, step=5, late=30)], 100, 10)


def test_a_store_with_more_live_segments_than_open_files_has_several_in_a_file(tmp_path: Path) -> None:
    assert len(assert_like_live(tmp_path / "one", [walk(3000, 40)], 4000, 7)) <= 65
    # Several slices of keys: the files of one slice may lie between those of another.
    assert len(assert_like_live(tmp_path / "slices", [walk(500, 40)], 4000, 7, slice_bytes=1)) > 65


def files_of(path: Path, puts: list[Put], interval: int, budget: int, slice_bytes: int = BIG) -> dict[str, str]:
    """The hashes of the files that are made of some records within a memory budget."""
    of_range = sorted_runs(path / "records", puts, budget=budget)
    of, rows = Segmentation(4000, interval), path / "rows"
    rows.mkdir()
    runs = build_version_runs(rows, [of_range], of, budget, slice_bytes=slice_bytes)
    return {run.path.name: run.sha256 for run in runs}


def test_the_same_records_give_the_same_files_under_any_memory_budget(tmp_path: Path) -> None:
    puts = walk(12_000, 3000)
    files = files_of(tmp_path / "much", puts, 1000, 512 << 20)
    assert {"latest.sst"} < files.keys()
    for budget in (200_000, 2_000_000):
        assert files_of(tmp_path / str(budget), puts, 1000, budget) == files


def test_the_same_records_give_the_same_slices_under_any_memory_budget(tmp_path: Path) -> None:
    puts = walk(3000, 400)
    files = files_of(tmp_path / "much", puts, 7, 512 << 20, 50_000)
    assert len(files) > 65
    assert files_of(tmp_path / "little", puts, 7, 60_000, 50_000) == files


def test_stream_time_continues_from_range_to_range(tmp_path: Path) -> None:
    late: list[Put] = [(b"a", b"late", 100), (b"a", b"new", 350)]
    assert_like_live(tmp_path / "in-time", [[(b"b", b"", 200)], late], 100, 10)
    assert_like_live(tmp_path / "late", [[(b"b", b"", 201)], late], 100, 10)
    # A range of which no run is left, and one that has not got that far, count with their stream time.
    of_late = sorted_runs(tmp_path / "runs", late)
    for stream_time, rows in ((200, 2), (201, 1), (1000, 0)):
        path = tmp_path / f"after-{stream_time}"
        path.mkdir()
        runs = build_version_runs(path, [(stream_time, []), (10, []), of_late], Segmentation(100, 10))
        assert len(rows_of(path / "image", runs)) == rows


def test_records_without_a_key_are_skipped_and_so_is_their_time(tmp_path: Path) -> None:
    puts: list[Put] = [(b"a", b"1", 100), (None, b"x", 9_000), (b"a", b"2", 90), (None, None, 0)]
    assert_like_live(tmp_path, [puts], 50, 10)
    assert sorted_runs(tmp_path / "again", puts)[0] == 100
    assert sorted_runs(tmp_path / "none", puts[1:2]) == (-1, [])


def test_nothing_makes_no_rows(tmp_path: Path) -> None:
    assert build_version_runs(tmp_path, [], Segmentation(100, 10)) == []
    assert build_version_runs(tmp_path, [(-1, []), (50, [])], Segmentation(100, 10)) == []


def test_keys_and_values_of_a_megabyte_are_rows_like_others(tmp_path: Path) -> None:
    key, value = b"k" * (1 << 20), b"v" * (3 << 20)
    puts: list[Put] = [(key, value, 10), (key + b"x", b"1", 11), (key, b"2", 12), (key, value, 11), (b"a", None, 13)]
    assert_like_live(tmp_path, [puts], 100, 10, rows=2, budget=1, build_budget=1)


@pytest.mark.parametrize("length", [231, 232, 233])
def test_keys_around_the_longest_that_is_written_column_by_column(tmp_path: Path, length: int) -> None:
    key = b"k" * length
    assert_like_live(tmp_path, [[(key, b"1", 10), (key, b"2", 20), (b"a", b"3", 30)]], 100, 10)


def test_a_budget_cuts_runs_and_bounds_what_is_held(tmp_path: Path) -> None:
    tmp_path.joinpath("runs").mkdir()
    builder = VersionRunBuilder(tmp_path / "runs", memory_budget=400_000)
    puts: list[Put] = [(b"key-%d" % (number % 700), b"x" * 100, number) for number in range(20_000)]
    for at in range(0, len(puts), 200):
        builder.add(batch(puts[at : at + 200], at))
    runs = builder.finish()
    assert len(runs) > 5
    assert max(run.file_bytes for run in runs) < 460_000


def test_a_slice_of_a_batch_is_read_from_its_start(tmp_path: Path) -> None:
    puts: list[Put] = [(b"a", b"0", 9_000), (None, b"1", 5), (b"b", None, 10), (b"c", b"3", 11), (b"d", b"4", 9_000)]
    builder = VersionRunBuilder(tmp_path)
    builder.add(batch(puts).slice(1, 3))
    runs = build_version_runs(tmp_path, [(builder.statistics.stream_time, builder.finish())], Segmentation(100, 10))
    assert rows_of(tmp_path / "image", runs) == sorted(replayed(puts[1:4], 100, 10).rows().items())


def test_a_negative_timestamp_is_refused_with_its_offset(tmp_path: Path) -> None:
    builder = VersionRunBuilder(tmp_path, changelog=CHANGELOG)
    builder.add(batch([(b"a", b"1", 5)], 40))
    with raises(
        Invalid, "record-kind-mismatch", topic=CHANGELOG.topic, partition=0, offset=42, kind="versioned-key-value"
    ):
        builder.add(batch([(b"a", b"1", 5), (b"b", b"2", -1)], 41))


def test_a_run_that_is_not_what_it_was_is_refused(tmp_path: Path) -> None:
    stream_time, (run,) = sorted_runs(tmp_path / "runs", walk(100, 5))
    path, whole = Path(run.path), Path(run.path).read_bytes()
    for damaged, why in (
        (whole[:-1], f"has {len(whole) - 1:,} bytes instead of {len(whole):,}"),
        (whole[:300] + bytes([whole[300] ^ 1]) + whole[301:], "SHA-256 differs"),
    ):
        path.write_bytes(damaged)
        with pytest.raises(Corrupted, match=why):
            build_version_runs(tmp_path, [(stream_time, [run])], Segmentation(100, 10))
    path.unlink()
    with pytest.raises(Corrupted, match="is missing"):
        build_version_runs(tmp_path, [(stream_time, [run])], Segmentation(100, 10))


def test_another_file_than_one_of_sorted_records_is_refused(tmp_path: Path) -> None:
    stream_time, (run,) = sorted_runs(tmp_path / "runs", walk(100, 5))
    assert isinstance(run, RunFile)
    run.path.write_bytes(b"SCVERS02" + run.path.read_bytes()[8:])
    other = replace(run, sha256=file_sha256(run.path))
    with raises(Corrupted, "run-damaged", path=str(run.path)):
        build_version_runs(tmp_path, [(stream_time, [other])], Segmentation(100, 10))


def test_a_directory_that_cannot_be_written_is_an_error_of_its_own(tmp_path: Path) -> None:
    builder = VersionRunBuilder(tmp_path / "absent")
    builder.add(batch([(b"a", b"1", 5)]))
    with pytest.raises(Invalid, match="cannot be written"):
        builder.finish()
    of_range = sorted_runs(tmp_path / "runs", [(b"a", b"1", 5)])
    with pytest.raises(Invalid, match="cannot be written"):
        build_version_runs(tmp_path / "absent", [of_range], Segmentation(100, 10))
