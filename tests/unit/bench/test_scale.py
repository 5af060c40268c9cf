from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

from bench.scale import MEASURED, Case, dollars, executors, measured_table
from bench.scale_model import INSTANCES, MEGA, TERA, Cluster, Costs, Workload, distinct, planned, restored
from bench.sharing import Hosts

COSTS = Costs()
SMALL = Workload(log_bytes=TERA / 100, partitions=20)
DOCS = Path(__file__).resolve().parents[3] / "docs"


@pytest.mark.parametrize("records", [100, 10_000, 100_000])
def test_the_rows_that_are_left_are_those_of_keys_drawn_at_random(records: int) -> None:
    drawn = np.random.default_rng(1).integers(0, 10_000, records)
    assert distinct(records, 10_000) == pytest.approx(len(np.unique(drawn)), rel=0.02)


def test_every_record_is_read_once_and_more_ranges_leave_more_rows() -> None:
    found = [planned(SMALL, Cluster(range_cut=cut), COSTS) for cut in (1, 2, 3, 4)]
    assert [len(plan.read) for plan in found] == [20, 40, 60, 80]
    for plan in found:
        assert sum(task[0].network for task in plan.read) == pytest.approx(SMALL.log_bytes, rel=1e-6)
        assert plan.run_bytes == pytest.approx(sum(task[2].network for task in plan.read))
        assert plan.fetched_bytes == pytest.approx(sum(task[0].network for task in plan.fetch))
    assert [plan.run_bytes for plan in found] == sorted(plan.run_bytes for plan in found)
    # Kafka Streams leaves three runs as they are; of four two are merged, and nothing is fetched twice.
    assert [bool(plan.merge) for plan in found] == [False, False, False, True]
    assert found[2].fetched_bytes == found[2].run_bytes
    assert found[0].run_bytes < found[3].fetched_bytes < found[3].run_bytes


def test_without_overwrites_no_row_is_gone_however_it_is_cut() -> None:
    work = replace(SMALL, overwrites=0.0)
    rows = work.log_bytes / COSTS.log_bytes * COSTS.row_bytes
    for cut in (1, 4):
        assert planned(work, Cluster(range_cut=cut), COSTS).fetched_bytes == pytest.approx(rows, rel=1e-6)


@pytest.mark.parametrize(
    ("cluster", "rate", "of"),
    [
        (Cluster(quota=2 * MEGA), 24 * MEGA, "brokers"),
        (Cluster(executors=Hosts(2, 4, 10 * MEGA, 1000 * MEGA)), 20 * MEGA, "network"),
        (Cluster(brokers=1), 250 * MEGA, "brokers"),
    ],
)
def test_no_restore_is_faster_than_its_bottleneck_and_it_is_named(cluster: Cluster, rate: float, of: str) -> None:
    found = restored(SMALL, cluster, COSTS)
    assert found.courses["read"].seconds >= SMALL.log_bytes / rate
    assert found.busiest("read")[0] == of
    assert (
        found.seconds > found.courses["read"].seconds + found.plan.fetched_bytes / INSTANCES.count / INSTANCES.network
    )


def test_executors_are_paid_for_as_long_as_they_read_and_merge() -> None:
    case = Case("few", SMALL, executors(10))
    found = restored(case.work, case.cluster, COSTS)
    machines, store, zones = dollars(case, found)
    assert machines == pytest.approx((found.executor_seconds + 120) / 3600 * 10 * 0.24)
    assert dollars(replace(case, cluster=executors(20)), found)[0] == pytest.approx(2 * machines)
    assert zones == pytest.approx(SMALL.log_bytes / 1e9 * 2 / 3 * 0.02)
    assert store > 0


def test_the_page_names_every_cost_that_the_simulation_takes() -> None:
    assert [field.name for field in fields(Costs)] == list(MEASURED)
    assert measured_table() in (DOCS / "scale.md").read_text()
