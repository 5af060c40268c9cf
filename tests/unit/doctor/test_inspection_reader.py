"""What is read of a directory that changes meanwhile, or that may not be read."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from statecore.doctor.diagnosis import diagnose_directory, inspect
from statecore.errors import Invalid
from statecore.formats.kinds import StoreKind
from statecore.statedir.journal import JOURNAL
from statecore.statedir.state_directory import StateDirectory
from tests.golden.directories import unpacked
from tests.harness.damage_cases import AT_LEAST_ONCE
from tests.harness.raising import raises
from tests.unit.doctor.golden import examined
from tests.unit.doctor.stored import offsets, write_database
from tests.unit.statedir.lost_lock import at_work


def test_a_task_deleted_during_the_inspection_is_no_finding(tmp_path, monkeypatch):
    """It is gone the first time that it is listed, the second time, and so on."""
    whole, scandir, times = unpacked(AT_LEAST_ONCE, tmp_path), os.scandir, 0

    def gone(path):
        nonlocal left
        if str(path) == str(application / "0_0"):
            left -= 1
            if left == 0:
                shutil.rmtree(path, ignore_errors=True)
        return scandir(path)

    left = 0
    while left <= 0:
        times += 1
        application = Path(shutil.copytree(whole, tmp_path / f"{times}" / whole.name))
        left = times
        with monkeypatch.context() as listing:
            listing.setattr(os, "scandir", gone)
            examined(application, AT_LEAST_ONCE)
    assert times > 2


def test_an_unreadable_work_directory_is_reported_and_no_finding(tmp_path, monkeypatch):
    opened = os.open

    def refused(path, *how, **more):
        if Path(path).name == JOURNAL:
            raise PermissionError(13, "Permission denied", str(path))
        return opened(path, *how, **more)

    monkeypatch.setattr(os, "open", refused)
    with raises(Invalid, "permission-denied"):
        examined(unpacked(AT_LEAST_ONCE, tmp_path), AT_LEAST_ONCE)


def test_an_application_that_has_lost_its_lock_is_one_that_runs(tmp_path):
    directory = StateDirectory(tmp_path, "app")
    said = offsets("app-s-changelog", 1, 41, status=1)  # not closed
    write_database(tmp_path / "app/0_1/rocksdb/s", {"default": [], "offsets": said})
    with at_work(directory, directory.store_path("0_0", "s", StoreKind.KEY_VALUE), "lost") as process:
        for seen in (inspect(directory), diagnose_directory(directory)):
            lock = seen.to_json()["lock"]
            assert (lock["process"], lock["lost"]) == (process, True)
            assert [store.in_use for store in seen.stores] == [True, True]
            assert [one.what for one in seen.findings if one.task == "0_1"] == []
    assert inspect(directory).holder is None
    assert [one.what for one in diagnose_directory(directory).findings if one.task == "0_1"] != []
