"""A database worked on slice by slice, compared with a dict and with what one worker makes of all of it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statecore.errors import Corrupted, Invalid
from statecore.formats.kinds import StoreKind
from statecore.formats.topic_partition import TopicPartition
from statecore.images.image import Image, build_image
from statecore.images.key_range_merge import join_slices, key_ranges, merge_slice
from statecore.images.mapped_runs import open_table
from statecore.images.merge_reader import LIMITS, MergeLimits
from statecore.images.model import MergedDatabase, Run, RunFile, RunFormat
from statecore.images.universal_compaction import rewrites, runs_to_merge, sorted_runs
from statecore.stores.rocksdb.store import RocksDBStore
from tests.harness.verify_image import verify_image
from tests.unit.images.sst_files import Rows
from tests.unit.images.test_merge_writer import CONTENTS, runs_of
from tests.unit.images.test_runs_digest import of_dict
from tests.unit.images.test_universal_compaction import sst_files, wait_until_rested

CHANGELOG = TopicPartition("app-store-changelog", 0)
KIND = StoreKind.KEY_VALUE


def many_blocks(count: int, rows: int = 3000, seed: int = 1) -> list[Rows]:
    source = random.Random(seed)
    contents: list[Rows] = []
    for _ in range(count):
        keys = {b"key-%07d" % source.randrange(2 * rows) for _ in range(rows)}
        contents.append(
            {key: source.choice([None, *[source.randbytes(source.randrange(300))] * 4]) for key in sorted(keys)}
        )
    return contents


def sliced(path: Path, runs: Sequence[RunFile], parts: int, limits: MergeLimits = LIMITS) -> MergedDatabase:
    """All slices of a database, each worked on alone."""
    files: dict[str, RunFile] = {}
    found = []
    for part in range(parts):
        (path / str(part)).mkdir(parents=True)
        content, made = merge_slice(path / str(part), runs, part, parts, limits=limits)
        assert [one for one in content.made if one is not None] == [file.run for file in made]
        files |= {file.sha256: file for file in made}
        found.append(content)
    return join_slices(runs, found, lambda run: files[run.sha256])


def image_of(path: Path, runs: Sequence[RunFile], merged: MergedDatabase | None) -> Image:
    return build_image(path, KIND, runs, {CHANGELOG: 1}, merged={} if merged is None else {None: merged})


@settings(max_examples=30, deadline=None)
@given(contents=CONTENTS, parts=st.integers(1, 7), room=st.sampled_from([8, 256]))
def test_slices_together_are_what_a_dict_says(
    tmp_path_factory: pytest.TempPathFactory, contents: list[Rows], parts: int, room: int
) -> None:
    path = tmp_path_factory.mktemp("runs")
    runs = runs_of(path, contents)
    merged = sliced(path, runs, parts, MergeLimits(key_bytes=room))
    assert merged.content == of_dict(contents)
    image = image_of(path / "image", runs, merged)
    assert image.content == of_dict(contents)
    assert verify_image(path / "image", KIND, [CHANGELOG]).content == of_dict(contents)


@pytest.mark.parametrize("count", [2, 5])
@pytest.mark.parametrize("parts", [1, 5, 40])
def test_however_many_slices_there_are_rows_identity_and_digest_are_the_same(
    tmp_path: Path, count: int, parts: int
) -> None:
    contents = many_blocks(count)
    runs = runs_of(tmp_path, contents)
    merged = sliced(tmp_path / "slices", runs, parts)
    image = image_of(tmp_path / "image", runs, merged)
    alone = image_of(tmp_path / "alone", runs, None)
    assert image.content == alone.content == of_dict(contents)
    assert image.identity == alone.identity
    assert verify_image(tmp_path / "image", KIND, [CHANGELOG]).content == alone.content
    assert len(sorted_runs(merged.files)) <= 3


def test_each_slice_has_its_share_of_the_bytes_and_all_keys_lie_in_one(tmp_path: Path) -> None:
    contents = many_blocks(3, rows=20_000, seed=3)
    runs = runs_of(tmp_path, contents)
    ranges = key_ranges(runs, [open_table(run, run.path) for run in runs], 8)
    assert len(ranges) == 8
    assert (ranges[0].low, ranges[-1].high) == (b"", None)
    assert all(one.high == following.low for one, following in pairwise(ranges))
    keys = [key for rows in contents for key in rows]
    shares = [sum(low <= key and (high is None or key < high) for key in keys) for low, high in ranges]
    assert sum(shares) == len(keys)
    assert max(shares) < 1.2 * min(shares)


def test_the_files_of_one_merge_are_one_sorted_run_to_rocksdb(tmp_path: Path) -> None:
    """In the last level and upon another run; what Kafka Streams opens rewrites none of them."""
    for name, sizes in {"oldest": [300] * 5, "upon": [3000, 60, 50, 40, 30]}.items():
        contents: list[Rows] = [
            {b"key-%05d" % key: random.Random(key).randbytes(500) for key in range(0, 3000, 3000 // count)}
            for count in sizes
        ]
        (tmp_path / name).mkdir()
        runs = runs_of(tmp_path / name, contents)
        merged = sliced(tmp_path / name / "slices", runs, 6)
        assert len(merged.files) > len(runs)
        layers = sorted_runs(merged.files)
        assert len(layers) == 3
        assert not rewrites([sum(run.file_bytes for run in merged.files[layer]) for layer in layers])
        image_of(tmp_path / name / "image", runs, merged)
        before = sst_files(tmp_path / name / "image")
        with RocksDBStore(tmp_path / name / "image", KIND) as store:
            wait_until_rested(store)
            assert before.items() <= sst_files(tmp_path / name / "image").items()


def test_the_same_runs_give_the_same_files(tmp_path: Path) -> None:
    runs = runs_of(tmp_path, many_blocks(5))
    one, other = sliced(tmp_path / "one", runs, 4), sliced(tmp_path / "other", runs, 4)
    assert [file.run for file in one.files] == [file.run for file in other.files]


@pytest.mark.parametrize("sizes", [[1, 1, 1, 1], [30, 1, 1, 1]])
def test_deletes_are_kept_only_above_an_older_run(tmp_path: Path, sizes: list[int]) -> None:
    contents: list[Rows] = [
        {b"key-%05d" % key: bytes(200) if (key // 7 + number) % 5 else None for key in range(0, 12000, 30 // size)}
        for number, size in enumerate(sizes)
    ]
    runs = runs_of(tmp_path, contents)
    (start,) = (group.start for group in runs_to_merge(runs))
    assert (start > 0) is (sizes[0] > 1)
    merged = sliced(tmp_path / "slices", runs, 3)
    made = [file for file in merged.files if file not in runs]
    assert len(made) == 3
    assert all((file.deletes > 0) is (start > 0) for file in made)
    assert merged.content == of_dict(contents)


@pytest.mark.parametrize("size", [0, 8, 9, 5000])
def test_a_range_of_keys_without_a_row_is_a_slice_without_a_file(tmp_path: Path, size: int) -> None:
    deleted: Rows = dict.fromkeys([b"key-%03d" % n + b"x" * size for n in range(400)])
    contents: list[Rows] = [dict.fromkeys(deleted, b"v" * 200), deleted, deleted, {b"zzz": b"1"}, deleted]
    runs = runs_of(tmp_path, contents)
    merged = sliced(tmp_path / "slices", runs, 4)
    assert merged.content == of_dict(contents) == of_dict([{b"zzz": b"1"}])


def test_a_run_damaged_in_a_block_or_beside_one_is_found_by_one_slice(tmp_path: Path) -> None:
    contents = many_blocks(4)
    for at in (100, 50_000, -20):
        directory = tmp_path / str(at)
        directory.mkdir()
        runs = runs_of(directory, contents)
        data = bytearray(runs[0].path.read_bytes())
        data[at] ^= 1
        runs[0].path.write_bytes(data)
        with pytest.raises(Corrupted):
            sliced(directory / "slices", runs, 3)


def test_slices_that_do_not_have_all_entries_once_are_no_database(tmp_path: Path) -> None:
    runs = runs_of(tmp_path, many_blocks(5))
    found, files = [], {}
    for part in range(3):
        (tmp_path / f"s{part}").mkdir()
        content, made = merge_slice(tmp_path / f"s{part}", runs, part, 3)
        files |= {file.sha256: file for file in made}
        found.append(content)

    def at_hand(run: Run) -> RunFile:
        return files[run.sha256]

    for wrong in (found[:2], [*found, found[0]]):
        with pytest.raises(Corrupted, match="entries instead of"):
            join_slices(runs, wrong, at_hand)
    with pytest.raises(Corrupted, match="common keys"):
        join_slices(runs, found[::-1], at_hand)


def test_records_of_a_versioned_store_are_refused(tmp_path: Path) -> None:
    [run] = runs_of(tmp_path, [{b"a": b"1"}])
    with pytest.raises(Invalid, match="are not rows"):
        merge_slice(tmp_path, [replace(run, format=RunFormat.RECORDS)], 0, 1)


def test_keys_of_any_length_are_divided(tmp_path: Path) -> None:
    source = random.Random(5)
    stem = source.randbytes(1 << 16)
    contents: list[Rows] = [
        {stem[: source.randrange(1 << 16)] + source.randbytes(2): source.choice([None, b"v"]) for _ in range(30)}
        for _ in range(5)
    ]
    merged = sliced(tmp_path / "slices", runs_of(tmp_path, contents), 6)
    assert merged.content == of_dict(contents)
