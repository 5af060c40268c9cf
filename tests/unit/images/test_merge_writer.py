"""Runs merged into one run, compared with a dict, and with a database that RocksDB made of them."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rocksdict import Options, Rdict

from statecore.errors import Corrupted, Invalid
from statecore.filesystem import file_sha256
from statecore.formats.kinds import StoreKind
from statecore.formats.topic_partition import TopicPartition
from statecore.images.image import build_image
from statecore.images.merge_reader import MergeLimits
from statecore.images.merge_writer import merge_runs
from statecore.images.model import RunFile, RunFormat, RunOrigin
from tests.harness.raising import raises
from tests.harness.reference_digest import digest_of
from tests.unit.images.sst_files import Rows, written
from tests.unit.images.test_runs_digest import KEYS, VALUES

CHANGELOG = TopicPartition("app-store-changelog", 0)
CONTENTS = st.lists(st.dictionaries(KEYS, VALUES, min_size=1, max_size=60), min_size=1, max_size=6)


def runs_of(path: Path, contents: Sequence[Rows]) -> list[RunFile]:
    """A run of each, of a hundred offsets."""
    return [
        replace(
            written(path / f"{number}.sst", rows, 7), start=100 * number, end=100 * number + 100, stream_time=number
        )
        for number, rows in enumerate(contents)
    ]


def last_writes(contents: Sequence[Rows]) -> Rows:
    last: Rows = {}
    for rows in contents:
        last |= rows
    return last


def entries(run: RunFile, keys: Iterable[bytes]) -> Rows:
    """What is in a file, deletes too: what RocksDB shows of keys that had another value below it."""
    found: Rows = {}
    database = Rdict(str(run.path.with_suffix(".db")), Options(raw_mode=True))
    try:
        for key in keys:
            database[key] = b"below"
        database.flush()
        database.ingest_external_file([str(run.path)])
        for key in keys:
            value = database.get(key)
            if value != b"below":
                found[key] = value
    finally:
        database.close()
    return found


@settings(max_examples=60, deadline=None)
@given(
    contents=CONTENTS, keep=st.booleans(), rows=st.sampled_from([1, 3, 4096]), size=st.sampled_from([1, 300, 1 << 20])
)
def test_the_merged_run_has_the_last_write_of_each_key(
    tmp_path_factory: pytest.TempPathFactory, contents: list[Rows], keep: bool, rows: int, size: int
) -> None:
    path = tmp_path_factory.mktemp("runs")
    last = last_writes(contents)
    expected = last if keep else {key: value for key, value in last.items() if value is not None}
    limits = MergeLimits(rows=rows, bytes_each=size)
    made = merge_runs(path / "merged.sst", runs_of(path, contents), keep_tombstones=keep, limits=limits)
    if not expected:
        assert made is None
        return
    assert made is not None
    live = {key: value for key, value in expected.items() if value is not None}
    assert (made.rows, made.deletes) == (len(live), len(expected) - len(live))
    assert made.digest == digest_of(live.items())
    assert made.sha256 == file_sha256(made.path)
    assert (bytes.fromhex(made.min_key), bytes.fromhex(made.max_key)) == (min(expected), max(expected))
    assert (made.start, made.end, made.stream_time) == (0, 100 * len(contents), len(contents) - 1)
    assert entries(made, last) == expected


def test_the_same_runs_give_the_same_bytes_and_an_image_of_them_the_same_rows(tmp_path: Path) -> None:
    source = random.Random(1)
    contents: list[Rows] = []
    for _ in range(4):
        keys = {b"key-%07d" % source.randrange(20_000) for _ in range(9000)}
        contents.append({key: source.choice([None, source.randbytes(source.randrange(300))]) for key in keys})
    runs = runs_of(tmp_path, contents)
    once = merge_runs(tmp_path / "once", runs, keep_tombstones=True)
    again = merge_runs(tmp_path / "again", runs, keep_tombstones=True)
    assert once is not None
    assert again is not None
    assert once.sha256 == again.sha256
    halves = [merge_runs(tmp_path / f"half-{at}", runs[at : at + 2], keep_tombstones=at > 0) for at in (0, 2)]
    pair = [half for half in halves if half is not None]
    assert [(half.start, half.end) for half in pair] == [(0, 200), (200, 400)]
    whole = merge_runs(tmp_path / "whole", pair, keep_tombstones=False)
    assert whole is not None
    images = [
        build_image(tmp_path / f"image-{number}", StoreKind.KEY_VALUE, some, {CHANGELOG: 399})
        for number, some in enumerate([runs, pair, [whole]])
    ]
    assert len({image.digest for image in images}) == 1


def test_a_value_larger_than_a_buffer_is_copied_alone(tmp_path: Path) -> None:
    large = random.Random(1).randbytes(5 << 20)
    contents: list[Rows] = [{b"a": b"1", b"b": large, b"c": b"2"}, {b"c": None, b"d": large}]
    made = merge_runs(tmp_path / "merged", runs_of(tmp_path, contents), keep_tombstones=False)
    assert made is not None
    assert made.digest == digest_of([(b"a", b"1"), (b"b", large), (b"d", large)])


def test_runs_that_are_not_in_order_or_have_offsets_in_common_are_refused(tmp_path: Path) -> None:
    first, second, third = runs_of(tmp_path, [{b"a": b"1"}, {b"b": b"2"}, {b"c": b"3"}])
    longer = replace(first, end=second.start + 1)
    for wrong in ([third, first], [second, first], [first, first], [longer, second], []):
        with pytest.raises(Invalid):
            merge_runs(tmp_path / "merged", wrong, keep_tombstones=True)
    with raises(Invalid, "run-mismatch"):
        merge_runs(tmp_path / "merged", [first, replace(second, segment=7)], keep_tombstones=True)
    for other in (replace(second, store="other"), replace(second, topic="other", partition=0)):
        with raises(Invalid, "run-mismatch"):
            merge_runs(tmp_path / "merged", [first, other], keep_tombstones=True)
    assert not (tmp_path / "merged").exists()


def test_a_merged_run_says_what_its_rows_are_of(tmp_path: Path) -> None:
    origin = RunOrigin("store", StoreKind.KEY_VALUE, TopicPartition("changelog", 3))
    runs = [origin.of(run) for run in runs_of(tmp_path, [{b"a": b"1"}, {b"b": b"2"}])]
    made = merge_runs(tmp_path / "merged", runs, keep_tombstones=True)
    assert made is not None
    assert (made.origin, made.topic, made.partition) == (origin, "changelog", 3)


def test_keys_of_any_length_are_merged(tmp_path: Path) -> None:
    source = random.Random(7)
    stem = source.randbytes(3 << 20)
    lengths = [0, 1, 240, 241, 248, 249, 250, 251, 1023, 1024, 1025, 5000, 1 << 20, (1 << 20) + 1, 3 << 20]
    contents: list[Rows] = [
        {stem[:length] + more: source.randbytes(9) for length in source.sample(lengths, 9) for more in (b"", b"x")}
        for _ in range(4)
    ]
    contents.append(dict.fromkeys(list(last_writes(contents))[::3]))
    runs = runs_of(tmp_path, contents)
    made = merge_runs(tmp_path / "merged.sst", runs, keep_tombstones=True)
    assert made is not None
    assert made.format is RunFormat.SST
    last = last_writes(contents)
    assert entries(made, last) == last
    again = merge_runs(tmp_path / "again.sst", runs, keep_tombstones=True)
    assert again is not None
    assert again.sha256 == made.sha256
    assert written(tmp_path / "one.sst", last).digest == made.digest


def test_how_much_room_keys_have_does_not_change_the_file(tmp_path: Path) -> None:
    """A run that stops for want of room goes on in the same chunk, with rows, deletes and what they hide in step."""
    source = random.Random(9)
    contents: list[Rows] = [
        {source.randbytes(2) * source.randrange(200): source.choice([None, b"v"]) for _ in range(300)} for _ in range(3)
    ]
    runs = runs_of(tmp_path, contents)
    found = set()
    for room in (8, 15, 16, 100, 1 << 16):
        limits = MergeLimits(key_bytes=room)
        made = [
            merge_runs(tmp_path / f"{room}-{kept}.sst", runs, keep_tombstones=kept, limits=limits)
            for kept in (False, True)
        ]
        found.add(tuple(one and one.sha256 for one in made))
    assert len(found) == 1


def test_records_of_a_versioned_store_are_refused(tmp_path: Path) -> None:
    [run] = runs_of(tmp_path, [{b"a": b"1"}])
    with raises(Invalid, "kind-unsupported"):
        merge_runs(tmp_path / "merged", [replace(run, format=RunFormat.RECORDS)], keep_tombstones=True)


def test_offsets_that_left_nothing_in_a_database_are_no_gap(tmp_path: Path) -> None:
    first, _, third = runs_of(tmp_path, [{b"a": b"1"}, {b"b": b"2"}, {b"c": b"3"}])
    made = merge_runs(tmp_path / "merged", [first, third], keep_tombstones=True)
    assert made is not None
    assert (made.start, made.end, made.rows) == (0, 300, 2)


@pytest.mark.parametrize(("rows", "at"), [(500, 1000), (60_000, 3_000_000)])
def test_a_damaged_run_is_corrupted_and_nothing_of_the_merge_is_left(tmp_path: Path, rows: int, at: int) -> None:
    run, other = runs_of(tmp_path, [{b"key-%05d" % n: bytes(50) for n in range(rows)}, {b"key-00100": None}])
    data = bytearray(run.path.read_bytes())
    data[at] ^= 1
    run.path.write_bytes(data)
    with pytest.raises(Corrupted, match="checksum"):
        merge_runs(tmp_path / "merged", [run, other], keep_tombstones=True)
    assert not (tmp_path / "merged").exists()
