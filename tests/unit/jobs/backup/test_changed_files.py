"""Files that the application changes after they were hashed, linked or fetched."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from statecore.errors import Corrupted
from statecore.filesystem import file_sha256
from statecore.formats.releases import OFFSETS_COLUMN_FAMILY
from statecore.formats.rocksdb_log import read_manifest
from statecore.jobs.fetch.request import FetchRequest
from statecore.jobs.fetch.run import run_fetch
from statecore.repository.publish.upload import SMALL
from statecore.repository.repository import create_repository
from tests.harness import s3_server
from tests.harness.raising import raises
from tests.unit.jobs.backup.snapshots import INTERVAL, World, left_open, tree, two_snapshots


def live_and_published(world: World) -> dict[Path, Path]:
    """The SST files of the directory that are in the repository under another name, oldest first."""
    there = {path.stat().st_ino: path for path in (world.root / "repository").rglob("files/*/*")}
    live = sorted(world.path.glob("0_0/rocksdb/counts/*.sst"))
    return {path: there[path.stat().st_ino] for path in live if path.stat().st_ino in there}


def written_in_place(path: Path) -> None:
    """As ``cp`` and ``rsync --inplace`` do it."""
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        file.write(b"damage")


def fetched(world: World, into: Path, **more: Any) -> Any:
    said: list[str] = []
    request = FetchRequest(repository=world.url, application_id="app", state_dir=str(into), **more)
    return run_fetch(request, say=said.append), said


def test_what_is_written_into_a_live_file_is_found_by_the_next_fetch(linked: World, tmp_path: Path) -> None:
    new, old = linked.app_repository.head().snapshots
    first, second = live_and_published(linked)
    written_in_place(second)
    elsewhere = tmp_path / "elsewhere"
    with raises(Corrupted, "blob-damaged") as caught:
        fetched(linked, elsewhere, snapshot=new.snapshot)
    assert caught.value.exit_code == 12
    assert not (elsewhere / "app" / "0_0").exists()
    report, said = fetched(linked, elsewhere)
    assert report.snapshot == old.snapshot
    assert any(f"{new.snapshot} is skipped" in line for line in said)
    assert linked.rows(elsewhere / "app/0_0/rocksdb/counts")[1] == {linked.changelog(): 7}
    written_in_place(first)
    third = tmp_path / "third"
    with pytest.raises(Corrupted, match="None of the 2 snapshots"):
        fetched(linked, third)
    assert not (third / "app" / "0_0").exists()


@pytest.mark.parametrize("written", [False, True])
@pytest.mark.parametrize("copied", [False, True])
def test_what_is_written_into_a_live_file_never_becomes_a_snapshot(world: World, copied: bool, written: bool) -> None:
    world.url += "?copy=1" if copied else ""
    two_snapshots(world)
    if written:
        left_open(world.database())
        world.snapshot()
    there, before = world.app_repository.head(), tree(world.root / "repository")
    (changed, *_) = (path for path in sorted(world.database().glob("*.sst")) if path.stat().st_size > SMALL)
    digest = file_sha256(changed)
    written_in_place(changed)
    for _ in range(2):
        with raises(
            Corrupted,
            "immutable-file-changed",
            task="0_0",
            store="counts",
            path=str(changed),
            expected=digest,
            found=file_sha256(changed),
        ):
            world.snapshot()
        assert world.app_repository.head() == there
    if copied:
        assert tree(world.root / "repository") == before


def test_a_file_that_changes_after_it_was_hashed_replaces_nothing_on_a_server(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3_server.ACCESS)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3_server.SECRET)
    with s3_server.serving() as server:
        world.url = server.bucket("states").below("repository").url
        create_repository(world.url)
        two_snapshots(world)
        there = world.app_repository.head()
        (changed, *_) = (path for path in sorted(world.database().glob("*.sst")) if path.stat().st_size > SMALL)

        class Damage:
            def reach(self, point: str) -> None:
                if point == "backup.after-hashes":
                    written_in_place(changed)

        with raises(Corrupted, "upload-file-changed") as caught:
            world.snapshot(faults=Damage())
        assert changed.name in caught.value.what
        assert world.app_repository.head() == there
        report, _ = fetched(world, tmp_path / "elsewhere")
        assert (report.snapshot, report.skipped_snapshots) == (there.snapshots[0].snapshot, ())


def test_a_changed_file_of_a_segment_is_named_by_its_own_path(clicks: World) -> None:
    clicks.snapshot()
    segment = clicks.database("clicks", segment=INTERVAL)
    live = read_manifest((segment / (segment / "CURRENT").read_text().strip()).read_bytes()).files.values()
    (number,) = (file.number for file in live if file.family != OFFSETS_COLUMN_FAMILY)
    changed = segment / f"{number:06d}.sst"
    with changed.open("r+b") as file:
        file.seek(5)  # of its rows: RocksDB reads the rest when it opens the database
        file.write(b"damage")
    with raises(Corrupted, "immutable-file-changed", task="0_0", store="clicks", path=str(changed)):
        clicks.snapshot()


def test_copies_that_were_asked_for_are_not_damaged_through_a_live_file(world: World, tmp_path: Path) -> None:
    world.url += "?copy=1"
    two_snapshots(world)
    assert live_and_published(world) == {}
    for path in world.path.glob("0_0/rocksdb/counts/*.sst"):
        written_in_place(path)
    report, _ = fetched(world, tmp_path / "elsewhere")
    assert (report.snapshot, report.skipped_snapshots) == (world.app_repository.head().snapshots[0].snapshot, ())


def test_a_repository_s_files_keep_their_modes_whatever_is_fetched_over_them(linked: World) -> None:
    before = {path: path.stat().st_mode for path in live_and_published(linked).values()}
    assert len(before) == 2
    fetched(linked, linked.state_dir, replace=True)
    assert sorted(live_and_published(linked).values()) == sorted(before), "the same owner, and no byte was copied"
    linked.path.chmod(0o770)
    fetched(linked, linked.state_dir, replace=True)
    assert live_and_published(linked) == {}
    assert {path.stat().st_mode & 0o777 for path in linked.path.glob("0_0/rocksdb/counts/*.sst")} == {0o660}
    assert {path: path.stat().st_mode for path in before} == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_a_repository_s_files_keep_their_owner_whatever_is_fetched_over_them(linked: World, tmp_path: Path) -> None:
    published = list(live_and_published(linked).values())
    report, _ = fetched(linked, linked.state_dir, replace=True, owner="4242:4243")
    assert report.at_hand_bytes > 2_000_000
    placed = list(linked.path.glob("0_0/rocksdb/counts/*.sst"))
    assert {(path.stat().st_uid, path.stat().st_gid) for path in placed} == {(4242, 4243)}
    assert {(path.stat().st_uid, path.stat().st_gid) for path in published} == {(0, 0)}
    linked.url = (tmp_path / "of-root").as_uri()
    create_repository(linked.url)
    linked.snapshot()  # by root, of the files of 4242
    blobs = [path for path in (tmp_path / "of-root").rglob("*") if path.is_file()]
    assert {(path.stat().st_uid, path.stat().st_nlink) for path in blobs} == {(0, 1)}
