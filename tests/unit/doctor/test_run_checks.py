"""What is said of a directory depends on whether somebody is at work in it."""

from __future__ import annotations

import shutil
from dataclasses import replace

import pytest

from statecore.doctor.checks.context import CheckContext
from statecore.doctor.diagnosis import run_checks
from statecore.doctor.inspection_reader import read_inspection
from statecore.spec.reader import parse_spec
from statecore.statedir.state_directory import StateDirectory
from statecore.stores.lock_holder import Holder
from tests.golden.directories import golden_directories, unpacked
from tests.harness.damage_cases import AT_LEAST_ONCE, STAMPED
from tests.harness.damage_functions import PLAIN


@pytest.fixture
def inspection(tmp_path):
    """A directory in which one store is missing in one task, and another in all."""
    application = unpacked(AT_LEAST_ONCE, tmp_path)
    shutil.rmtree(application / "0_0/rocksdb" / PLAIN)
    for task in ("0_0", "0_1"):
        shutil.rmtree(application / task / "rocksdb" / STAMPED)
    directory = StateDirectory(application.parent, application.name)
    return read_inspection(directory, spec=parse_spec(golden_directories()[AT_LEAST_ONCE].spec))


def absent(inspection):
    _, beyond = run_checks(inspection, CheckContext(AT_LEAST_ONCE, spec=inspection.spec))
    return {(one.task, one.store) for one in beyond if one.code == "store-absent"}


def test_directories_come_and_go_while_the_application_runs(inspection):
    assert ("0_0", PLAIN) in absent(inspection)
    assert STAMPED in {store for _, store in absent(inspection)}
    busy = tuple(replace(store, in_use=True) for store in inspection.stores)
    assert absent(replace(inspection, holder=Holder(7, "java"), stores=busy)) == set()


def test_a_task_with_an_open_store_has_no_missing_stores(inspection):
    holder = Holder(7, "python")
    of_one = [
        replace(store, in_use=True, holder=holder) if store.task == "0_0" else store for store in inspection.stores
    ]
    assert not {task for task, _ in absent(replace(inspection, stores=tuple(of_one)))} & {"", "0_0"}
    of_other = [
        replace(store, in_use=True, holder=holder) if store.task == "0_1" else store for store in inspection.stores
    ]
    assert ("0_0", PLAIN) in absent(replace(inspection, stores=tuple(of_other)))
