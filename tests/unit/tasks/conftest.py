"""An active task under both guarantees; Kafka is a fake."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from statecore.spec.model import ProcessingGuarantee
from tests.unit.tasks.active_world import BOTH, Brokers, World


@pytest.fixture(params=BOTH, ids=[one.value for one in BOTH])
def guarantee(request: pytest.FixtureRequest) -> ProcessingGuarantee:
    found: ProcessingGuarantee = request.param
    return found


@pytest.fixture
def world(tmp_path: Path, guarantee: ProcessingGuarantee) -> Iterator[World]:
    made = World(tmp_path, guarantee)
    with Brokers(made) as made.cluster, made.directory.lock():
        yield made
