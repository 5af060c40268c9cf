# ruff: noqa
"""What an active task does when its processor's close raises, and with what was sent when it aborts at-least-once."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from statecore.changelog.cluster import Cluster
from statecore.formats.topic_partition import TopicPartition
from statecore.processor import active_task
from statecore.processor.active_task import TaskState
from statecore.spec.model import ProcessingGuarantee
from tests.unit.processor.counting import COUNTS, Counting, Input
from tests.unit.processor.test_active_task import World

E1, A1 = ProcessingGuarantee.EXACTLY_ONCE_V2, ProcessingGuarantee.AT_LEAST_ONCE


@dataclass
class BadClose(Counting):
    def close(self) -> None:
        super().close()
        raise OSError("the processor's own file could not be closed")


def world_of(
    tmp_path: Path, guarantee: ProcessingGuarantee, monkeypatch: pytest.MonkeyPatch, cluster: Cluster
) -> World:
    made = World(tmp_path, guarantee)
    made.cluster = cluster
    monkeypatch.setattr(active_task, "committed_offsets", made.committed)
    monkeypatch.setattr(active_task, "changelog_ends", made.ends)
    return made


@pytest.mark.parametrize("guarantee", [E1, A1])
def test_a_processor_whose_close_raises_does_not_leave_a_running_task_without_stores(
    tmp_path: Path, guarantee: ProcessingGuarantee, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Cluster("localhost:1") as cluster:
        world = world_of(tmp_path, guarantee, monkeypatch, cluster)
        world.processor = BadClose("out")
        with world.directory.lock():
            task = world.running()
            with pytest.raises(ArithmeticError):  # the first error is the one to tell
                task.process([Input(0, b"a", b"bad")])
            assert task.state in (TaskState.RESTORING, TaskState.FAILED)


def test_what_a_running_task_without_stores_commits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The consequence: records are consumed, the changelog has the rows, and the store never gets them."""
    with Cluster("localhost:1") as cluster:
        world = world_of(tmp_path, E1, monkeypatch, cluster)
        world.processor = BadClose("out")
        with world.directory.lock():
            task = world.running()
            with pytest.raises((ArithmeticError, OSError)):
                task.process([Input(0, b"a", b"bad")])
            if task.state is not TaskState.RUNNING:
                return
            task.process([Input(0, b"a", b"v")])
            task.commit()
            happened = [one for one in world.producer.happened if one in ("commit", "abort") or "offsets" in one]
            changelog = [one.key for one in world.producer.records if one.topic.endswith("changelog")]
            committed = dict(task.stores.store(COUNTS).database.query_view().all())
            assert committed, (task.state, happened, changelog, task.offsets())


def test_an_abort_at_least_once_waits_for_what_was_sent_before_the_end_of_the_changelog_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Cluster("localhost:1") as cluster:
        world = world_of(tmp_path, A1, monkeypatch, cluster)
        with world.directory.lock():
            task = world.running()
            world.producer.happened.clear()
            task.process([Input(0, b"a"), Input(1, b"b")])
            task.abort()
            # Four records are in the producer's buffer, none is at the broker. The brokers say: the log ends at 0.
            done = task.catch_up()
            assert "flush" in world.producer.happened or not done.is_complete, (done, world.producer.happened)
            assert TopicPartition("app-counts-changelog", 0) in task.offsets()
