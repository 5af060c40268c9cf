"""Changelogs that also delete (``compact,delete``): records that are gone before the plan, or go after it.

What is left is what Kafka Streams itself would restore, and it is the judge.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from statecore.faults import FaultPoints
from statecore.jobs.engine.in_process import InProcessEngine
from tests.harness import topics
from tests.harness.broker import Broker
from tests.harness.case_selection import one_of
from tests.harness.streams import StreamsJvm
from tests.harness.tables import KINDS, PARTITIONS, World

pytestmark = pytest.mark.integration


class DeletedMeanwhile(FaultPoints):
    """Deletes records between the plan and the read."""

    def __init__(self, world: World, deletions: list[tuple[str, int, float]]) -> None:
        self.world, self.deletions = world, deletions

    def reach(self, point: str) -> None:
        super().reach(point)
        if point == "restore.after-plan":
            delete(self.world, self.deletions)


def delete(world: World, deletions: list[tuple[str, int, float]]) -> None:
    """Delete a share of the records of (store, partition), as ``kafka-delete-records`` does."""
    for store, partition, share in deletions:
        changelog = f"{world.application_id}-{store}-changelog"
        end = topics.end_offset(world.servers, changelog, partition)
        topics.delete_records(world.servers, changelog, partition, int(end * share))
        assert topics.start_offset(world.servers, changelog, partition) == int(end * share)


@pytest.mark.parametrize("guarantee", one_of(["at_least_once", "exactly_once_v2"]))
def test_records_deleted_before_the_plan_or_after_it_are_gone_as_they_are_for_kafka_streams(
    broker: Broker, streams_jvm: StreamsJvm, application_id: str, state_dir: Path, guarantee: str
) -> None:
    world = World(broker, streams_jvm, application_id, state_dir, guarantee)
    for store in KINDS:
        both = {**topics.UNCLEANED, "cleanup.policy": "compact,delete", "retention.ms": "-1"}
        topics.create(world.servers, f"{application_id}-{store}-changelog", PARTITIONS, both)
    world.feed()
    whole = world.live()

    delete(world, [("plain", 0, 0.75), ("plain", 1, 1.0)])
    world.lose()
    report = world.restore(engine=InProcessEngine())
    ours = world.rows()
    answers, restored = world.reopen()
    assert restored == 0
    assert {key for key in whole if answers[key] != whole[key]} == {("plain", 0), ("plain", 1)}
    assert {one.rows for one in report.stores if (one.store, one.partition) == ("plain", 1)} == {0}

    world.lose()
    more = DeletedMeanwhile(world, [("plain", 0, 0.85), ("stamped", 0, 0.75), ("stamped", 1, 1.0)])
    world.restore(engine=InProcessEngine(), faults=more)
    ours_then = world.rows()
    answers_then, restored = world.reopen()
    assert restored == 0
    assert {key for key in answers if answers_then[key] != answers[key]} == {
        ("plain", 0),
        *(("stamped", p) for p in (0, 1)),
    }

    # What Kafka Streams restores where nothing is there, from what is left.
    world.lose()
    theirs_then, restored = world.reopen()
    assert restored > 0
    assert theirs_then == answers_then
    assert world.rows() == ours_then
    assert ours != ours_then
