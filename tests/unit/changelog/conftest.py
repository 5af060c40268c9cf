"""Scripted brokers, clients of them, and a clock that does not make anybody wait."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from statecore.changelog.cluster import Cluster
from tests.unit.changelog.scripted import Clock, ScriptedBrokers

Connect = Callable[..., Cluster]


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    """What is closed when the test is over, clients before their brokers."""
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def start(opened: ExitStack) -> Callable[..., ScriptedBrokers]:
    """Starts scripted brokers."""

    def started(*args: Any, **values: Any) -> ScriptedBrokers:
        return opened.enter_context(ScriptedBrokers(*args, **values))

    return started


@pytest.fixture
def brokers(start: Callable[..., ScriptedBrokers]) -> ScriptedBrokers:
    """One broker."""
    return start()


@pytest.fixture
def connect(opened: ExitStack) -> Connect:
    """Makes clients. They come back to a broker that hung up without a pause."""

    def connected(brokers: ScriptedBrokers, *, timeout: float = 10.0, address: str = "", **kafka: Any) -> Cluster:
        settings = {"reconnect_backoff_ms": 0, **kafka}
        return opened.enter_context(Cluster(address or brokers.address, settings, timeout=timeout))

    return connected


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Time that only passes by the pauses of the code under test."""
    made = Clock()
    made.put_in_place(monkeypatch)
    return made
