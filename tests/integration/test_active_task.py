"""An active task counts on a real broker, is killed, becomes a standby and active again, and Kafka Streams goes on."""

from __future__ import annotations

import signal
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from statecore.changelog.cluster import Cluster
from statecore.changelog.groups import committed_offsets
from statecore.errors import Fenced
from statecore.faults import ACTIVE_POINTS
from statecore.formats.offsets import OFFSET_UNKNOWN
from statecore.formats.topic_partition import TopicPartition
from statecore.isolation import IsolationLevel
from statecore.statedir.state_directory import StateDirectory
from statecore.tasks.active_context import InputRecord
from statecore.tasks.active_task import TaskState
from statecore.tasks.standby_task import StandbyTask
from statecore.tasks.task_stores import TaskStores
from tests.harness import topics
from tests.harness.broker import Broker
from tests.harness.fleet import leave_group
from tests.harness.modes import each_guarantee
from tests.harness.queries import StoreQuery
from tests.harness.streams import StreamsApplication, StreamsJvm
from tests.harness.topics import Record
from tests.integration.active_process import Member
from tests.integration.active_world import EXACTLY_ONCE, World, counted, follow
from tests.unit.tasks.counting import AGAIN, COUNTS, Counting

pytestmark = pytest.mark.integration


@each_guarantee
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


