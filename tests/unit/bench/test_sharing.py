"""The simulation behind docs/scale.md: what can be worked out by hand comes out, and nothing is won by chance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from bench.sharing import TICK, Course, Hosts, Phase, fair_rates, simulate

ONE = Hosts(1, 1, 100.0, 50.0)


def run(tasks: Sequence[Sequence[Phase]], hosts: Hosts = ONE, seed: int = 1, **shared: float) -> Course:
    return simulate(tasks, hosts, shared, np.random.default_rng(seed))


@pytest.mark.parametrize(
    ("phase", "seconds"),
    [
        (Phase(20.0, network=100.0), 20.0),
        (Phase(1.0, network=3000.0), 30.0),
        (Phase(1.0, network=100.0, disk=2000.0), 40.0),
        (Phase(1.0, network=100.0, alone=2.0), 50.0),
        (Phase(1.0, network=1000.0, shared={"broker": 1000.0}), 100.0),
    ],
)
def test_a_task_alone_takes_what_its_slowest_resource_takes(phase: Phase, seconds: float) -> None:
    assert run([[phase]], broker=10.0).seconds == pytest.approx(seconds, rel=0.01)
    assert run([[phase, phase]], broker=10.0).seconds == pytest.approx(2 * seconds, rel=0.01)
    assert run([[phase]] * 3, broker=10.0).seconds == pytest.approx(3 * seconds, rel=0.01)


def test_what_one_cannot_use_another_gets() -> None:
    uses = np.array([[0, 1], [0, 2]])
    demands = np.array([[100.0, 100.0], [100.0, 100.0]])
    assert fair_rates(uses, demands, np.array([100.0, 10.0, 1000.0])) == pytest.approx([0.1, 0.9])
    assert fair_rates(uses, demands, np.array([300.0, 300.0, 300.0])) == pytest.approx([1.0, 1.0])


def test_bytes_are_neither_lost_nor_made() -> None:
    tasks = [[Phase(n % 3, network=50.0 * n, shared={"broker": 20.0 * n}), Phase(0.5, disk=40.0)] for n in range(1, 40)]
    found = run(tasks, Hosts(3, 2, 100.0, 50.0), broker=200.0)
    for name, rate, amount in (("broker", 200.0, 20.0), ("network", 300.0, 50.0)):
        assert found.busy(name) * rate * found.seconds == pytest.approx(amount * sum(range(1, 40)), rel=0.01)
    assert found.busy("disk") * 150.0 * found.seconds == pytest.approx(40.0 * 39, rel=0.01)


def test_a_straggler_is_waited_for() -> None:
    tasks = [[Phase(100.0)]] * 10
    assert run(tasks, Hosts(10, 1, 1.0, 1.0)).seconds == pytest.approx(100.0)
    assert run(tasks, Hosts(10, 1, 1.0, 1.0, straggling=0.1, straggler_speed=0.25)).seconds == pytest.approx(400.0)


def test_what_was_lost_is_done_again_and_all_of_it_where_it_lay_on_the_host() -> None:
    hosts = Hosts(10, 1, 1.0, 1.0, losses=3.0, replaced_after=0.0)
    tasks = [[Phase(100.0)]] * 100
    kept, gone = run(tasks, hosts), run(tasks, replace(hosts, durable=False))
    assert run(tasks, replace(hosts, losses=0.0)).seconds == pytest.approx(1000.0)
    assert kept.lost_hosts > 3
    assert 0 < kept.lost_core_seconds <= kept.lost_hosts * 100.0
    assert gone.lost_core_seconds > 2 * kept.lost_core_seconds
    for one in (kept, gone):
        worked = sum(span.seconds * span.busy["cores"] for span in one.spans) * 10
        assert worked == pytest.approx(100 * 100.0 + one.lost_core_seconds, abs=100 * TICK)


def test_the_same_seed_gives_the_same_course() -> None:
    hosts = Hosts(10, 2, 10.0, 5.0, straggling=0.3, losses=10.0)
    tasks = [[Phase(10.0 + n, network=30.0 * n)] for n in range(50)]
    assert run(tasks, hosts, 3) == run(tasks, hosts, 3)
    assert run(tasks, hosts, 3) != run(tasks, hosts, 4)
