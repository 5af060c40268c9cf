"""Brokers that freeze, or are killed, within an active task's commit: nothing is lost, nothing counted twice."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from statecore.changelog.cluster import Cluster
from statecore.errors import Retryable
from statecore.placement.state_directory import StateDirectory
from statecore.processor.active_task import ActiveTask, TaskState
from statecore.processor.commit_policy import CommitSettings
from statecore.runtime.task_stores import TaskStores
from tests.harness.broker import Broker
from tests.harness.fleet import GUARANTEES
from tests.integration.active_process import Member
from tests.integration.active_world import EXACTLY_ONCE, World
from tests.unit.processor.counting import COUNTS

pytestmark = pytest.mark.integration

COMMITS = CommitSettings(interval_ms=0, max_block_ms=3_000)


@pytest.fixture(scope="module")
def own_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker that may be stopped."""
    with Broker(tmp_path_factory.mktemp("stopped") / "broker") as running:
        yield running


class Frozen:
    """The broker is frozen, and goes on."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker

    def begin(self) -> None:
        self.broker.freeze()

    def end(self) -> None:
        self.broker.thaw()


class Killed(Frozen):
    """The broker is killed, and started again."""

    def begin(self) -> None:
        self.broker.kill()

    def end(self) -> None:
        self.broker.start()


@contextmanager
def away(member: Member, call: str, way: Frozen) -> Iterator[None]:
    """The broker goes just before a client is called, and comes back at the end."""
    client = member.consumer if call == "commit" else member.producer
    real: Callable[..., object] = getattr(client, call)
    gone: list[str] = []

    def called(*given: object, **named: object) -> object:
        if not gone:
            gone.append(call)
            way.begin()
            if call == "flush":  # the broker may have been quick, and taken all that there was to be flushed
                member.producer.send(member.output, None, b"nobody")
        return real(*given, **named)

    setattr(client, call, called)
    try:
        yield
    finally:
        delattr(client, call)
        way.end()


def refused(task: ActiveTask, act: Callable[[], object]) -> str:
    """What the error says with which the task gives up, in bounded time."""
    began = time.monotonic()
    with pytest.raises(Retryable) as told:
        act()
    assert time.monotonic() - began < 3 * COMMITS.max_block_ms / 1000 + 5
    assert told.value.context["task"] == "0_0"
    assert task.state is TaskState.FAILED
    return told.value.what


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_brokers_that_go_within_a_commit_are_waited_for_within_bounds_and_the_next_task_goes_on(
    own_broker: Broker, tmp_path: Path, application_id: str, guarantee: str
) -> None:
    exactly_once = guarantee == EXACTLY_ONCE
    world = World(own_broker.bootstrap_servers, application_id, guarantee)
    directory = StateDirectory(tmp_path, application_id)
    calls = ["flush", *(["send_offsets_to_transaction", "commit_transaction"] if exactly_once else ["commit"])]
    with Cluster(world.servers) as cluster, directory.lock():
        member = Member(world.servers, application_id, guarantee, cluster)
        task, _ = member.active(TaskStores(member.spec, directory, "0_0"), COMMITS)
        for way in (Frozen(own_broker), Killed(own_broker)):
            for call in calls:
                committed = world.feed(40)
                member.work(task, committed)
                before = dict(task.stores.store(COUNTS).database.all())
                end = world.feed(40)
                member.work(task, end, commits=False)
                with away(member, call, way):
                    said = refused(task, task.commit)
                    assert said.startswith("Task 0_0 waited 3 s (max.block.ms) for ") or call == "commit"
                    stores = task.recycle()
                    assert dict(stores.store(COUNTS).database.all()) == before
                    began = time.monotonic()
                    member.producer.close()
                    assert time.monotonic() - began < 30
                member.consumer.close()
                member = Member(world.servers, application_id, guarantee, cluster)
                task, _ = member.active(stores, COMMITS)
                if isinstance(way, Killed) or call not in ("commit", "commit_transaction"):
                    assert task.positions() == {member.input: committed}
                else:  # what the frozen broker had received takes place after all, and the stores have followed
                    assert task.positions() == {member.input: end}
                    assert stores.store(COUNTS).database.get(b"key-0") != before[b"key-0"]
        member.work(task, world.fed.total())
        rows = {key: int(value) for key, value in task.stores.store(COUNTS).database.all()}
        task.close()
        member.close()
    assert rows == world.replayed(world.changelog) == world.replayed(world.output)
    if exactly_once:
        assert rows == world.fed
        assert world.every_count() == world.told_once()
    else:
        # A count that the changelog had taken and the output had not is told as a later one.
        assert all(rows[key] >= total for key, total in world.fed.items())
