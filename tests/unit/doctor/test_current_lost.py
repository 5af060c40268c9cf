"""A store that lost ``CURRENT`` is damage for everybody, also where its rows are in its log only."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from statecore.conversion.inspection import InspectionTarget, inspect_task
from statecore.doctor.diagnosis import diagnose_directory
from statecore.formats.kinds import StoreKind
from statecore.formats.releases import CURRENT
from statecore.formats.topic_partition import TopicPartition
from statecore.statedir.state_directory import StateDirectory
from statecore.statedir.task_layout import StoreDirectory, why_partially_deleted
from statecore.stores.rocksdb.directory import data_files_in
from statecore.stores.rocksdb.store import RocksDBStore
from statecore.tasks.offset_sums import TaskDirectoryState, read_task_sum


@pytest.fixture(params=["rocksdb/s", "s/s.0"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A store as a killed process left it, with rows in its log and in no other file, and then without CURRENT."""
    live, left = tmp_path / "live", tmp_path / "app" / "0_0" / request.param
    with RocksDBStore(live, StoreKind.KEY_VALUE, create=True) as opened:
        opened.put(b"key", b"value")
        opened.commit({TopicPartition("app-s-changelog", 0): 7})
        shutil.copytree(live, left)
    assert not data_files_in(left)
    assert any(file.stat().st_size for file in left.glob("*.log"))
    (left / "CURRENT").unlink()
    return left


def test_its_rows_in_the_log_are_missed_by_everybody(store: Path, tmp_path: Path) -> None:
    directory, task = StateDirectory(tmp_path, "app"), tmp_path / "app" / "0_0"
    found = diagnose_directory(directory)
    assert {(one.task, one.store, one.code) for one in found.findings} == {("0_0", "s", "current-missing")}
    assert found.exit_code == 22
    (converted,) = inspect_task("0_0", task, "app", None, InspectionTarget(False, CURRENT.sst_format)).stores
    assert converted.damage
    assert read_task_sum(directory, "0_0", None).state is TaskDirectoryState.DAMAGED
    segmented = store.parent.name == "s"
    assert why_partially_deleted(StoreDirectory("s", store.parent if segmented else store, segmented))


def test_a_log_is_said_to_fail_every_start_and_without_one_the_files_to_be_deleted(store: Path, tmp_path: Path) -> None:
    (store / "000077.sst").write_bytes(b"rows")
    (one,) = diagnose_directory(StateDirectory(tmp_path, "app")).findings
    assert ("every start" in one.what, "empty database" in one.what) == (True, False)
    for file in store.glob("*.log"):
        file.unlink()
    (one,) = diagnose_directory(StateDirectory(tmp_path, "app")).findings
    assert ("every start" in one.what, "empty database" in one.what) == (False, True)
    assert not any(word in one.kind.means for word in ("start", "empty database"))


def test_an_empty_log_has_lost_nothing(store: Path, tmp_path: Path) -> None:
    for file in store.glob("*.log"):
        file.write_bytes(b"")
    found = diagnose_directory(StateDirectory(tmp_path, "app"))
    assert "current-missing" not in {one.code for one in found.findings}
