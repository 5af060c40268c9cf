"""Images on a base: the base is linked unchanged, and only changed databases are built."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rocksdict import Rdict

from statecore.errors import Corrupted, Fenced, Invalid, NotFound, StatecoreError
from statecore.formats.kinds import StoreKind
from statecore.formats.topic_partition import TopicPartition
from statecore.images.image import SegmentedRuns, build_image
from statecore.images.linked_bases import ImageBase, ImageBases, checked_bases, link_base
from statecore.images.model import BaseDatabases, Image, RunFile, RunFormat, RunOrigin
from statecore.images.runs import RunBuilder
from statecore.stores.rocksdb.options import data_options, offsets_options
from statecore.stores.rocksdb.store import RocksDBStore
from statecore.stores.settings import KEEP_FILES
from tests.harness.raising import raises
from tests.harness.verify_image import verify_image
from tests.unit.images.changelog import RECORDS, CuttingRunBuilder, batches, expected_rows, stored_rows
from tests.unit.images.test_image import flip
from tests.unit.images.test_segmented_image import KIND as WINDOW
from tests.unit.images.test_segmented_image import SEGMENTATION, WRITES, Write, batch, window_key

KIND = StoreKind.TIMESTAMPED_KEY_VALUE
CHANGELOG = TopicPartition("app-store-changelog", 3)


def runs_of(path: Path, start: int, end: int, *, base: BaseDatabases, rows: int = 6000) -> list[RunFile]:
    path.mkdir(parents=True)
    builder = CuttingRunBuilder(KIND, path, memory_budget=1, base=base, start=start)
    for part in batches(RECORDS, rows):
        whole = part.filter(pc_between(part, start, end))
        if whole.num_rows:
            builder.add(whole)
    return builder.finish(end)


def pc_between(part: pa.RecordBatch, start: int, end: int) -> pa.Array:
    return pa.array([start <= offset < end for offset in part.column("offset").to_pylist()])


def on(path: Path, start: int, image: str | None = None) -> ImageBases:
    return ImageBases({None: ImageBase(path, image)}, {CHANGELOG: start})


def database_identity(path: Path, start: int) -> str:
    return checked_bases(on(path, start), KIND, [CHANGELOG])[None].identity


def base_until(path: Path, end: int, **options: int) -> Image:
    runs = runs_of(path.with_name(f"{path.name}-runs"), 0, end, base=BaseDatabases.NONE, **options)
    return build_image(path, KIND, runs, {CHANGELOG: end - 1})


def states(path: Path) -> dict[str, tuple[object, ...]]:
    """All that must not change of the files below a directory."""
    found: dict[str, tuple[object, ...]] = {}
    for file in sorted(path.rglob("*")):
        status = file.stat()
        content = file.read_bytes() if file.is_file() else b""
        found[str(file.relative_to(path))] = content, status.st_ino, status.st_mode, status.st_mtime_ns, status.st_uid
    return found


@pytest.mark.parametrize("rows", [6000, 400])
@pytest.mark.parametrize("mode", [0o640, 0o644])
def test_the_base_is_linked_and_stays_as_it_is_and_the_image_has_what_the_whole_changelog_leaves(
    tmp_path: Path, rows: int, mode: int
) -> None:
    base_until(tmp_path / "base", 4000)
    for file in (tmp_path / "base").iterdir():
        file.chmod(mode)  # Kafka Streams' files have the modes of its umask
    before = states(tmp_path / "base")
    runs = runs_of(tmp_path / "runs", 4000, 6000, base=BaseDatabases.ALL, rows=rows)
    image = build_image(tmp_path / "image", KIND, runs, {CHANGELOG: 5999}, bases=on(tmp_path / "base", 4000))
    assert states(tmp_path / "base") == before
    linked = {file.stat().st_ino for file in (tmp_path / "image").glob("*.sst")}
    assert {file.stat().st_ino for file in data_files(tmp_path / "base")} <= linked
    assert stored_rows(tmp_path / "image", KIND) == sorted(expected_rows(KIND, RECORDS).items())
    assert image.offsets == {str(CHANGELOG): 5999}
    assert image.content is None
    verified = verify_image(tmp_path / "image", KIND, [CHANGELOG], identity=image.identity)
    whole = base_until(tmp_path / "whole", 6000)
    assert verified.content == whole.content
    assert verified.identity == image.identity != whole.identity
    assert len(data_files(tmp_path / "image")) <= 3
    with RocksDBStore(tmp_path / "image", KIND, read_only=True, exactly_once=True) as store:
        assert store.committed_offsets() == {CHANGELOG: 5999}


def data_files(path: Path) -> list[Path]:
    """SST files with more than a few rows: not of the family of the offsets."""
    return [file for file in path.glob("*.sst") if file.stat().st_size > 3000]


def test_only_what_moved_is_read(tmp_path: Path) -> None:
    """A damaged block of the base is not found by an image upon it, and by its verification it is."""
    base_until(tmp_path / "base", 4000)
    runs = runs_of(tmp_path / "runs", 4000, 6000, base=BaseDatabases.ALL)
    largest = max(data_files(tmp_path / "base"), key=lambda file: file.stat().st_size)
    flip(largest, largest.stat().st_size // 2)
    build_image(tmp_path / "image", KIND, runs, {CHANGELOG: 5999}, bases=on(tmp_path / "base", 4000))
    with raises(Corrupted, "database-damaged"):
        verify_image(tmp_path / "image", KIND, [CHANGELOG])


def test_an_image_on_an_image_on_an_image(tmp_path: Path) -> None:
    base_until(tmp_path / "0", 1000)
    for number in range(1, 6):
        start, end = number * 1000, number * 1000 + 1000
        runs = runs_of(tmp_path / f"runs-{number}", start, end, base=BaseDatabases.ALL)
        build_image(
            tmp_path / str(number), KIND, runs, {CHANGELOG: end - 1}, bases=on(tmp_path / str(number - 1), start)
        )
    assert stored_rows(tmp_path / "5", KIND) == sorted(expected_rows(KIND, RECORDS).items())


def test_without_runs_the_base_gets_the_new_offset(tmp_path: Path) -> None:
    base_until(tmp_path / "base", 4000)
    build_image(tmp_path / "image", KIND, [], {CHANGELOG: 4711}, bases=on(tmp_path / "base", 4000))
    assert stored_rows(tmp_path / "image", KIND) == stored_rows(tmp_path / "base", KIND)
    with RocksDBStore(tmp_path / "image", KIND, read_only=True) as store:
        assert store.committed_offset(CHANGELOG) == 4711


def test_the_identity_is_of_what_an_image_was_made_of(tmp_path: Path) -> None:
    below = base_until(tmp_path / "base", 4000)
    runs = runs_of(tmp_path / "runs", 4000, 6000, base=BaseDatabases.ALL)
    made = 0

    def identity(runs: list[RunFile], offset: int = 5999, base: ImageBases | None = None) -> str:
        nonlocal made
        made += 1
        found = build_image(tmp_path / f"image-{made}", KIND, runs, {CHANGELOG: offset}, bases=base).identity
        assert found is not None
        return found

    there = on(tmp_path / "base", 4000)
    assert identity(runs, base=there) == identity(runs, base=there)
    different = {
        identity(runs),
        identity(runs, base=there),
        identity(runs, base=on(tmp_path / "base", 4000, below.identity)),
        identity(runs, offset=6000, base=there),
        identity([], base=there),
        identity([replace(run, end=run.end + 1) for run in runs], base=there),
        str(below.identity),
    }
    assert len(different) == 7


def test_the_identity_of_a_database_changes_when_it_is_written_to(tmp_path: Path) -> None:
    base_until(tmp_path / "base", 4000)
    once = database_identity(tmp_path / "base", 4000)
    shutil.copytree(tmp_path / "base", tmp_path / "copy")
    assert database_identity(tmp_path / "copy", 4000) == once
    found = {once}
    for path in (tmp_path / "base", tmp_path / "copy"):
        with RocksDBStore(path, KIND, settings=KEEP_FILES) as store:
            store.put(b"key-00001", b"12345678" + os.urandom(1))
            store.commit({CHANGELOG: 4000})
        found.add(database_identity(path, 4001))
    assert len(found) == 3
    base_until(tmp_path / "again", 4000)
    assert database_identity(tmp_path / "again", 4000) not in found


def refused(tmp_path: Path, kind: StoreKind = KIND, start: int = 4000) -> StatecoreError:
    before = states(tmp_path / "base")
    with pytest.raises(StatecoreError) as caught:
        build_image(tmp_path / "image", kind, [], {CHANGELOG: 5999}, bases=on(tmp_path / "base", start))
    assert not (tmp_path / "image").exists()
    assert states(tmp_path / "base") == before
    return caught.value


def test_a_base_of_another_kind_is_refused(tmp_path: Path) -> None:
    base_until(tmp_path / "base", 4000)
    assert isinstance(refused(tmp_path, StoreKind.KEY_VALUE), Invalid)


def test_a_base_that_ends_elsewhere_than_the_runs_begin_is_refused(tmp_path: Path) -> None:
    base_until(tmp_path / "base", 4000)
    assert "offset 3999" in refused(tmp_path, start=3999).what
    assert "offset 3999" in refused(tmp_path, start=4001).what


def test_runs_of_what_the_base_has_are_refused(tmp_path: Path) -> None:
    base_until(tmp_path / "base", 4000)
    runs = runs_of(tmp_path / "runs", 3999, 6000, base=BaseDatabases.ALL)
    with pytest.raises(Invalid, match="3999"):
        build_image(tmp_path / "image", KIND, runs, {CHANGELOG: 5999}, bases=on(tmp_path / "base", 4000))
    assert not (tmp_path / "image").exists()


def test_a_base_that_is_open_is_refused(tmp_path: Path) -> None:
    base_until(tmp_path / "base", 4000)
    with RocksDBStore(tmp_path / "base", KIND, settings=KEEP_FILES):
        assert "not closed cleanly" in refused(tmp_path).what


def test_a_base_that_changes_before_it_is_linked_is_refused(tmp_path: Path) -> None:
    base_until(tmp_path / "base", 4000)
    base = checked_bases(on(tmp_path / "base", 4000), KIND, [CHANGELOG])[None]
    with RocksDBStore(tmp_path / "base", KIND) as store:
        store.put(b"later", bytes(8) + b"row")
        store.commit({CHANGELOG: 7000})
    with raises(Fenced, "store-open"):
        link_base(base, tmp_path / "image")


@pytest.mark.parametrize("offset", [10, 3998, -4])
def test_an_image_with_a_lower_offset_than_its_base_is_refused(tmp_path: Path, offset: int) -> None:
    base_until(tmp_path / "base", 4000)
    with raises(Invalid, "offset-invalid"):
        build_image(tmp_path / "image", KIND, [], {CHANGELOG: offset}, bases=on(tmp_path / "base", 4000))
    assert not (tmp_path / "image").exists()


def test_a_base_without_an_offset_is_refused(tmp_path: Path) -> None:
    base_until(tmp_path / "base", 4000)
    with RocksDBStore(tmp_path / "base", KIND, settings=KEEP_FILES) as store:
        store.forget_offsets()
    assert "has no offset" in refused(tmp_path).what


def test_a_base_of_a_release_that_keeps_no_offsets_inside_is_refused(tmp_path: Path) -> None:
    options = data_options()
    options.create_if_missing(True)
    options.create_missing_column_families(True)
    columns = {"default": data_options(), "keyValueWithTimestamp": data_options()}
    Rdict(str(tmp_path / "base"), options, column_families=columns).close()
    assert "has no offset" in refused(tmp_path).what


def test_a_base_with_rows_in_an_older_family_is_refused(tmp_path: Path) -> None:
    base_until(tmp_path / "base", 4000)
    families = {"default": data_options(), "keyValueWithTimestamp": data_options(), "offsets": offsets_options()}
    opened = Rdict(str(tmp_path / "base"), data_options(), column_families=families)
    older = opened.get_column_family("default")
    older[b"old"] = b"row"
    older.flush()
    older.close()
    opened.close()
    assert "older format" in refused(tmp_path).what


def test_a_missing_base_is_reported(tmp_path: Path) -> None:
    (tmp_path / "base").mkdir()
    assert isinstance(refused(tmp_path), NotFound)


def test_versioned_stores_are_rebuilt_and_not_advanced(tmp_path: Path) -> None:
    versioned = StoreKind.VERSIONED_KEY_VALUE
    base_until(tmp_path / "base", 4000)
    assert "cannot be advanced" in refused(tmp_path, versioned).what
    with pytest.raises(Invalid, match="VersionRunBuilder"):
        RunBuilder(versioned, tmp_path, base=BaseDatabases.NONE)
    (run,) = runs_of(tmp_path / "runs", 0, 4000, base=BaseDatabases.NONE)
    with pytest.raises(Invalid, match="not rows"):
        build_image(tmp_path / "image", versioned, [replace(run, format=RunFormat.RECORDS)], {CHANGELOG: 1})


def test_a_versioned_store_that_nothing_is_added_to_is_what_its_base_is(tmp_path: Path) -> None:
    versioned = StoreKind.VERSIONED_KEY_VALUE
    with RocksDBStore(tmp_path / "base", versioned, create=True) as store:
        store.put(b"\xff" * 8 + b"k", bytes(8) + b"v")
        store.commit({CHANGELOG: 3999})
    build_image(tmp_path / "image", versioned, [], {CHANGELOG: 3999}, bases=on(tmp_path / "base", 4000))
    with RocksDBStore(tmp_path / "image", versioned, read_only=True) as store:
        assert dict(store.all()) == {b"\xff" * 8 + b"k": bytes(8) + b"v"}
        assert store.committed_offset(CHANGELOG) == 3999


def test_the_databases_of_global_stores_have_the_next_offset_of_each_partition(tmp_path: Path) -> None:
    first, second = CHANGELOG, TopicPartition(CHANGELOG.topic, 4)
    runs = runs_of(tmp_path / "runs", 0, 4000, base=BaseDatabases.NONE)
    build_image(tmp_path / "base", KIND, runs, {first: 4000, second: 7})
    bases = ImageBases({None: ImageBase(tmp_path / "base")}, {first: 4000, second: 7}, global_store=True)
    more = runs_of(tmp_path / "more", 4000, 6000, base=BaseDatabases.ALL)
    build_image(tmp_path / "image", KIND, more, {first: 6000, second: 9}, bases=bases)
    assert stored_rows(tmp_path / "image", KIND) == sorted(expected_rows(KIND, RECORDS).items())
    with RocksDBStore(tmp_path / "image", KIND, read_only=True) as store:
        assert store.committed_offsets() == {first: 6000, second: 9}
    with pytest.raises(Invalid, match="these runs need"):
        build_image(tmp_path / "other", KIND, more, {first: 6000, second: 9}, bases=replace(bases, global_store=False))


def test_runs_of_a_global_store_are_compared_with_what_the_base_has_of_their_own_partition(tmp_path: Path) -> None:
    first, second = CHANGELOG, TopicPartition(CHANGELOG.topic, 4)
    runs = runs_of(tmp_path / "runs", 0, 4000, base=BaseDatabases.NONE)
    build_image(tmp_path / "base", KIND, runs, {first: 4000, second: 7})
    bases = ImageBases({None: ImageBase(tmp_path / "base")}, {first: 4000, second: 7}, global_store=True)
    [more] = runs_of(tmp_path / "more", 10, 40, base=BaseDatabases.ALL)
    offsets = {first: 4001, second: 40}

    def of(partition: TopicPartition, run: RunFile = more) -> RunFile:
        return RunOrigin("s", KIND, partition).of(run)

    for number, (wrong, code) in enumerate(
        [
            ([of(first)], "run-below-base"),
            ([of(second), of(second)], "runs-out-of-order"),
            ([of(TopicPartition(CHANGELOG.topic, 5))], "run-mismatch"),
        ]
    ):
        with raises(Invalid, code):
            build_image(tmp_path / f"refused-{number}", KIND, wrong, offsets, bases=bases)
    build_image(
        tmp_path / "image", KIND, [of(second), of(first, replace(more, start=4000, end=4001))], offsets, bases=bases
    )


# ---- segments


def read(
    path: Path,
    ranges: list[list[Write]],
    below: list[BaseDatabases],
    budget: int = 1 << 20,
) -> list[list[RunFile]]:
    """The runs of each range; the stream time goes from one to the next."""
    found, stream_time, first = [], -1, 0
    for number, writes in enumerate(ranges):
        (path / str(number)).mkdir(parents=True)
        builder = CuttingRunBuilder(
            WINDOW,
            path / str(number),
            memory_budget=budget,
            base=below[number],
            segmentation=SEGMENTATION,
            start=first,
            stream_time=stream_time,
        )
        for write in writes:
            builder.add(batch([write], first))
            first += 1
        found.append(builder.finish(first))
        stream_time = builder.statistics.stream_time
    return found


def segments(path: Path) -> dict[int | None, ImageBase]:
    return {int(one.name.removeprefix("w.")) // SEGMENTATION.interval_ms: ImageBase(one) for one in path.iterdir()}


def rows_in(path: Path) -> dict[str, dict[bytes, bytes]]:
    found = {}
    for one in path.iterdir():
        with RocksDBStore(one, WINDOW, read_only=True) as store:
            found[one.name] = dict(store.all())
    return found


@pytest.mark.full
@settings(deadline=None, max_examples=25)
@given(st.lists(WRITES.filter(bool), min_size=2, max_size=4), st.sampled_from([1, 1 << 20]))
def test_windows_advanced_range_by_range_are_those_read_at_once(
    tmp_path_factory: pytest.TempPathFactory, ranges: list[list[Write]], budget: int
) -> None:
    path = tmp_path_factory.mktemp("windows")
    ends = [sum(len(writes) for writes in ranges[: number + 1]) for number in range(len(ranges))]
    image, stream_time, below = None, -1, None
    for number, end in enumerate(ends):
        start = end - len(ranges[number])
        (path / f"runs-{number}").mkdir()
        builder = CuttingRunBuilder(
            WINDOW,
            path / f"runs-{number}",
            memory_budget=budget,
            base=BaseDatabases(segments=frozenset() if below is None else frozenset(below.databases)),
            segmentation=SEGMENTATION,
            start=start,
            stream_time=stream_time,
        )
        for at, write in enumerate(ranges[number]):
            builder.add(batch([write], start + at))
        runs = builder.finish(end)
        stream_time = builder.statistics.stream_time
        image = build_image(
            path / str(number),
            WINDOW,
            runs,
            {CHANGELOG: end - 1},
            segmented=SegmentedRuns("w", SEGMENTATION, stream_time),
            bases=below,
        )
        below = ImageBases(segments(path / str(number)), {CHANGELOG: end})
    assert image is not None
    last = {(key, start): value for writes in ranges for key, start, value in writes}
    first_live = max(0, stream_time - SEGMENTATION.retention_ms) // SEGMENTATION.interval_ms
    expected = {
        window_key(key, start): (1000 + start).to_bytes(8, "big") + value
        for (key, start), value in last.items()
        if value is not None and start // SEGMENTATION.interval_ms >= first_live
    }
    found = rows_in(path / str(len(ranges) - 1))
    assert {key: value for rows in found.values() for key, value in rows.items()} == expected
    assert image.segments == len(found) >= 1


def test_a_segment_without_runs_is_linked_an_expired_one_left_out_and_all_have_the_new_offset(tmp_path: Path) -> None:
    first, second = read(
        tmp_path,
        [[(b"a", 10, b"x"), (b"a", 60, b"y"), (b"a", 120, b"z")], [(b"b", 170, b"n")]],
        [BaseDatabases.NONE] * 2,
    )
    build_image(tmp_path / "base", WINDOW, first, {CHANGELOG: 2}, segmented=SegmentedRuns("w", SEGMENTATION, 120))
    before = states(tmp_path / "base")
    bases = ImageBases(segments(tmp_path / "base"), {CHANGELOG: 3})
    image = build_image(
        tmp_path / "image", WINDOW, second, {CHANGELOG: 3}, segmented=SegmentedRuns("w", SEGMENTATION, 170), bases=bases
    )
    assert states(tmp_path / "base") == before
    assert {name: len(rows) for name, rows in rows_in(tmp_path / "image").items()} == {
        "w.50": 1,
        "w.100": 1,
        "w.150": 1,
    }
    assert image.content is None
    assert verify_image(tmp_path / "image", WINDOW, [CHANGELOG]).rows == 3
    assert set(rows_in(tmp_path / "base")) == {"w.0", "w.50", "w.100"}


def test_deletes_are_kept_in_the_segments_that_have_something_below(tmp_path: Path) -> None:
    writes: list[Write] = [(b"a", 10, None), (b"a", 60, None), (b"b", 60, b"x")]
    (runs,) = read(tmp_path / "some", [writes], [BaseDatabases(segments=frozenset({0}))])
    assert [(run.segment, run.rows, run.deletes) for run in runs] == [(0, 0, 1), (1, 1, 0)]
    (runs,) = read(tmp_path / "all", [writes], [BaseDatabases.ALL])
    assert [(run.segment, run.rows, run.deletes) for run in runs] == [(0, 0, 1), (1, 1, 1)]
    (runs,) = read(tmp_path / "none", [writes], [BaseDatabases.NONE])
    assert [(run.segment, run.rows, run.deletes) for run in runs] == [(1, 1, 0)]


def test_a_later_run_keeps_deletes_only_of_segments_of_an_earlier_one(tmp_path: Path) -> None:
    """With this budget each record is cut by itself; a segment's run begins where the one before it there ended."""
    writes: list[Write] = [(b"a", 10, b"x"), (b"a", 60, None), (b"a", 10, None), (b"a", 60, b"y"), (b"a", 60, None)]
    (runs,) = read(tmp_path, [writes], [BaseDatabases.NONE], budget=1)
    found = [(run.segment, run.start, run.end, run.rows, run.deletes) for run in runs]
    assert found == [(0, 0, 1, 1, 0), (0, 1, 3, 0, 1), (1, 0, 4, 1, 0), (1, 4, 5, 0, 1)]


def test_a_builder_on_a_base_leaves_out_segments_expired_before(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    builder = RunBuilder(
        WINDOW, tmp_path / "runs", base=BaseDatabases.ALL, segmentation=SEGMENTATION, start=7, stream_time=400
    )
    builder.add(batch([(b"a", 10, b"late")], 7))
    assert builder.finish(8) == []
    assert (builder.statistics.stream_time, builder.statistics.expired) == (400, 1)
