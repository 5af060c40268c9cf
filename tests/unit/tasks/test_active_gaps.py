"""An active task refuses a gap in its source where the log has records, and only there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kafka.protocol.consumer.fetch import FetchRequest

from statecore.changelog.cluster import Cluster
from statecore.errors import Invalid
from statecore.spec.model import ProcessingGuarantee
from statecore.tasks.active_task import ActiveTask
from tests.harness.raising import raises
from tests.unit.changelog.build import Record, batch, marker
from tests.unit.changelog.scripted import Part, ScriptedBrokers, part
from tests.unit.tasks.active_world import World
from tests.unit.tasks.counting import Input, source

Running = Callable[[Part], ActiveTask]


def records(*offsets: int, producer: int = -1) -> bytes:
    found = [Record(offset, 1, b"a", b"v") for offset in offsets]
    return batch(found, producer=producer, transactional=producer >= 0)


@pytest.fixture
def brokers() -> Iterator[ScriptedBrokers]:
    with ScriptedBrokers() as made:
        yield made


@pytest.fixture
def world(tmp_path: Path, guarantee: ProcessingGuarantee, brokers: ScriptedBrokers) -> Iterator[World]:
    made = World(tmp_path, guarantee)
    brokers.add("app-counts-changelog")
    with Cluster(brokers.address) as made.cluster, made.directory.lock():
        yield made


@pytest.fixture
def running(world: World, brokers: ScriptedBrokers) -> Iterator[Running]:
    """Starts a task whose group has consumed offsets 0 and 1 of a log."""
    started = []

    def start(log: Part) -> ActiveTask:
        brokers.add("in", [log])
        brokers.committed["in", 0] = 2
        started.append(world.running())
        assert started[-1].positions() == {source(): 2}
        return started[-1]

    yield start
    for task in started:
        task.close()


def test_a_record_after_others_that_the_task_was_not_given_is_refused(running: Running) -> None:
    task = running(part([records(0, 1), records(2, 3, 4), records(5, 6)]))
    with raises(Invalid, "offset-gap", topic="in", partition=0, offset=5, expected=2, missed=2):
        task.process([Input(5, b"a")])
    task.process([Input(offset, b"a") for offset in (2, 3, 4, 5)])
    assert task.positions() == {source(): 6}


@pytest.mark.parametrize(
    "log",
    [
        pytest.param(
            part([records(0, 1), *(marker(at, 1, commit=True) for at in (2, 3, 4)), records(5)]), id="markers"
        ),
        pytest.param(part([records(0, 1), records(5)]), id="compacted"),
        pytest.param(
            part(
                [records(0, 1), records(2, 3, producer=1), marker(4, 1, commit=False), records(5)],
                aborted=[(1, 2)],
            ),
            id="aborted",
        ),
        pytest.param(part([records(5)], log_start=5), id="deleted"),
        pytest.param(part([records(0, 1), records(2, 3, producer=1), records(5)], last_stable=2), id="open"),
    ],
)
def test_a_gap_without_committed_records_is_legal(running: Running, log: Part) -> None:
    task = running(log)
    task.process([Input(5, b"a")])
    assert task.positions() == {source(): 6}


def test_the_log_is_asked_after_a_rebalance_and_not_at_every_gap(
    world: World, running: Running, brokers: ScriptedBrokers
) -> None:
    task = running(part([records(0, 1), records(2, 3, 4, 5), records(6, 7)]))
    task.process([Input(2, b"a")])
    task.process([Input(4, b"a")])
    assert not brokers.asked(FetchRequest)
    world.consumer.generation_id += 1
    with raises(Invalid, "offset-gap", expected=5, missed=5):
        task.process([Input(6, b"a")])
