from __future__ import annotations

import pytest

from statecore.stopwatch import Stopwatch
from tests.harness.manual_clock import ManualClock


def test_each_stage_gets_the_seconds_of_its_turns() -> None:
    clock, cpu = ManualClock(), ManualClock()
    watch = Stopwatch("decode", clock=clock, cpu_clock=cpu)
    for _ in range(2):
        clock.now, cpu.now = clock.now + 1, cpu.now + 0.5
        with watch.on("fetch"):
            clock.now += 4
            with watch.on("wait"):
                clock.now += 8
        clock.now += 2
    assert watch.wall == {"decode": 6, "fetch": 8, "wait": 16}
    assert watch.cpu == {"decode": 1, "fetch": 0, "wait": 0}


def test_what_fails_has_taken_its_seconds_too() -> None:
    clock = ManualClock()
    watch = Stopwatch("decode", clock=clock)

    def fail() -> None:
        clock.now += 3
        raise RuntimeError

    with pytest.raises(RuntimeError), watch.on("fetch"):
        fail()
    clock.now += 1
    assert watch.wall == {"decode": 1, "fetch": 3}
