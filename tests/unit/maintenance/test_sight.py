"""What is read of a directory that changes meanwhile, or that may not be read."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import statecore.maintenance.sight as sight
from statecore.errors import Invalid
from tests.golden.directories import unpacked
from tests.harness.damage import AT_LEAST_ONCE
from tests.unit.maintenance.golden import examined


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
