"""Worlds for tests of a backup."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.filesystems import without_clones
from tests.unit.jobs.backup.snapshots import CLICKS, INTERVAL, ROWS, World, segment_of, two_snapshots


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.fixture
def clicks(tmp_path: Path) -> World:
    """With a windowed store of two segments at one offset."""
    world = World(tmp_path, **CLICKS)
    world.write(ROWS, 7)
    for segment in (0, INTERVAL):
        segment_of(world, segment, 9)
    return world


@pytest.fixture
def linked(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """With two snapshots of files that are large enough to be linked, on a file system that clones nothing."""
    without_clones(monkeypatch)
    two_snapshots(world)
    return world
