"""Frozen plans: which requests they answer, and when they become stale."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from statecore.changelog.cluster import Cluster
from statecore.changelog.model import LogOffsets
from statecore.jobs.planning.frozen_plan import FrozenPlan, load_plan
from statecore.jobs.planning.plan import VersionedStart
from statecore.jobs.planning.planned_tails import covers, why_plan_stale
from statecore.jobs.planning.planner import plan_reads
from statecore.jobs.restore.request import RestoreRequest
from statecore.spec.model import ApplicationSpec
from tests.unit.jobs.planning.plans import FakeCluster, frozen_plan, plan, request, spec
from tests.unit.jobs.support import save_plan

HOUR = 3600.0


@pytest.fixture
def frozen() -> FrozenPlan:
    return frozen_plan()


def test_a_frozen_plan_answers_the_same_request(frozen: FrozenPlan) -> None:
    assert covers(frozen, spec(), request())


@pytest.mark.parametrize(
    ("declared", "asked"),
    [
        pytest.param(spec("at_least_once"), request(), id="guarantee"),
        pytest.param(spec(number="1"), request(), id="subtopology"),
        pytest.param(spec(), request(partitions=(1,)), id="fewer partitions"),
        pytest.param(spec(), request(stores=("a",)), id="fewer stores"),
        pytest.param(
            spec(a={"kind": "timestamped-key-value"}, b={"kind": "timestamped-key-value"}), request(), id="kind"
        ),
        pytest.param(
            spec(a={"kind": "key-value", "changelog": "x"}, b={"kind": "timestamped-key-value"}), request(), id="topic"
        ),
    ],
)
def test_a_plan_does_not_answer_another_request_under_the_same_id(
    frozen: FrozenPlan, declared: ApplicationSpec, asked: RestoreRequest
) -> None:
    assert not covers(frozen, declared, asked)


def test_a_plan_of_one_partition_does_not_answer_a_request_for_all(tmp_path: Path) -> None:
    asked = request(partitions=(1,))
    save_plan(tmp_path / "p.json", FrozenPlan(plan(asked=asked)[0], asked.partitions, 0.0, asked.request_id))
    loaded = load_plan(tmp_path / "p.json")
    assert loaded is not None
    assert covers(loaded, spec(), asked)
    assert not covers(loaded, spec(), request())


def stale(frozen: FrozenPlan, seen: LogOffsets, age: float, partitions: int = 2) -> str | None:
    topics = FakeCluster().describe_topics({part.topic for part in frozen.plan.partitions})
    topics = {name: replace(topic, partitions=partitions) for name, topic in topics.items()}
    offsets = {part.topic_partition: seen for part in frozen.plan.partitions}
    return why_plan_stale(frozen, topics, offsets, frozen.read_at_ms + int(age * 1000))


def test_a_plan_is_valid_at_any_age_while_nothing_was_written(frozen: FrozenPlan) -> None:
    assert stale(frozen, LogOffsets(0, 100, 100), 1000 * HOUR) is None


def test_a_plan_is_valid_for_half_the_delete_retention_when_the_log_has_grown(frozen: FrozenPlan) -> None:
    assert stale(frozen, LogOffsets(0, 120, 120), 0.9 * HOUR) is None
    assert "delete.retention.ms" in str(stale(frozen, LogOffsets(0, 120, 120), 1.1 * HOUR))


def test_a_log_start_beyond_the_end_makes_a_plan_stale(frozen: FrozenPlan) -> None:
    assert stale(frozen, LogOffsets(100, 150, 150), 60) is None
    assert "begins at 101" in str(stale(frozen, LogOffsets(101, 150, 150), 60))


def test_a_log_truncated_below_the_end_makes_a_plan_stale(frozen: FrozenPlan) -> None:
    assert "ends at 99" in str(stale(frozen, LogOffsets(0, 99, 99), 60))


def test_a_store_that_kafka_streams_restores_makes_no_plan_stale_and_waits_for_no_transaction(tmp_path: Path) -> None:
    declared = spec(v={"kind": "versioned-key-value", "retention": "10m"})
    waits: list[float] = []
    made, notes, *_ = plan_reads(
        cast(Cluster, FakeCluster(seen=LogOffsets(0, 50, 100))),  # a transaction is open
        declared,
        request(transaction_wait=60.0),
        parallelism=lambda: 2,
        sleep=waits.append,
    )
    assert not waits
    assert [(part.ranges, part.tail_left) for part in made.partitions] == [((), 0), ((), 0)]
    assert ["Restored by Kafka Streams: v." in note for note in notes] == [True]
    frozen = FrozenPlan(made, (), 0.0, "one", "/staging")
    topics = FakeCluster().describe_topics(["app-v-changelog"])
    later = {part.topic_partition: LogOffsets(80, 200, 200) for part in made.partitions}
    assert why_plan_stale(frozen, topics, later, 10**12) is None
    assert covers(frozen, declared, request())
    assert not covers(frozen, declared, request(versioned=VersionedStart.LATEST))


def test_added_partitions_make_a_plan_stale(frozen: FrozenPlan) -> None:
    assert "3 partitions" in str(stale(frozen, LogOffsets(0, 100, 100), 60, partitions=3))


def test_a_partial_plan_of_a_directory_answers_its_request(frozen: FrozenPlan) -> None:
    some = replace(frozen.plan, partitions=tuple(one for one in frozen.plan.partitions if one.partition == 1))
    part = replace(frozen, plan=some, is_partial=True)
    assert stale(part, LogOffsets(0, 100, 100), 60) is None
    alone = replace(
        part, plan=replace(some, partitions=some.partitions[:1]), excluded_stores=(some.partitions[1].store,)
    )
    assert covers(alone, spec(), request())
    assert not covers(replace(alone, excluded_stores=()), spec(), request())
    assert not covers(
        alone, spec(a={"kind": "window", "retention": "1h"}, b={"kind": "window", "retention": "1h"}), request()
    )
