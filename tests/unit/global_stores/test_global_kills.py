"""Processes that are killed while they build a global store anew: what is left is old, all new, or nothing."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from statecore.errors import Retryable
from statecore.faults import GLOBAL_POINTS, VARIABLE
from tests.harness.case_selection import one_of, three_of
from tests.harness.forked import Forks
from tests.unit.global_stores.global_world import STORE, TOPIC, World, log, poll_until_running, rows

BEFORE = {b"a": b"1", b"b": b"2", b"c": b"3"}
AFTER = {b"x": b"7", b"z": b"9", b"c": b"8"}


def places_of_before(world: World) -> list[Path]:
    """Where the store lies that was there first, by RocksDB's name of it."""
    name = (world.state_dir / "name").read_text()
    return [path.parent for path in world.application.rglob("IDENTITY") if path.read_text() == name]


@pytest.mark.parametrize("point", three_of(GLOBAL_POINTS))
def test_a_process_that_is_killed_while_it_recovers_leaves_nothing_half_built(
    forks: Forks, world: World, point: str
) -> None:
    exactly_once = GLOBAL_POINTS.index(point) % 2 == 0
    with world.stores() as stores:
        poll_until_running(stores)
    (world.state_dir / "name").write_text((world.live / "IDENTITY").read_text())
    world.recreate(log({b"x": b"7", b"z": b"9"}), log({b"c": b"8"}))
    killed = forks.run(
        "tests.unit.global_stores.global_process",
        *(str(world.state_dir), world.brokers.address, TOPIC, STORE, str(exactly_once)),
        environment={VARIABLE: f"{point}:kill"},
    )
    assert killed.returncode == -signal.SIGKILL, killed.errors
    if world.live.exists():
        assert world.on_disk()[0] in (BEFORE, AFTER)
    assert len(places_of_before(world)) == 1
    with world.stores(round_offsets=1, exactly_once=exactly_once) as stores:
        try:
            assert rows(stores, stale=True) in (BEFORE, AFTER)
        except Retryable:
            assert not world.live.exists()
        poll_until_running(stores)
        assert rows(stores) == AFTER
    assert world.on_disk() == (AFTER, {0: 2, 1: 1})
    assert world.left() == set()
    assert world.kept()[0] == BEFORE


@pytest.mark.parametrize("point", ["global.after-read", "global.after-ingest", "global.after-commit"])
@pytest.mark.parametrize("exactly_once", one_of([False, True]))
def test_a_process_that_is_killed_while_it_follows_loses_nothing(
    forks: Forks, world: World, point: str, exactly_once: bool
) -> None:
    with world.stores() as stores:
        poll_until_running(stores)
    world.topic.parts[0] = log({b"a": b"1", b"b": b"2", b"d": b"4", b"e": b"5"})
    killed = forks.run(
        "tests.unit.global_stores.global_process",
        *(str(world.state_dir), world.brokers.address, TOPIC, STORE, str(exactly_once)),
        environment={VARIABLE: f"{point}:kill"},
    )
    assert killed.returncode == -signal.SIGKILL, killed.errors
    with world.stores(exactly_once=exactly_once) as stores:
        poll_until_running(stores)
        assert rows(stores) == {**BEFORE, b"d": b"4", b"e": b"5"}
        # Rows that were ingested and not committed are not taken under exactly-once.
        assert len(stores.stores[STORE].recoveries) == (exactly_once and point == "global.after-ingest")
    assert world.left() == set()
