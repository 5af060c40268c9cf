"""Brokers that freeze, or are killed, within an active task's commit: nothing is lost, nothing counted twice."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from statecore.changelog.cluster import Cluster
from statecore.errors import Retryable
from statecore.statedir.state_directory import StateDirectory
from statecore.tasks.active_task import ActiveTask, TaskState
from statecore.tasks.commit_policy import CommitSettings
from statecore.tasks.task_stores import TaskStores
from tests.harness.broker import SOON_BACK, Broker
from tests.harness.case_selection import one_of
from tests.harness.modes import AT_LEAST_ONCE
from tests.integration.active_process import Member
from tests.integration.active_world import EXACTLY_ONCE, World
from tests.unit.tasks.counting import COUNTS

pytestmark = pytest.mark.integration

COMMITS = CommitSettings(interval_ms=0, max_block_ms=3_000)


@pytest.fixture(scope="module")
def own_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker that may be stopped."""
    with Broker(tmp_path_factory.mktemp("stopped") / "broker", settings=SOON_BACK) as running:
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


def gives_up(task: ActiveTask, codes: set[str]) -> None:
    """The commit is refused while the broker is away, which it would be for ever."""
    with pytest.raises(Retryable) as told:
        task.commit()
    assert (told.value.code in codes, told.value.context["task"]) == (True, "0_0"), told.value
    assert task.state is TaskState.FAILED


def closed(member: Member) -> None:
    """The producer can be closed while the broker is away."""
    closing = threading.Thread(target=member.producer.close, daemon=True)
    closing.start()
    closing.join(180)
    assert not closing.is_alive()


CALLS = {
    EXACTLY_ONCE: ("commit_transaction", "send_offsets_to_transaction", "flush"),
    AT_LEAST_ONCE: ("commit", "flush"),
}
CASES = [
    *((EXACTLY_ONCE, way, call) for way in (Frozen, Killed) for call in CALLS[EXACTLY_ONCE]),
    *((AT_LEAST_ONCE, way, call) for way in (Killed, Frozen) for call in CALLS[AT_LEAST_ONCE]),
]


@pytest.mark.parametrize(("guarantee", "gone", "call"), one_of(CASES, by=lambda case: case[0]))
def test_a_commit_waits_a_limited_time_for_lost_brokers_and_the_next_task_resumes(
    own_broker: Broker, tmp_path: Path, application_id: str, guarantee: str, gone: type[Frozen], call: str
) -> None:
    world = World(own_broker.bootstrap_servers, application_id, guarantee)
    directory = StateDirectory(tmp_path, application_id)
    way = gone(own_broker)
    with Cluster(world.servers) as cluster, directory.lock():
        member = Member(world.servers, application_id, guarantee, cluster)
        task, _ = member.active(TaskStores(member.spec, directory, "0_0"), COMMITS)
        committed = world.feed(40)
        member.work(task, committed)
        before = dict(task.stores.store(COUNTS).database.all())
        end = world.feed(40)
        member.work(task, end, commits=False)
        with away(member, call, way):
            gives_up(task, {"acknowledgement-timeout", *(["commit-not-acknowledged"] if call == "commit" else [])})
            stores = task.recycle()
            assert dict(stores.store(COUNTS).database.all()) == before
            closed(member)
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
    if guarantee == EXACTLY_ONCE:
        assert rows == world.fed
        assert world.every_count() == world.told_once()
    else:
        # A count that the changelog had taken and the output had not is told as a later one.
        assert all(rows[key] >= total for key, total in world.fed.items())
