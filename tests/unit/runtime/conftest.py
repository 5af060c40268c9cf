"""Processes that are killed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.harness.forked import Forks


@pytest.fixture(scope="session")
def forks() -> Iterator[Forks]:
    """Starts processes of this worker's tests, one at a time."""
    with Forks() as made:
        yield made
