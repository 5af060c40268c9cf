"""What a backup need not publish, because the newest snapshot has it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from statecore.errors import Fenced
from statecore.filesystem import file_sha256
from statecore.jobs.backup.report import BackupOutcome
from tests.harness.raising import raises
from tests.unit.jobs.backup.snapshots import ROWS, World, left_open


def test_nothing_new_publishes_nothing(world: World) -> None:
    world.write(ROWS, 7)
    first = world.snapshot()
    again = world.snapshot()
    assert (again.outcome, again.snapshot, again.put_bytes) == (BackupOutcome.UNCHANGED, first.snapshot, 0)
    assert len(world.app_repository.head().snapshots) == 1


def test_files_of_the_newest_snapshot_are_not_uploaded_again(world: World) -> None:
    world.write(ROWS, 7)
    world.snapshot()
    before = set(world.database().glob("*.sst"))
    world.write({b"more": b"1"}, 8)
    assert set(world.database().glob("*.sst")) & before
    report = world.snapshot()
    assert report.outcome is BackupOutcome.PUBLISHED
    (store,) = report.stores
    assert 0 < report.put_bytes == store.new_bytes < store.bytes
    (path,) = world.laid_out().values()
    assert world.rows(path) == ({**ROWS, b"more": b"1"}, {world.changelog(): 8}, 0)


def blobs_of(world: World, *kinds: str) -> list[Path]:
    """Files of the repository, by the directories that they are in."""
    below = world.root / "repository" / "apps" / "app"
    return sorted(path for kind in kinds for path in (below / kind).rglob("*") if path.is_file())


def damage(path: Path, kind: str) -> None:
    """Damage a blob, whatever else has its file."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.unlink()
    if kind != "missing":
        path.write_bytes(content if kind == "flipped" else content[:-1])


@pytest.mark.parametrize("kind", ["missing", "shorter", "flipped"])
@pytest.mark.parametrize("more", [False, True])
def test_a_damaged_blob_is_repaired_by_the_next_snapshot_of_the_same_files(world: World, kind: str, more: bool) -> None:
    world.write({b"key-%d" % number: os.urandom(6000) for number in range(200)}, 7)
    rows = world.rows(world.database())[0]
    world.snapshot()
    assert blobs_of(world, "files")
    assert blobs_of(world, "packs")
    for number, path in enumerate(blobs_of(world, "files", "packs")):
        damage(path, kind)
        if more:
            rows |= {b"more": b"%d" % number}
            world.write({b"more": b"%d" % number}, 8 + number)
        report = world.snapshot()
        assert report.put_bytes > 0
        if not more:  # else RocksDB may have no use for that file any more
            (note,) = report.notes
            assert "file://" in note
            assert note in world.said
        (laid,) = world.laid_out(f"laid-{number}").values()
        assert world.rows(laid)[0] == rows


def test_a_file_that_was_stored_elsewhere_is_published_although_nothing_else_is_new(world: World) -> None:
    """The others that it shared its pack with are not at hand together any more."""
    world.write(ROWS, 7)
    first = world.snapshot()
    (pack,) = blobs_of(world, "packs")
    content = pack.read_bytes()
    pack.unlink()
    pack.write_bytes(content[:-1])  # the last file alone is damaged
    again = world.snapshot()
    assert again.outcome is BackupOutcome.PUBLISHED
    assert again.snapshot != first.snapshot
    assert again.identity == first.identity
    assert len(world.laid_out()) == 1
    assert world.snapshot().outcome is BackupOutcome.UNCHANGED


def test_a_written_copy_reuses_the_newest_snapshot_only_while_its_files_exist(world: World) -> None:
    world.write(ROWS, 7)
    left_open(world.database())
    world.snapshot()
    assert world.snapshot().outcome is BackupOutcome.UNCHANGED
    for number, path in enumerate(blobs_of(world, "files", "packs")):
        damage(path, "missing")
        assert world.snapshot().outcome is BackupOutcome.PUBLISHED
        (laid,) = world.laid_out(f"laid-{number}").values()
        assert world.rows(laid)[0] == ROWS


def test_lost_tasks_of_other_instances_are_named_and_the_rest_is_published(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.write(ROWS, 7)
    world.write(ROWS, 7, path=world.database(task="0_1"), changelog=world.changelog(partition=1))
    world.snapshot(tasks=("0_1",))
    theirs = set(blobs_of(world, "files", "packs"))
    world.snapshot(tasks=("0_0",))
    for path in theirs:
        path.unlink()
    world.write({b"more": b"1"}, 8)
    report = world.snapshot(tasks=("0_0",))
    assert report.outcome is BackupOutcome.PUBLISHED
    (note,) = [note for note in report.notes if "were inherited" in note]
    assert "Tasks 0_1 " in note
    assert note in world.said
    assert world.snapshot(tasks=("0_1",)).put_bytes > 0
    assert {of[0] for of in world.laid_out()} == {"0_0", "0_1"}


def test_a_store_with_a_smaller_offset_than_the_newest_snapshot_is_refused(world: World) -> None:
    world.write(ROWS, 7)
    world.snapshot()
    shutil.rmtree(world.path / "0_0")
    world.write(ROWS, 5)
    with raises(Fenced, "snapshot-newer", task="0_0", store="counts", offset=8, end=6):
        world.snapshot()


@pytest.mark.parametrize("kind", ["", "flipped", "missing"])
def test_files_of_another_instance_with_the_same_numbers_are_no_damage(world: World, kind: str) -> None:
    """Both started from one snapshot; the task went there and came back."""
    world.write(ROWS, 7)
    world.snapshot()
    elsewhere = world.root / "elsewhere"
    shutil.copytree(world.database(), elsewhere)
    world.write({b"more": b"1"}, 8)
    world.snapshot()
    world.write({b"more": b"2"}, 9, path=elsewhere)
    here, other = ({path.name: path for path in at.glob("*.sst")} for at in (world.database(), elsewhere))
    alike = [
        name
        for name in here.keys() & other.keys()
        if here[name].stat().st_size == other[name].stat().st_size
        and file_sha256(here[name]) != file_sha256(other[name])
    ]
    assert alike, "the same name and size, and another file"
    shutil.rmtree(world.database())
    elsewhere.rename(world.database())
    for path in blobs_of(world, "files", "packs") if kind else ():  # so that nothing tells which file it was
        damage(path, kind)
    report = world.snapshot()
    assert (report.outcome, bool(report.notes)) == (BackupOutcome.PUBLISHED, bool(kind))
    (laid,) = world.laid_out().values()
    assert world.rows(laid)[0] == {**ROWS, b"more": b"2"}
