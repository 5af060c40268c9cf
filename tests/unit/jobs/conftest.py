"""A repository to be fetched from."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.unit.jobs.published import Shop


@pytest.fixture(scope="session")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with two snapshots, the newer with one run more; nobody changes it."""
    shop = Shop(tmp_path_factory.mktemp("shop"))
    shop.publish([150, 200])
    shop.publish([150, 200, 300])
    return shop.root


@pytest.fixture
def shop(published: Path) -> Shop:
    return Shop(published)


@pytest.fixture
def own_shop(published: Path, tmp_path: Path) -> Shop:
    """The same, to be damaged."""
    shutil.copytree(published / "repository", tmp_path / "shop" / "repository")
    return Shop(tmp_path / "shop")


@pytest.fixture
def state_dir(tmp_path: Path) -> Path:
    return tmp_path / "state"
