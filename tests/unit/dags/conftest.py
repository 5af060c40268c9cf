"""Airflow's home is set when the tests are collected: before any of them imports Airflow."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from tests.unit.airflow.home import settle

settle()


@pytest.fixture(autouse=True)
def handler_of_sigterm() -> Iterator[None]:
    """``dag.test`` runs tasks in this process, and the handler of Airflow's task runner would stay."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)
