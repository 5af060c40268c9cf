"""Airflow's home is set when the tests are collected: before any of them imports Airflow."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.airflow.home import settle
from tests.unit.airflow.stub import StubSpark

settle()


@pytest.fixture
def spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StubSpark:
    """A local ``spark-submit`` that runs a stub of the jobs."""
    return StubSpark.local(tmp_path, monkeypatch)
