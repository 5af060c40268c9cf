"""What a plan of a backup reports of its stores."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from statecore.formats.kinds import StoreKind
from statecore.jobs.backup import run
from statecore.jobs.backup.newest_snapshot import NewestSnapshot, read_newest
from statecore.jobs.backup.report import BackupOutcome
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.publish.upload import SMALL
from tests.unit.jobs.backup.snapshots import ROWS, World, left_open


def test_a_plan_knows_files_that_the_newest_snapshot_has_in_other_stores(tmp_path: Path) -> None:
    world = World(tmp_path, one={"kind": "key-value"}, two={"kind": "key-value"})
    for store in ("one", "two"):
        world.write(ROWS, 7, path=world.database(store), changelog=world.changelog(store))
    world.snapshot(stores=("one",))
    (planned,) = world.snapshot(stores=("two",), plan_only=True).stores
    (taken,) = world.snapshot(stores=("two",)).stores
    assert planned == taken
    assert taken.new_files < taken.files  # CURRENT says the same in both


def rewritten(path: Path, content: bytes) -> None:
    with path.open("r+b") as file:
        file.write(content)


def test_a_plan_reads_no_large_file(world: World) -> None:
    world.write({b"%05d" % number: os.urandom(1000) for number in range(2000)}, 7)
    world.snapshot()
    world.write({b"more": os.urandom(2 << 20)}, 8)
    large = {path: path.read_bytes() for path in world.database().glob("*.sst") if path.stat().st_size >= SMALL}
    assert max(map(len, large.values())) > 2 << 20
    for path, content in large.items():  # other bytes in the middle, which who reads them would see
        rewritten(path, content[:500_000] + bytes(1000) + content[501_000:])
    (planned,) = world.snapshot(plan_only=True).stores
    for path, content in large.items():
        rewritten(path, content)
    (taken,) = world.snapshot().stores
    assert planned == taken
    assert 2 << 20 < taken.new_bytes < taken.bytes


def test_a_plan_knows_a_store_that_has_to_be_closed_on_the_way(world: World) -> None:
    world.write(ROWS, 7)
    left_open(world.database())
    (first,) = world.snapshot(plan_only=True).stores
    assert (first.written, first.new_files) == (True, first.files)
    world.snapshot()
    (again,) = world.snapshot(plan_only=True).stores
    assert (again.written, again.new_files, again.new_bytes) == (True, 0, 0)
    assert world.snapshot().outcome is BackupOutcome.UNCHANGED


def test_a_plan_of_a_store_that_had_another_kind_has_the_new_files_of_the_backup(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.write(ROWS, 7)
    left_open(world.database())
    world.snapshot()

    def redeclared(repository: ApplicationRepository, tasks: Iterable[str]) -> NewestSnapshot:
        newest = read_newest(repository, tasks)
        found = {
            task: replace(one, stores=tuple(replace(store, kind=StoreKind.WINDOW) for store in one.stores))
            for task, one in newest.task_manifests.items()
        }
        return newest._replace(task_manifests=found)

    monkeypatch.setattr(run, "read_newest", redeclared)
    (planned,) = world.snapshot(plan_only=True).stores
    (taken,) = world.snapshot().stores
    assert (planned.written, planned.new_files) == (True, taken.new_files)
    assert planned.new_files > 0
