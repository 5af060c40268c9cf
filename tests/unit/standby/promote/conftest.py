"""An application that is down, and standby tasks beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.standby.promote.promoting import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)
