"""An active task counts on a real broker, is killed, becomes a standby and active again, and Kafka Streams goes on."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from statecore.changelog.cluster import Cluster
from statecore.errors import Fenced
from statecore.faults import ACTIVE_POINTS
from statecore.placement.state_directory import StateDirectory
from statecore.runtime.changelog_ends import isolation_of
from statecore.runtime.standby_task import StandbyTask
from statecore.runtime.task_stores import TaskStores
from tests.harness import topics
from tests.harness.broker import Broker
from tests.harness.fleet import GUARANTEES
from tests.harness.queries import StoreQuery
from tests.harness.streams import StreamsApplication, StreamsJvm
from tests.harness.topics import Record
from tests.integration.active_process import Member
from tests.integration.active_world import EXACTLY_ONCE, World, counted, follow
from tests.unit.processor.counting import AGAIN, COUNTS

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_task_that_is_killed_around_its_commit_loses_no_record_and_exactly_once_counts_none_twice(
    broker: Broker, tmp_path: Path, application_id: str, guarantee: str
) -> None:
    world = World(broker.bootstrap_servers, application_id, guarantee)
    for point in ACTIVE_POINTS:
        killed = world.run(tmp_path, world.feed(), f"{point}:kill:2")
        assert killed.returncode == -signal.SIGKILL, killed.stderr
    ended = world.run(tmp_path, world.feed())
    assert ended.returncode == 0, ended.stderr
    rows = world.rows(tmp_path)
    assert rows == world.replayed(world.changelog) == world.replayed(world.output)
    assert rows == world.rows(tmp_path, AGAIN) == world.replayed(world.again)
    if guarantee == EXACTLY_ONCE:
        assert rows == world.fed
        assert world.every_count() == world.told_once()
    else:
        assert all(rows[key] >= total for key, total in world.fed.items())
        assert not world.told_once() - world.every_count()


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_processor_that_raised_goes_on_from_the_last_commit_and_what_its_changelog_has_beyond_it(
    broker: Broker, tmp_path: Path, application_id: str, guarantee: str
) -> None:
    world = World(broker.bootstrap_servers, application_id, guarantee)
    end = world.feed(50)
    bad = Record(b"key-0", b"bad")
    directory = StateDirectory(tmp_path, application_id)
    with Cluster(world.servers) as cluster, directory.lock():
        member = Member(world.servers, application_id, guarantee, cluster)
        task, _ = member.active(TaskStores(member.spec, directory, "0_0"))
        database = task.stores.store(COUNTS).database
        member.work(task, end)
        topics.produce(world.servers, world.input, [bad])
        with pytest.raises(ArithmeticError):
            member.work(task, end + 1)
        member.producer.flush()
        assert {key: int(value) for key, value in database.all()} == world.fed
        deadline = time.monotonic() + 60
        while not task.catch_up().is_complete:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert task.positions() == {member.input: end}
        if guarantee != EXACTLY_ONCE:
            world.fed[b"key-0"] += 1
        assert {key: int(value) for key, value in database.all()} == world.fed
        assert task.stores.store(COUNTS).database is database
        task.close()
        member.close()
    assert world.rows(tmp_path) == world.replayed(world.changelog) == world.fed


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_standby_becomes_active_and_a_standby_again_beside_another_member_and_kafka_streams_restores_nothing(
    broker: Broker, streams_jvm: StreamsJvm, tmp_path: Path, application_id: str, guarantee: str
) -> None:
    world = World(broker.bootstrap_servers, application_id, guarantee)
    here, there = tmp_path / "here", tmp_path / "there"
    directory = StateDirectory(here, application_id)
    other = StateDirectory(there, application_id)
    with Cluster(world.servers) as cluster:
        first = Member(world.servers, application_id, guarantee, cluster)
        spec = first.spec
        with directory.lock():
            standby = StandbyTask(TaskStores(spec, directory, "0_0"), cluster, isolation_of(spec))
            standby.open()
            database = standby.stores.store(COUNTS).database
            follow(cluster, spec, standby)
            active, _ = first.active(standby.recycle())
            first.work(active, world.feed())
            assert active.stores.store(COUNTS).database is database
            with pytest.raises(Fenced):
                StateDirectory(here, application_id).lock().__enter__()
            standby = StandbyTask(active.recycle(), cluster, isolation_of(spec))
            standby.open()

            with other.lock():
                second = Member(world.servers, application_id, guarantee, cluster)
                elsewhere, restored = second.active(TaskStores(spec, other, "0_0"))
                assert restored == world.fed.total()
                second.work(elsewhere, world.feed(60))
                elsewhere.close()
                second.close()
            assert follow(cluster, spec, standby) == 60

            third = Member(world.servers, application_id, guarantee, cluster)
            active, restored = third.active(standby.recycle())
            assert restored == 0
            third.work(active, world.feed())
            assert active.stores.store(COUNTS).database is database
            active.close()
            third.close()
            first.close()
    assert world.rows(here) == world.fed == world.replayed(world.changelog)
    assert world.every_count() == world.told_once()

    with StreamsApplication(
        streams_jvm,
        application_id,
        world.servers,
        here,
        counted(world.input),
        guarantee=guarantee,
        stores={COUNTS: StoreQuery(timestamped=False)},
    ) as running:
        rows = {key: int(value) for key, value, _ in running.query_rows(COUNTS, 0)}
        assert sum(running.restored_records().values()) == 0
        assert rows == world.fed
        with pytest.raises(Fenced):
            directory.lock().__enter__()
