"""The files of a fetch on this machine: none comes twice, and none that this disk has changed is used."""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from statecore.errors import Capacity, Invalid
from statecore.faults import FaultInjected, FaultPoints, InjectedFault
from statecore.filesystem import file_sha256
from statecore.jobs.fetch.run import run_fetch
from statecore.progress import MachineProgress, parse_machine_line
from tests.harness import mounts
from tests.harness.case_selection import one_of
from tests.harness.filesystems import with_free_room
from tests.unit.jobs.fetch.fetching import cut, fetch, flipped, refused, request_for, tree
from tests.unit.jobs.published import Shop, expected, rows_in


def test_replacing_moves_no_byte_of_the_files_that_are_there(shop: Shop, state_dir: Path) -> None:
    older, newer = reversed(shop.app_repository.head().snapshots)
    first = fetch(shop, state_dir, snapshot=older.snapshot)
    assert rows_in(state_dir) == expected(200)
    second = fetch(shop, state_dir, replace=True)
    assert (second.snapshot, second.placed) == (newer.snapshot, True)
    assert rows_in(state_dir) == expected(300)
    # Runs that were linked are there byte for byte; what was merged is not.
    assert second.downloaded_bytes < sum(store.file_bytes for store in second.stores)
    assert second.at_hand_bytes > 0
    third = fetch(shop, state_dir, replace=True, snapshot=older.snapshot)
    assert third.at_hand_bytes > 0
    assert third.downloaded_bytes + third.at_hand_bytes == first.downloaded_bytes
    assert rows_in(state_dir) == expected(200)


def test_the_progress_ends_at_the_downloaded_bytes_where_stores_share_a_file(tmp_path: Path, state_dir: Path) -> None:
    shop = Shop(tmp_path / "shop")
    shop.root.mkdir()
    shop.publish([200], based=True)  # each database has the same CURRENT
    shown = io.StringIO()
    report = run_fetch(request_for(shop, state_dir), MachineProgress(shown))
    assert report.downloaded_bytes < sum(store.file_bytes for store in report.stores)
    events = [parse_machine_line(line) for line in shown.getvalue().splitlines()]
    (last,) = [event for event in events if event and (event["phase"], event["event"]) == ("download", "done")]
    assert last["count"] == last["total"] == report.downloaded_bytes