@each_guarantee
def test_a_processor_that_raised_resumes_from_the_last_commit_and_the_changelog_after_it(
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
        deadline = time.monotonic() + 180
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


@each_guarantee
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
            standby = StandbyTask(TaskStores(spec, directory, "0_0"), cluster, spec.processing_guarantee.isolation)
            standby.open()
            database = standby.stores.store(COUNTS).database
            follow(cluster, spec, standby)
            active, _ = first.active(standby.recycle())
            first.work(active, world.feed())
            assert active.stores.store(COUNTS).database is database
            with pytest.raises(Fenced):
                StateDirectory(here, application_id).lock().__enter__()
            standby = StandbyTask(active.recycle(), cluster, spec.processing_guarantee.isolation)
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


@dataclass
class Ignoring(Counting):
    """Counts nothing as long as it is told so."""

    ignores: bool = True

    def process(self, record: InputRecord) -> None:
        if not self.ignores:
            super().process(record)


def test_a_commit_of_nothing_writes_nothing_and_one_of_input_alone_moves_the_input_offsets_alone(
    broker: Broker, tmp_path: Path, application_id: str
) -> None:
    world = World(broker.bootstrap_servers, application_id, EXACTLY_ONCE)
    directory = StateDirectory(tmp_path, application_id)
    changelog = TopicPartition(world.changelog, 0)

    def ends() -> list[int]:
        return [topics.end_offset(world.servers, one, 0) for one in (world.changelog, world.output)]

    with Cluster(world.servers) as cluster, directory.lock():
        member = Member(world.servers, application_id, EXACTLY_ONCE, cluster)
        member.processor = processor = Ignoring(member.output)
        task, _ = member.active(TaskStores(member.spec, directory, "0_0"))

        def consumed() -> int | None:
            return committed_offsets(cluster, application_id, [member.input])[member.input]

        task.commit()
        task.commit()
        assert ends() == [0, 0]
        assert consumed() is None
        assert task.offsets() == {changelog: OFFSET_UNKNOWN}
        end = world.feed(20)
        world.fed.clear()  # they are ignored
        member.work(task, end)
        assert ends() == [0, 0]
        assert consumed() == end
        processor.ignores = False
        world.feed(20)
        member.work(task, end + 20)
        topics.wait_until_stable(world.servers, [world.changelog, world.output])  # with the markers of the commits
        before, last = ends(), task.offsets()
        task.commit()
        assert (ends(), task.offsets()) == (before, last)
        task.close()
        member.close()
    assert world.rows(tmp_path) == world.fed == world.replayed(world.changelog)
    assert world.every_count() == world.told_once()


def test_kafka_streams_and_an_active_task_exclude_each_other_in_a_directory(
    broker: Broker, streams_jvm: StreamsJvm, tmp_path: Path, application_id: str
) -> None:
    world = World(broker.bootstrap_servers, application_id, EXACTLY_ONCE)
    directory = StateDirectory(tmp_path, application_id)

    def application(jvm: StreamsJvm) -> StreamsApplication:
        return StreamsApplication(jvm, application_id, world.servers, tmp_path, counted(world.input))

    with Cluster(world.servers) as cluster:
        member = Member(world.servers, application_id, EXACTLY_ONCE, cluster)
        with directory.lock():
            task, _ = member.active(TaskStores(member.spec, directory, "0_0"))
            member.work(task, world.feed(50))
            with StreamsJvm(tmp_path / "refused.log") as other_jvm:
                with pytest.raises(Exception, match="StreamsException"):
                    application(other_jvm).start()
            member.work(task, world.feed(50))
            task.close()
        with application(streams_jvm) as running:
            assert sum(running.restored_records().values()) == 0
            with pytest.raises(Fenced):
                directory.lock().__enter__()
            late = member.created(TaskStores(member.spec, directory, "0_0"))
            with pytest.raises(Fenced):
                late.open()
            late.close()
            assert running.state == "RUNNING"
        member.close()
    assert world.rows(tmp_path) == world.fed


@pytest.mark.parametrize("gone", ["records", pytest.param("deletes", marks=pytest.mark.full)])
def test_a_store_that_cannot_be_continued_from_its_changelog_is_rebuilt_and_equals_it(
    broker: Broker, tmp_path: Path, application_id: str, gone: str
) -> None:
    short = {**topics.COMPACTED, "delete.retention.ms": "0"}
    config = short if gone == "deletes" else {**topics.UNCLEANED, "cleanup.policy": "compact,delete"}
    world = World(broker.bootstrap_servers, application_id, EXACTLY_ONCE, config)
    directory = StateDirectory(tmp_path, application_id)
    with Cluster(world.servers) as cluster, directory.lock():
        member = Member(world.servers, application_id, EXACTLY_ONCE, cluster)
        task, _ = member.active(TaskStores(member.spec, directory, "0_0"))
        member.work(task, world.feed())
        stores = task.recycle()
        position = stores.store(COUNTS).position
        changes = [Record(b"key-0", None), Record(b"key-1", b"70"), *([Record(b"more", b"1")] * 20)]
        topics.produce(world.servers, world.changelog, changes)
        if gone == "deletes":
            topics.compact(world.servers, world.changelog, 0, broker.data_directory, Record(b"filler", b"1"))
        else:
            topics.delete_records(world.servers, world.changelog, 0, position + 5)
        expected = world.replayed(world.changelog)
        assert b"key-0" not in expected
        task = member.created(stores)
        task.open()
        told = task.catch_up()
        assert not told.is_complete
        assert list(told.rebuilt) == [COUNTS]
        member.catch_up(task)
        assert {key: int(value) for key, value in stores.store(COUNTS).database.all()} == expected
        assert task.positions() == {member.input: world.fed.total()}
        member.work(task, world.feed())
        task.close()
        member.close()
    assert world.rows(tmp_path) == world.replayed(world.changelog)


@pytest.mark.parametrize("by", ["producer", pytest.param("generation", marks=pytest.mark.full), "no-generation"])
def test_a_member_with_an_old_generation_is_fenced_and_its_rows_are_not_visible(
    broker: Broker, streams_jvm: StreamsJvm, tmp_path: Path, application_id: str, by: str
) -> None:
    world = World(broker.bootstrap_servers, application_id, EXACTLY_ONCE)
    here, there = (StateDirectory(tmp_path / name, application_id) for name in ("here", "there"))
    with Cluster(world.servers) as cluster, here.lock(), there.lock():
        old, new = (Member(world.servers, application_id, EXACTLY_ONCE, cluster) for _ in range(2))
        first = world.feed()
        if by != "producer":
            old.join(heartbeat_ms=200 if by == "no-generation" else 20_000)
        task, _ = old.active(TaskStores(old.spec, here, "0_0"))
        old.work(task, first)
        committed = Counter(world.fed)
        end = world.feed(60)
        old.work(task, end, commits=False)
        if by == "producer":
            elsewhere, _ = new.active(TaskStores(new.spec, there, "0_0"))
        else:
            leave_group(streams_jvm, world.servers, application_id)
        deadline = time.monotonic() + 180
        while by == "no-generation" and old.consumer.group_metadata().generation_id >= 0:
            assert time.monotonic() < deadline, "the consumer never heard of it"
            time.sleep(0.05)
        with pytest.raises(Fenced, match=r"[Tt]ask 0_0"):
            task.commit()
        assert task.state is TaskState.FAILED
        for isolation in IsolationLevel:
            with task.stores.store(COUNTS).database.query_view(isolation) as seen:
                assert {key: int(value) for key, value in seen.all()} == committed
        assert world.replayed(world.output) == committed
        if by != "producer":
            elsewhere, _ = new.active(TaskStores(new.spec, there, "0_0"))
        assert elsewhere.positions() == {new.input: committed.total()}
        new.work(elsewhere, end)
        elsewhere.close()
        standby = StandbyTask(task.recycle(), cluster, old.spec.processing_guarantee.isolation)
        standby.open()
        assert follow(cluster, old.spec, standby) == 60
        standby.close()
        new.close()
        old.close()
    assert world.rows(here.state_dir) == world.rows(there.state_dir) == world.fed
    assert world.every_count() == world.told_once()


def test_queries_see_what_is_committed_or_also_what_a_transaction_has_written_until_it_is_aborted(
    broker: Broker, tmp_path: Path, application_id: str
) -> None:
    world = World(broker.bootstrap_servers, application_id, EXACTLY_ONCE)
    directory = StateDirectory(tmp_path, application_id)
    with Cluster(world.servers) as cluster, directory.lock(), ThreadPoolExecutor(1) as another_thread:
        member = Member(world.servers, application_id, EXACTLY_ONCE, cluster)
        task, _ = member.active(TaskStores(member.spec, directory, "0_0"))
        database = task.stores.store(COUNTS).database

        def query(isolation: IsolationLevel) -> dict[bytes, int]:
            with database.query_view(isolation) as view:
                return {key: int(value) for key, value in view.all()}

        def seen() -> list[dict[bytes, int]]:
            levels = (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED)
            return [another_thread.submit(query, level).result(180) for level in levels]

        member.work(task, world.feed(50))
        committed = Counter(world.fed)
        assert seen() == [committed, committed]
        end = world.feed(50)
        member.work(task, end, commits=False)
        assert seen() == [committed, world.fed]
        task.abort()
        assert seen() == [committed, committed]
        member.catch_up(task)
        assert seen() == [committed, committed]
        member.work(task, end)
        assert seen() == [world.fed, world.fed]
        task.close()
        member.close()
