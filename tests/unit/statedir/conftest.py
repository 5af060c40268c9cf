"""A state directory under its lock, and both ways of swapping tasks."""

from __future__ import annotations

from pathlib import Path

import pytest

from statecore.statedir.state_directory import StateDirectory
from tests.harness.filesystems import without_exchange


@pytest.fixture
def directory(tmp_path: Path):
    directory = StateDirectory(tmp_path / "state", "app")
    with directory.lock():
        yield directory


@pytest.fixture(params=["exchange", "renames"])
def swapping(request, monkeypatch):
    """Both ways of swapping two directories."""
    if request.param == "renames":
        without_exchange(monkeypatch)
