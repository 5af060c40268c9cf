"""What is read of a directory that changes meanwhile, or that may not be read."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import statecore.maintenance.sight as sight
from statecore.errors import Invalid
from statecore.formats.kinds import StoreKind
from statecore.maintenance.doctor import examine
from statecore.maintenance.inspection import inspect
from statecore.placement.state_directory import StateDirectory
from tests.golden.directories import unpacked
from tests.harness.damage import AT_LEAST_ONCE
from tests.unit.maintenance.golden import examined
from tests.unit.maintenance.stored import offsets, write_database
from tests.unit.placement.lost_lock import at_work


def test_a_task_that_goes_while_it_is_looked_at_is_no_defect(tmp_path, monkeypatch):
    application = unpacked(AT_LEAST_ONCE, tmp_path)
    read = sight._files_in

    def gone(path):
        shutil.rmtree(path, ignore_errors=True)
        return read(path)

    monkeypatch.setattr(sight, "_files_in", gone)
    examined(application, AT_LEAST_ONCE)


def test_a_work_directory_that_may_not_be_read_is_said_and_no_defect(tmp_path, monkeypatch):
    def refused(work: Path) -> None:
        raise PermissionError(13, "Permission denied", str(work / "journal.json"))

    monkeypatch.setattr(sight, "read_journal", refused)
    with pytest.raises(Invalid, match="Permission denied"):
        examined(unpacked(AT_LEAST_ONCE, tmp_path), AT_LEAST_ONCE)


def test_an_application_that_has_lost_its_lock_is_one_that_runs(tmp_path):
    directory = StateDirectory(tmp_path, "app")
    said = offsets("app-s-changelog", 1, 41, status=1)  # not closed
    write_database(tmp_path / "app/0_1/rocksdb/s", {"default": [], "offsets": said})
    with at_work(directory, directory.store_path("0_0", "s", StoreKind.KEY_VALUE), "lost") as process:
        for seen in (inspect(directory), examine(directory)):
            lock = seen.to_json()["lock"]
            assert (lock["process"], lock["lost"]) == (process, True)
            assert [store.in_use for store in seen.stores] == [True, True]
            assert [one.what for one in seen.findings if one.task == "0_1"] == []
    assert inspect(directory).holder is None
    assert [one.what for one in examine(directory).findings if one.task == "0_1"] != []
