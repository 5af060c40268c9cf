"""A repository in memory that fails only on request, and a first snapshot in it."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from statecore.repository.application_repository import ApplicationRepository
from tests.harness.simulated_store import Network, SimulatedBlobs, SimulatedPointers, Storage
from tests.unit.repository.snapshots import APPLICATION, BOTH, Snapshots, repository


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
def orders(app_repository: ApplicationRepository, storage: Storage, network: Network, tmp_path: Path) -> Snapshots:
    return Snapshots(app_repository, storage, network, tmp_path / "runs")


@pytest.fixture
def first(orders: Snapshots) -> None:
    """A snapshot of all tasks."""
    orders.publish("first", BOTH, drops_other_tasks=True)
