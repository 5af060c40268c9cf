"""Copies of databases: damage, stores that were left open, and segments that disagree."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from statecore.errors import Corrupted, Fenced, Invalid
from statecore.formats.kinds import StoreKind
from statecore.jobs.backup.report import BackupOutcome
from tests.harness.creation import interrupt_creation
from tests.harness.raising import raises
from tests.unit.jobs.backup.snapshots import (
    CLICKS,
    INTERVAL,
    ROWS,
    World,
    codes,
    left_open,
    refusal,
    segment_of,
    set_status,
    tree,
)


def test_damage_is_corruption(world: World) -> None:
    world.write(ROWS, 7)
    for file in world.database().glob("*.sst"):
        file.write_bytes(file.read_bytes()[:-20] + bytes(20))
    with pytest.raises(Corrupted) as caught:
        world.snapshot()
    assert "snapshot-" not in caught.value.what


def test_a_truncated_manifest_is_corruption(world: World) -> None:
    world.write(ROWS, 7)
    world.write({b"more": b"1"}, 8)
    (manifest,) = world.database().glob("MANIFEST-*")
    manifest.write_bytes(manifest.read_bytes()[:-30])
    with raises(Corrupted, "database-damaged"):
        world.snapshot()


def test_a_store_that_a_processor_has_open_is_refused(world: World) -> None:
    world.write(ROWS, 7)
    code = (
        "import sys; from statecore.stores.rocksdb.store import RocksDBStore\n"
        "from statecore.formats.kinds import StoreKind\n"
        f"with RocksDBStore({str(world.database())!r}, StoreKind.KEY_VALUE):\n"
        "    print('open', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        with pytest.raises(Fenced, match=f"process {other.pid}"):
            world.snapshot()
        other.communicate()
    assert world.snapshot().outcome is BackupOutcome.PUBLISHED


def test_a_store_that_was_left_open_is_published_closed_under_at_least_once(world: World) -> None:
    world.write(ROWS, 7)
    left_open(world.database())
    before = tree(world.path / "0_0")
    report = world.snapshot()
    assert tree(world.path / "0_0") == before
    (note,) = (note for note in report.notes if "was not closed" in note)
    assert f"offset 7 of {world.changelog()}" in note
    (path,) = world.laid_out().values()
    assert world.rows(path) == (ROWS, {world.changelog(): 7}, 0)
    again = world.snapshot()
    assert (again.outcome, again.snapshot) == (BackupOutcome.UNCHANGED, report.snapshot)


def test_a_store_that_was_left_open_is_refused_under_exactly_once(world: World) -> None:
    world.spec["processing_guarantee"] = "exactly_once_v2"
    world.write(ROWS, 7)
    left_open(world.database())
    assert codes(refusal(world)) == [("not-closed-cleanly", "counts")]


def test_a_versioned_store_is_published_and_refused_where_it_was_left_open(tmp_path: Path) -> None:
    world = World(tmp_path, counts={"kind": "versioned-key-value", "retention": "10m"})
    world.write({b"\xff" * 8 + b"k": bytes(8) + b"v"}, 7, kind="versioned-key-value")
    world.snapshot()
    stored = world.stored()["0_0", "counts"]
    assert (stored.kind, stored.stream_time, stored.retention_ms) == (StoreKind.VERSIONED_KEY_VALUE, None, 600_000)
    left_open(world.database())
    with raises(Invalid, "backup-refused") as caught:
        world.snapshot()
    assert codes(caught.value.context["problems"]) == [("versioned-store-open", "counts")]


def test_segments_at_one_offset_are_published_unchanged(clicks: World) -> None:
    report = clicks.snapshot()
    (store,) = [store for store in report.stores if store.store == "clicks"]
    assert (store.databases, store.written) == (2, False)
    stored = clicks.stored()["0_0", "clicks"]
    assert [database.segment for database in stored.databases] == [0, 1]
    assert (stored.segment_interval_ms, stored.stream_time) == (INTERVAL, None)


def test_segments_at_different_offsets_get_the_smallest_with_a_note(clicks: World) -> None:
    segment_of(clicks, 2 * INTERVAL, 20)
    before = tree(clicks.path / "0_0")
    report = clicks.snapshot()
    assert tree(clicks.path / "0_0") == before
    said = [note for note in report.notes if "all get the smallest" in note]
    assert len(said) == 1
    assert "offset 20 of app-clicks-changelog-0" in said[0]
    assert "offset 9 of app-clicks-changelog-0" in said[0]
    assert clicks.stored()["0_0", "clicks"].changelogs[0].offset == 9
    laid = {key[2]: path for key, path in clicks.laid_out().items() if key[1] == "clicks"}
    assert sorted(laid) == [0, 1, 2]  # type: ignore[type-var]
    for path in laid.values():
        rows, offsets, status = clicks.rows(path, "window")
        assert (len(rows), offsets, status) == (1, {clicks.changelog("clicks"): 9}, 0)
    assert clicks.snapshot().outcome is BackupOutcome.UNCHANGED
    segment_of(clicks, 0, 12)
    assert clicks.snapshot().outcome is BackupOutcome.PUBLISHED, "there are rows more, though ahead of the offset"
    assert clicks.stored()["0_0", "clicks"].changelogs[0].offset == 9
    segment_of(clicks, INTERVAL, 12)
    clicks.snapshot()
    assert clicks.stored()["0_0", "clicks"].changelogs[0].offset == 12


def test_segments_at_different_offsets_are_refused_under_exactly_once(clicks: World) -> None:
    clicks.spec["processing_guarantee"] = "exactly_once_v2"
    segment_of(clicks, 2 * INTERVAL, 20)
    assert codes(refusal(clicks)) == [("segment-offsets-differ", "clicks")]


def test_a_directory_that_is_no_segment_of_the_declared_interval_is_refused(clicks: World) -> None:
    segment_of(clicks, INTERVAL + 1, 9)
    (problem,) = refusal(clicks)
    assert (problem["code"], problem["store"]) == ("segment-interval-mismatch", "clicks")
    assert f"clicks.{INTERVAL + 1} " in problem["what"]


def test_a_windowed_store_without_a_segment_is_restored_by_kafka_streams(tmp_path: Path) -> None:
    world = World(tmp_path, **CLICKS)
    world.write(ROWS, 7)
    (world.path / "0_0" / "clicks").mkdir()
    report = world.snapshot()
    assert any("clicks of task 0_0" in note for note in report.notes)
    stored = world.stored()["0_0", "clicks"]
    assert (stored.restored_by_kafka_streams, stored.databases, stored.changelogs[0].offset) == (True, (), -4)


def never_flushed(path: Path) -> None:
    """A database as Kafka Streams makes it, of which nothing has reached a file before the kill."""
    from rocksdict import Options, Rdict

    path.mkdir(parents=True)
    options = Options(raw_mode=True)
    database = Rdict(str(path), options)
    database.create_column_family("offsets", options).close()
    database.close()
    (path / "rocksdict-config.json").unlink()
    for file in path.glob("*.sst"):
        file.unlink()


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_a_segment_whose_creation_was_interrupted_is_left_out(tmp_path: Path, guarantee: str) -> None:
    world = World(tmp_path, **CLICKS)
    world.spec["processing_guarantee"] = guarantee
    world.write(ROWS, 7)
    for segment in (0, INTERVAL):
        segment_of(world, segment, 9)
    interrupt_creation(world.database("clicks", segment=2 * INTERVAL))
    report = world.snapshot()
    assert report.outcome is BackupOutcome.PUBLISHED
    assert {store.store: store.databases for store in report.stores} == {"counts": 1, "clicks": 2}


def ticked(path: Path) -> None:
    """Wait until files that are written from now on are seen to be younger than those before."""
    first, last = path / "first", path / "last"
    first.touch()
    last.touch()
    while last.stat().st_mtime_ns - first.stat().st_mtime_ns < 20_000_000:
        last.touch()


def test_an_unflushed_segment_newer_than_the_offset_is_left_out(clicks: World) -> None:
    ticked(clicks.root)
    never_flushed(clicks.database("clicks", segment=2 * INTERVAL))
    clicks.snapshot()
    assert [database.segment for database in clicks.stored()["0_0", "clicks"].databases] == [0, 1]


def test_an_unflushed_segment_that_may_be_older_than_the_offset_is_refused(tmp_path: Path) -> None:
    world = World(tmp_path, **CLICKS)
    world.write(ROWS, 7)
    never_flushed(world.database("clicks", segment=2 * INTERVAL))
    ticked(tmp_path)
    segment_of(world, 0, 9)
    assert codes(refusal(world)) == [("segment-not-flushed", "clicks")]


def transactional(world: World, guarantee: str = "exactly_once_v2") -> World:
    world.spec |= {"processing_guarantee": guarantee, "transactional_state_stores": True}
    return world


def segments(world: World) -> list[Path]:
    return sorted((world.path / "0_0" / "clicks").iterdir())


def test_segments_of_a_transactional_store_are_lowered_under_exactly_once(clicks: World) -> None:
    segment_of(clicks, 2 * INTERVAL, 20)
    before = tree(clicks.path / "0_0")
    transactional(clicks).snapshot()
    assert tree(clicks.path / "0_0") == before
    assert clicks.stored()["0_0", "clicks"].changelogs[0].offset == 9
    for key, path in clicks.laid_out().items():
        if key[1] == "clicks":
            rows, offsets, status = clicks.rows(path, "window")
            assert (len(rows), offsets, status) == (1, {clicks.changelog("clicks"): 9}, 0)


@pytest.mark.parametrize(("without", "taken"), [(3, True), (2, False)])
def test_segments_without_a_status_are_transactional_whatever_the_spec_says(
    clicks: World, without: int, taken: bool
) -> None:
    clicks.spec["processing_guarantee"] = "exactly_once_v2"
    segment_of(clicks, 2 * INTERVAL, 20)
    for segment in segments(clicks)[:without]:
        set_status(segment, None)
    if taken:
        clicks.snapshot()
        assert clicks.stored()["0_0", "clicks"].changelogs[0].offset == 9
    else:
        assert codes(refusal(clicks)) == [("segment-offsets-differ", "clicks")]


def test_a_transactional_store_is_published_unchanged_with_or_without_a_status(world: World) -> None:
    transactional(world).write(ROWS, 7)
    (store,) = world.snapshot().stores
    assert not store.written
    set_status(world.database(), None)
    (store,) = world.snapshot().stores
    assert not store.written
    (path,) = world.laid_out().values()
    assert world.rows(path) == (ROWS, {world.changelog(): 7}, None)


def test_a_transactional_store_with_status_open_was_opened_without_transactions(clicks: World) -> None:
    transactional(clicks)
    left_open(clicks.database())
    left_open(segments(clicks)[0])
    problems = refusal(clicks)
    assert sorted(codes(problems)) == [("transactional-store-open", "clicks"), ("transactional-store-open", "counts")]
    assert all("--replace" in problem["what"] for problem in problems)


def test_an_unflushed_segment_of_a_transactional_store(tmp_path: Path) -> None:
    world = transactional(World(tmp_path, **CLICKS))
    world.write(ROWS, 7)
    segment_of(world, 0, 9)
    ticked(tmp_path)
    never_flushed(world.database("clicks", segment=2 * INTERVAL))
    world.snapshot()
    assert [database.segment for database in world.stored()["0_0", "clicks"].databases] == [0]
    segment_of(world, INTERVAL, 20)  # flushed later than that segment was made, and not the one whose offset counts
    world.snapshot()
    stored = world.stored()["0_0", "clicks"]
    assert ([database.segment for database in stored.databases], stored.changelogs[0].offset) == ([0, 1], 9)
    segment_of(world, 0, 30)
    with raises(Invalid, "backup-refused") as caught:
        world.snapshot()
    assert codes(caught.value.context["problems"]) == [("segment-not-flushed", "clicks")]


@pytest.mark.parametrize("guarantee", ["exactly_once_v2", "at_least_once"])
@pytest.mark.parametrize("declared", [True, False])
def test_a_versioned_transactional_store_is_refused_offline(tmp_path: Path, guarantee: str, declared: bool) -> None:
    world = World(tmp_path, counts={"kind": "versioned-key-value", "retention": "10m"})
    world.write({b"\xff" * 8 + b"k": bytes(8) + b"v"}, 7, kind="versioned-key-value")
    world.spec |= {"processing_guarantee": guarantee, "transactional_state_stores": declared}
    if not declared:
        set_status(world.database(), None)
    assert codes(refusal(world)) == [("versioned-store-ahead", "counts")]
