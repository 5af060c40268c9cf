"""An active task under both guarantees; Kafka is a fake."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from statecore.changelog.cluster import Cluster
from statecore.processor import active_task
from statecore.spec.model import ProcessingGuarantee
from tests.unit.processor.active_world import BOTH, World


@pytest.fixture(params=BOTH, ids=[one.value for one in BOTH])
def guarantee(request: pytest.FixtureRequest) -> ProcessingGuarantee:
    found: ProcessingGuarantee = request.param
    return found


@pytest.fixture
def world(tmp_path: Path, guarantee: ProcessingGuarantee, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    made = World(tmp_path, guarantee)
    with Cluster("localhost:1") as cluster:
        made.cluster = cluster
        monkeypatch.setattr(active_task, "committed_offsets", made.committed)
        monkeypatch.setattr(active_task, "changelog_ends", made.ends)
        with made.directory.lock():
            yield made