def test_too_little_space_is_reported_before_the_download(
    shop: Shop, state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_free_room(monkeypatch, 1000)
    error = refused(Capacity, "no-space", shop, state_dir)
    assert error.context["free"] == 1000
    assert error.context["needed"] > 1.1 * fetch(shop, state_dir, plan_only=True).downloaded_bytes
    assert not state_dir.exists(), "who was refused leaves no trace"


def test_files_that_are_here_need_room_where_they_cannot_be_placed_as_they_are(
    shop: Shop, state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetch(shop, state_dir)
    here = fetch(shop, state_dir, replace=True, plan_only=True).at_hand_bytes
    assert here > 0
    with_free_room(monkeypatch, 0)
    linked = refused(Capacity, "no-space", shop, state_dir, replace=True).context["needed"]
    (state_dir / "orders").chmod(0o770)
    copied = refused(Capacity, "no-space", shop, state_dir, replace=True).context["needed"]
    assert copied - linked == pytest.approx(1.1 * here, rel=0.01)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[mounts.Disk]:
    with mounts.disk(tmp_path / "disk", "16m") as mounted:
        yield mounted


def test_a_disk_that_is_read_only_is_refused_before_anything_comes(shop: Shop, disk: mounts.Disk) -> None:
    disk.remount("ro")
    refused(Invalid, "read-only-file-system", shop, disk.path)


def test_a_disk_full_during_the_download_is_no_damage_and_the_command_resumes(shop: Shop, disk: mounts.Disk) -> None:
    full = mounts.FullFrom(disk, "fetch.after-plan", leave=64 << 10)
    with pytest.raises(Capacity):
        run_fetch(request_for(shop, disk.path), faults=full)
    assert not (disk.path / "orders" / "0_0").exists()
    assert full.filler is not None
    full.filler.unlink()
    report = fetch(shop, disk.path)
    assert (report.placed, report.skipped_snapshots) == (True, ())
    assert rows_in(disk.path) == expected(300)


@pytest.mark.parametrize("after", [1, 2, 4])
def test_a_kill_in_the_middle_of_the_download_keeps_what_came_whole(shop: Shop, state_dir: Path, after: int) -> None:
    with pytest.raises(FaultInjected):
        run_fetch(request_for(shop, state_dir), faults=InjectedFault("fetch.during-download", "raise", after))
    kept = {
        file.name: file.stat().st_ino for file in (state_dir / "orders" / ".statecore" / "fetched" / "files").iterdir()
    }
    assert kept
    inodes: dict[str, int] = {}

    class Looking(FaultPoints):
        def reach(self, point: str) -> None:
            if point == "fetch.after-images":
                files = state_dir / "orders" / ".statecore" / "fetched" / "files"
                inodes.update({file.name: file.stat().st_ino for file in files.iterdir()})

    report = fetch(shop, state_dir, faults=Looking())
    assert {name: inodes[name] for name in kept} == kept
    assert report.at_hand_bytes > 0
    assert rows_in(state_dir) == expected(300)


def test_what_was_brought_is_found_by_another_request_for_other_tasks(shop: Shop, state_dir: Path) -> None:
    with pytest.raises(FaultInjected):
        run_fetch(request_for(shop, state_dir), faults=InjectedFault("fetch.after-download"))
    report = fetch(shop, state_dir, tasks=("0_1",))
    assert (report.downloaded_bytes, report.placed) == (0, True)


@pytest.fixture
def based(tmp_path: Path) -> Shop:
    """With stores on bases."""
    shop = Shop(tmp_path / "shop")
    shop.root.mkdir()
    shop.publish([200, 300], based=True)
    return shop


def file_of(shop: Shop, of: str) -> str:
    """The hash of a file that a store of the newest snapshot has: of its base, or a run."""
    task_manifests = shop.app_repository.task_manifests(
        shop.app_repository.manifest(shop.app_repository.head().snapshots[0]).value.task_manifests
    )
    database = task_manifests["0_0"].manifest.stores[1].databases[0]
    if of == "base":
        return next(file.sha256 for file in database.base if file.name.endswith(".sst"))
    return database.runs[0].run.sha256


@pytest.mark.parametrize("point", one_of(["fetch.after-images", "fetch.after-download"]))
@pytest.mark.parametrize("of", ["base", "run"])
@pytest.mark.parametrize("damage", one_of([flipped, cut]))
def test_what_was_damaged_on_this_disk_since_it_came_is_brought_again_and_built_again(
    based: Shop, state_dir: Path, point: str, of: str, damage: Callable[[Path], None]
) -> None:
    with pytest.raises(FaultInjected):
        run_fetch(request_for(based, state_dir), faults=InjectedFault(point))
    file = state_dir / "orders" / ".statecore" / "fetched" / "files" / file_of(based, of)
    size = file.stat().st_size
    damage(file)  # and with it the image that it is linked into
    said: list[str] = []
    report = fetch(based, state_dir, said.append)
    assert (report.skipped_snapshots, report.downloaded_bytes) == ((), size)
    assert not any("Downloaded again" in line for line in said), "it was seen before anything was built of it"
    assert rows_in(state_dir) == expected(300)
    if of == "base":  # whose blocks may be in a cache
        placed = (state_dir / "orders" / "0_0" / "rocksdb" / "plain").glob("*.sst")
        assert file.name in {file_sha256(path) for path in placed}


@pytest.mark.parametrize("of", ["base", "run"])
@pytest.mark.parametrize("damage", [flipped, Path.unlink])
def test_what_this_disk_changes_between_its_coming_and_its_place_is_brought_again(
    based: Shop, state_dir: Path, of: str, damage: Callable[[Path], None]
) -> None:
    file = state_dir / "orders" / ".statecore" / "fetched" / "files" / file_of(based, of)

    class Damaging(FaultPoints):
        done = False

        def reach(self, point: str) -> None:
            if point == "fetch.after-download" and not self.done:
                self.done = True
                damage(file)

    said: list[str] = []
    report = run_fetch(request_for(based, state_dir), faults=Damaging(), say=said.append)
    assert report.placed
    assert any(line.startswith("Downloaded again") for line in said)
    assert rows_in(state_dir) == expected(300)
    placed = (state_dir / "orders" / "0_0" / "rocksdb" / "plain").glob("*.sst")
    assert file.name in {file_sha256(path) for path in placed}


def test_what_killed_tries_left_half_does_not_fill_the_disk(shop: Shop, state_dir: Path) -> None:
    half = state_dir / "orders" / ".statecore" / "fetched" / "partial" / "killed"
    with pytest.raises(FaultInjected):
        run_fetch(request_for(shop, state_dir), faults=InjectedFault("fetch.after-download"))
    half.write_bytes(b"half of a file")
    with pytest.raises(FaultInjected):
        run_fetch(request_for(shop, state_dir), faults=InjectedFault("fetch.during-download"))
    assert not half.exists()


def test_a_live_file_that_cannot_be_read_is_brought(
    shop: Shop, state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetch(shop, state_dir)
    whole = fetch(shop, state_dir, replace=True, plan_only=True)
    unreadable = []
    opened = os.open

    def fails_once(path: Any, flags: int, *how: Any, **more: Any) -> int:
        if str(path).endswith(".sst") and not flags & os.O_WRONLY and not unreadable:
            unreadable.append(Path(path).stat().st_size)
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        return opened(path, flags, *how, **more)

    monkeypatch.setattr(os, "open", fails_once)
    report = fetch(shop, state_dir, replace=True)
    assert report.placed
    assert report.at_hand_bytes == whole.at_hand_bytes - unreadable[0] > 0
    assert report.downloaded_bytes == whole.downloaded_bytes + unreadable[0]
    assert rows_in(state_dir) == expected(300)


def test_a_plan_to_replace_says_what_would_come_and_what_is_here(shop: Shop, state_dir: Path) -> None:
    older = shop.app_repository.head().snapshots[1].snapshot
    fetch(shop, state_dir, snapshot=older)
    before = tree(state_dir)
    plan = fetch(shop, state_dir, replace=True, plan_only=True)
    assert tree(state_dir) == before
    report = fetch(shop, state_dir, replace=True)
    assert report.at_hand_bytes > 0
    assert (plan.downloaded_bytes, plan.at_hand_bytes) == (report.downloaded_bytes, report.at_hand_bytes)
