"""Airflow's home is set when the tests are collected: before any of them imports Airflow."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.airflow.home import migrate, settle
from tests.unit.airflow.stub import StubSpark

settle()


@pytest.fixture(autouse=True)
def handler_of_sigterm() -> Iterator[None]:
    """``dag.test`` runs tasks in this process, and the handler of Airflow's task runner would stay."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.fixture(scope="module", autouse=True)
def database() -> None:
    migrate()


@pytest.fixture
def spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StubSpark:
    """A local ``spark-submit`` that runs a stub of the jobs."""
    return StubSpark.local(tmp_path, monkeypatch)
