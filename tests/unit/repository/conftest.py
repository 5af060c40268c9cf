"""A repository in memory that fails only on request, and a first snapshot in it."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from statecore.repository.application_repository import ApplicationRepository
from tests.harness.simulated_store import Network, SimulatedBlobs, SimulatedPointers, Storage
from tests.unit.repository.snapshots import (
    APPLICATION,
    BOTH,
    publication,
    repository,
    uploaded,
)


@pytest.fixture
def storage() -> Storage:
    return Storage()


@pytest.fixture
def network(storage: Storage) -> Network:
    return Network(storage, Random(0))


@pytest.fixture
def app_repository(network: Network) -> ApplicationRepository:
    return ApplicationRepository(repository(SimulatedBlobs(network), SimulatedPointers(network)), APPLICATION)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "runs"


@pytest.fixture
def first(app_repository: ApplicationRepository, directory: Path) -> None:
    """A snapshot of all tasks."""
    publication(app_repository, "first").publish(uploaded(app_repository, directory, BOTH), whole=True)
