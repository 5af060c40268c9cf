# ruff: noqa
"""A topic whose start moves during every read: with what pauses, and how often, a store is built again."""

from __future__ import annotations

from pathlib import Path

from statecore.runtime.global_state import GlobalState
from tests.unit.runtime.global_world import STORE, World, log
from tests.unit.runtime.test_global_failures import At


def test_a_log_whose_start_moves_during_every_read_is_not_read_for_ever_without_a_pause(tmp_path: Path) -> None:
    world, reads = World(tmp_path), list[float]()

    def trim() -> None:  # retention is faster than the reader
        reads.append(world.time.now)
        start = 10 * len(reads)
        world.topic.parts[0] = log({b"a": b"1", b"b": b"2"}, start=start)

    faults = At("global.before-read", trim, times=1000)
    with world.stores(faults=faults, recovery_attempts=4, retry_backoff=1.0) as stores:
        for _ in range(40):
            stores.poll()
        one = stores.stores[STORE]
        print(len(reads), set(reads), one.state, len(one.recoveries))
        assert len(reads) < 40, "read and built anew at every poll, at one moment of the clock"
        assert one.state is not GlobalState.RUNNING
