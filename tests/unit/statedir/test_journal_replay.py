"""Recovery of an interrupted placement by its journal."""

from __future__ import annotations

import os

import pytest

from statecore.errors import Invalid
from statecore.faults import FaultInjected, InjectedFault
from statecore.statedir.file_trees import fingerprint
from statecore.statedir.placement import apply_placement, recover
from statecore.statedir.placement_plan import plan_placement
from statecore.statedir.replaced_tasks import replaced_in
from statecore.stores.rocksdb.store import RocksDBStore
from tests.harness.filesystems import without_exchange
from tests.unit.statedir.support import (
    EOS,
    KIND,
    changelog,
    interrupted,
    make_image,
    make_live,
    offset_of,
    work_content,
)


@pytest.mark.parametrize("point", ["after-journal", "before-swap", "after-swap", "after-mark", "after-keeping"])
def test_recovery_keeps_the_replaced_tasks_of_an_interrupted_placement_once(directory, point):
    make_live(directory, "0_0", "s")
    was = fingerprint(directory.task_path("0_0"))
    plan = plan_placement(directory, [make_image(directory, "0_0", "s")], guarantee=EOS, replace=True)
    with pytest.raises(FaultInjected):
        apply_placement(plan, InjectedFault(f"placement.{point}", "raise"), keeps=True)
    for _ in range(2):
        recover(directory)
        (kept,) = replaced_in(directory)
        assert fingerprint(kept / "0_0") == was
    assert offset_of(directory, "0_0", "s") == 9


def test_recovery_does_not_change_a_task_that_the_application_has_used(directory, swapping):
    for task in ("0_0", "0_1", "0_2"):
        make_live(directory, task, "s")
    interrupted(directory, "placement.after-swap", *(make_image(directory, f"0_{n}", "s") for n in range(3)))
    # The application starts, and goes on with one new and two old directories.
    for task, offset in (("0_0", 30), ("0_1", 31)):
        with RocksDBStore(directory.store_path(task, "s", KIND), KIND) as store:
            store.commit({changelog(task, "s"): offset})
    said = list[str]()
    report = recover(directory, say=said.append)
    assert (report.placed, report.put_back, report.left_alone) == (("0_0", "0_2"), (), ("0_1",))
    recover(directory, say=said.append)  # has nothing to say
    assert said == [str(report)]
    assert [offset_of(directory, f"0_{n}", "s") for n in range(3)] == [30, 31, 9]


def test_recovery_sets_the_old_task_aside_if_the_application_created_another(directory, monkeypatch):
    without_exchange(monkeypatch)
    make_live(directory, "0_0", "s")
    interrupted(directory, "placement.between-renames", make_image(directory, "0_0", "s"))
    assert not directory.task_path("0_0").exists()
    make_live(directory, "0_0", "s", 44)
    assert recover(directory).left_alone == ("0_0",)
    assert offset_of(directory, "0_0", "s") == 44
    aside = list((directory.work_path / "set-aside").rglob("CURRENT"))
    assert len(aside) == 1


def test_recovery_puts_the_old_task_back_if_the_new_one_is_incomplete(directory, swapping):
    make_live(directory, "0_0", "s")
    make_live(directory, "0_1", "s")
    images = [make_image(directory, f"0_{n}", "s") for n in range(2)]
    interrupted(directory, "placement.before-swap", *images, nth=2)
    staged = next(directory.work_path.glob("placement-*/tasks/0_1"))
    next(staged.rglob("*.sst")).unlink()
    report = recover(directory)
    assert (report.placed, report.put_back) == (("0_0",), ("0_1",))
    assert (offset_of(directory, "0_0", "s"), offset_of(directory, "0_1", "s")) == (9, 5)


@pytest.mark.parametrize("live", [True, False])
def test_recovery_checks_databases_swapped_before_the_crash(directory, swapping, live):
    if live:
        make_live(directory, "0_0", "s")
    interrupted(directory, "placement.after-swap", make_image(directory, "0_0", "s"))
    table = next(directory.task_path("0_0").rglob("*.sst"))
    for file in (table, *directory.task_path("0_0").rglob("*.log")):
        file.write_bytes(b"\0" * file.stat().st_size)  # as after a power loss on a disk that lied
    report = recover(directory)
    assert report.put_back == ("0_0",)
    assert offset_of(directory, "0_0", "s") == (5 if live else None)
    assert directory.task_path("0_0").exists() is live


def test_recovery_deletes_dead_work_directories_and_keeps_others(directory):
    for name in ("placement-dead", "plans", "young", "old", "set-aside"):
        (directory.work_path / name).mkdir()
        (directory.work_path / name / "file").touch()
    (directory.work_path / "journal.json.tmp").touch()
    for path in ("old/file", "old", "plans", "set-aside"):
        os.utime(directory.work_path / path, (0, 0))
    assert set(recover(directory).deleted) == {"placement-dead", "journal.json.tmp", "old"}
    assert work_content(directory) == {"plans", "young", "set-aside"}


def test_a_journal_of_another_version_is_refused(directory):
    (directory.work_path / "journal.json").write_text('{"version": 99}')
    path = str(directory.work_path / "journal.json")
    with pytest.raises(Invalid, match="version 99") as caught:
        recover(directory)
    assert caught.value.context["path"] == path
    for torn in ("{", "[]", '{"version": 2}', '{"version": 2, "request_id": "r", "tasks": 7}'):
        (directory.work_path / "journal.json").write_text(torn)
        with pytest.raises(Invalid) as caught:
            recover(directory)
        assert caught.value.context["path"] == path
