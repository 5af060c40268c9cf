"""A repository in memory that does not fail unless it is asked to."""

from __future__ import annotations

from random import Random

import pytest

from statecore.repository.application_repository import ApplicationRepository
from tests.harness.simulated_store import Network, SimulatedBlobs, SimulatedPointers, Storage
from tests.unit.repository.snapshots import APPLICATION, repository


@pytest.fixture
def storage() -> Storage:
    return Storage()


@pytest.fixture
def network(storage: Storage) -> Network:
    return Network(storage, Random(0))


@pytest.fixture
def app_repository(network: Network) -> ApplicationRepository:
    return ApplicationRepository(repository(SimulatedBlobs(network), SimulatedPointers(network)), APPLICATION)
