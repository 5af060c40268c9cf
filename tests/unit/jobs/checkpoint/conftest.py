from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.jobs.checkpoint.reconciling import CLICKS, OTHER, PLAIN, World, later
from tests.unit.jobs.published import Shop


@pytest.fixture
def world(own_shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "scratch"))
    made = World(own_shop, tmp_path / "scratch")
    for key in (CLICKS, PLAIN, OTHER):
        made.logs[key] = later(key)
    return made
