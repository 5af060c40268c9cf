"""A repository in memory whose clock a test sets."""

from __future__ import annotations

import pytest

from tests.harness.simulated_store import Storage
from tests.unit.repository.snapshots import Clock


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def storage(clock: Clock) -> Storage:
    return Storage(clock=clock)
