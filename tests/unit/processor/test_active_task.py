"""An active task commits to Kafka first and to its stores last, and gives them away open; Kafka is a fake here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from statecore.changelog.cluster import Cluster
from statecore.changelog.model import LogOffsets, TopicDescription
from statecore.errors import Fenced, Invalid, NotFound, Retryable
from statecore.formats.kinds import StoreKind
from statecore.formats.offsets import OFFSET_UNKNOWN
from statecore.formats.topic_partition import TopicPartition
from statecore.placement.state_directory import StateDirectory
from statecore.processor import active_task
from statecore.processor.active_context import InputRecord
from statecore.processor.active_task import ActiveTask, TaskState
from statecore.processor.commit_policy import CommitSettings
from statecore.runtime.changelog_ends import ChangelogEnd, isolation_of
from statecore.runtime.standby_task import StandbyTask
from statecore.runtime.task_stores import TaskStores
from statecore.spec.model import ApplicationSpec, ProcessingGuarantee
from statecore.stores.rocksdb import RocksDBStore
from tests.unit.processor.counting import (
    COUNTS,
    Counting,
    Input,
    ListedConsumer,
    TransactionalListed,
    source,
    spec_of,
)

EXACTLY_ONCE, AT_LEAST_ONCE = ProcessingGuarantee.EXACTLY_ONCE_V2, ProcessingGuarantee.AT_LEAST_ONCE
BOTH = [EXACTLY_ONCE, AT_LEAST_ONCE]


class ProducerFencedError(Exception):
    """Named as the client's."""


class KafkaTimeoutError(Exception):
    """Named as the client's."""


class World:
    """A task over an empty changelog, and what its fake brokers say."""

    def __init__(self, tmp_path: Path, guarantee: ProcessingGuarantee, kind: StoreKind = StoreKind.KEY_VALUE) -> None:
        self.spec: ApplicationSpec = spec_of("app", guarantee, kind=kind)
        self.directory = StateDirectory(tmp_path, "app")
        self.cluster: Any = None
        self.producer = TransactionalListed()
        self.processor = Counting("out")
        self.consumed: list[int | None] = [None]
        self.end, self.last_stable = 0, 0

    def committed(self, cluster: Cluster, group: str, partitions: Any) -> dict[TopicPartition, int | None]:
        """In place of the brokers: what the group has consumed; each answer once, the last one forever."""
        assert group == "app"
        answer = self.consumed.pop(0) if len(self.consumed) > 1 else self.consumed[0]
        return dict.fromkeys(partitions, answer)

    def ends(
        self, cluster: Cluster, spec: Any, stores: Any, *_: Any, **__: Any
    ) -> Mapping[TopicPartition, ChangelogEnd]:
        """In place of the brokers: where the changelogs end."""
        log = LogOffsets(0, self.last_stable, self.end)
        end = self.last_stable if spec.processing_guarantee is EXACTLY_ONCE else self.end
        topics = {one.changelog: TopicDescription(one.changelog.topic, "0" * 31 + "1", 1, {}) for one in stores}
        return {at: ChangelogEnd(end, log, topic, None, 0) for at, topic in topics.items()}

    def stores(self) -> TaskStores:
        return TaskStores(self.spec, self.directory, "0_0")

    def standby(self, stores: TaskStores) -> StandbyTask:
        task = StandbyTask(stores, self.cluster, isolation_of(self.spec))
        task.open()
        return task

    def active(self, stores: TaskStores | None = None, commits: CommitSettings | None = None) -> ActiveTask:
        return ActiveTask(
            stores or self.stores(),
            self.spec,
            self.cluster,
            self.processor,
            self.producer,
            ListedConsumer(self.producer),
            [source()],
            commits=commits,
        )

    def running(self, stores: TaskStores | None = None, commits: CommitSettings | None = None) -> ActiveTask:
        task = self.active(stores, commits)
        task.open()
        assert task.catch_up().is_complete
        assert task.state is TaskState.RUNNING
        return task


@pytest.fixture(params=BOTH, ids=[one.value for one in BOTH])
def guarantee(request: pytest.FixtureRequest) -> ProcessingGuarantee:
    found: ProcessingGuarantee = request.param
    return found


@pytest.fixture
def world(tmp_path: Path, guarantee: ProcessingGuarantee, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    made = World(tmp_path, guarantee)
    with Cluster("localhost:1") as cluster:
        made.cluster = cluster
        monkeypatch.setattr(active_task, "committed_offsets", made.committed)
        monkeypatch.setattr(active_task, "changelog_ends", made.ends)
        with made.directory.lock():
            yield made


def rows(stores: TaskStores) -> dict[bytes, bytes]:
    return dict(stores.store(COUNTS).database.all())


def test_a_commit_goes_to_kafka_first_and_to_the_stores_last(world: World) -> None:
    task = world.running()
    task.process([Input(0, b"a"), Input(1, b"b"), Input(2, b"a")])
    database = task.stores.store(COUNTS).database
    assert dict(database.query_view().all()) == {}
    task.commit()
    assert dict(database.query_view().all()) == {b"a": b"2", b"b": b"1"}
    assert task.offsets() == {TopicPartition("app-counts-changelog", 0): 4}
    kafka = [one for one in world.producer.happened if one not in ("flush", "init")]
    if world.spec.processing_guarantee is EXACTLY_ONCE:
        assert kafka == ["begin", "offsets [('in', 3)] group", "commit"]
    else:
        assert world.producer.happened[0] == "flush"
        assert kafka == ["consumed [('in', 3)]"]
    task.close()
    assert task.state is TaskState.CLOSED


def test_input_does_not_count_as_consumed_where_a_changelog_record_was_not_taken(world: World) -> None:
    task = world.running()
    task.process([Input(0, b"a")])
    world.producer.failing = OSError("gone")
    task.process([Input(1, b"b")])
    with pytest.raises(Retryable):
        task.commit()
    assert not [one for one in world.producer.happened if one.startswith("consumed") or one == "commit"]
    assert task.state is TaskState.FAILED
    assert rows(task.stores) == {}
    task.close()


def test_input_does_not_count_as_consumed_where_an_output_record_was_not_taken(world: World) -> None:
    @dataclass
    class Passing(Counting):
        def process(self, record: InputRecord) -> None:
            self.context.forward(self.output, record.key, record.value)

    world.processor = Passing("out")
    task = world.running()
    world.producer.failing = OSError("gone")
    task.process([Input(0, b"a")])
    with pytest.raises(Retryable):
        task.commit()
    assert not [one for one in world.producer.happened if one.startswith("consumed") or one == "commit"]
    assert task.state is TaskState.FAILED
    task.close()


def test_a_task_that_was_fenced_keeps_its_last_commit_and_gives_its_stores_away(world: World) -> None:
    task = world.running()
    task.process([Input(0, b"a")])
    task.commit()
    task.process([Input(1, b"a")])
    world.producer.failing = world.producer.commit_error = ProducerFencedError()
    task.process([Input(2, b"b")])
    with pytest.raises(Fenced):
        task.commit()
    with pytest.raises(Invalid):
        task.process([Input(3, b"a")])
    stores = task.recycle()
    assert rows(stores) == {b"a": b"1"}
    assert stores.store(COUNTS).offset == 0
    task.close()
    assert stores.store(COUNTS).is_open
    stores.close()


def test_a_processor_that_raises_leaves_the_last_commit_and_the_task_restores_again(world: World) -> None:
    task = world.running()
    task.process([Input(0, b"a")])
    task.commit()
    with pytest.raises(ArithmeticError):
        task.process([Input(1, b"a"), Input(2, b"b", b"bad")])
    assert task.state is TaskState.RESTORING
    assert rows(task.stores) == {b"a": b"1"}
    assert world.processor.happened == ["init", "close"]
    world.consumed = [1]
    world.end = world.last_stable = 1
    assert task.catch_up().is_complete
    assert task.positions() == {source(): 1}
    task.process([Input(1, b"a")])
    task.commit()
    assert rows(task.stores) == {b"a": b"2"}
    task.close()


def test_a_processor_whose_close_raises_does_not_leave_a_running_task_without_stores(world: World) -> None:
    @dataclass
    class BadClose(Counting):
        def close(self) -> None:
            super().close()
            raise OSError("a file of its own could not be closed")

    world.processor = BadClose("out")
    task = world.running()
    with pytest.raises(ArithmeticError):
        task.process([Input(0, b"a", b"bad")])
    assert task.state is TaskState.RESTORING
    assert ("abort" in world.producer.happened) is (world.spec.processing_guarantee is EXACTLY_ONCE)
    assert task.catch_up().is_complete
    task.process([Input(0, b"a")])
    world.producer.failing = ProducerFencedError("another")
    task.process([Input(1, b"a")])
    with pytest.raises(Fenced):
        task.commit()
    assert task.state is TaskState.FAILED
    task.close()


def test_an_abort_waits_for_what_was_sent_at_least_once_before_the_end_of_the_changelog_is_asked(world: World) -> None:
    task = world.running()
    world.producer.happened.clear()
    task.process([Input(0, b"a")])
    task.abort()
    exactly_once = world.spec.processing_guarantee is EXACTLY_ONCE
    assert world.producer.happened == (["abort"] if exactly_once else ["flush"])
    task.close()


def test_it_does_not_run_while_the_input_offsets_move_or_a_transaction_is_open(world: World) -> None:
    task = world.active()
    task.open()
    world.consumed = [3, 4]
    assert not task.catch_up().is_complete
    world.end, world.last_stable = (2, 0) if world.spec.processing_guarantee is EXACTLY_ONCE else (0, 0)
    assert task.catch_up().is_complete is (world.end == 0)
    world.end = 0
    if task.state is TaskState.RESTORING:
        assert task.catch_up().is_complete
    assert task.positions() == {source(): 4}
    task.close()


def test_stores_go_from_standby_to_active_and_back_as_the_same_open_databases(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    standby = world.standby(world.stores())
    path = standby.stores.store(COUNTS).path
    database = standby.stores.store(COUNTS).database
    with monkeypatch.context() as patched:
        opened: list[RocksDBStore] = []
        patched.setattr(RocksDBStore, "open", lambda self: opened.append(self))
        patched.setattr(RocksDBStore, "close", lambda self: opened.append(self))
        active = world.running(standby.recycle())
        active.process([Input(0, b"a")])
        active.commit()
        again = world.standby(active.recycle())
        assert again.stores.store(COUNTS).database is database
        standby.close()
        active.close()
        assert opened == []
    with pytest.raises(Fenced):
        RocksDBStore(path, StoreKind.KEY_VALUE).open()
    assert rows(again.stores) == {b"a": b"1"}
    assert again.offsets() == active.offsets() == {TopicPartition("app-counts-changelog", 0): 0}
    for gone in (standby.recycle, active.recycle, active.commit):
        with pytest.raises(Invalid):
            gone()
    with pytest.raises(Invalid):
        standby.follow({})
    again.close()
    with RocksDBStore(path, StoreKind.KEY_VALUE, read_only=True) as closed:
        assert dict(closed.all()) == {b"a": b"1"}


def test_what_was_not_committed_is_dropped_when_the_stores_are_given_away(world: World) -> None:
    task = world.running()
    task.process([Input(0, b"a")])
    world.producer.abort_error = OSError("gone")
    stores = task.recycle()
    assert rows(stores) == {}
    assert stores.store(COUNTS).offset == OFFSET_UNKNOWN
    stores.close()


def test_records_that_are_none_of_its_own_or_were_processed_are_refused(world: World) -> None:
    task = world.running()
    task.process([Input(5, b"a")])
    for wrong in (Input(5, b"a"), Input(0, b"a", topic="else"), Input(6, b"a", partition=1)):
        with pytest.raises(Invalid):
            task.process([wrong])
    task.commit()
    assert rows(task.stores) == {b"a": b"1"}
    task.close()


def test_a_processor_gets_no_store_that_the_task_has_not(world: World) -> None:
    task = world.running()
    with pytest.raises(NotFound):
        world.processor.context.store("else")
    task.close()


def test_windows_are_refused_before_anything_is_opened(tmp_path: Path, guarantee: ProcessingGuarantee) -> None:
    world = World(tmp_path, guarantee, StoreKind.WINDOW)
    with pytest.raises(Invalid):
        world.active()
    assert not list(tmp_path.rglob("0_0"))


IMPATIENT = CommitSettings(max_block_ms=50)


@pytest.mark.parametrize(
    ("guarantee", "call"),
    [
        (AT_LEAST_ONCE, "flush"),
        (EXACTLY_ONCE, "flush"),
        (EXACTLY_ONCE, "send_offsets_to_transaction"),
        (EXACTLY_ONCE, "commit_transaction"),
    ],
)
def test_a_commit_that_no_broker_answers_is_no_commit_and_the_next_task_finds_out_what_became_of_it(
    world: World, call: str
) -> None:
    task = world.running(commits=IMPATIENT)
    task.process([Input(0, b"a")])
    task.commit()
    task.process([Input(1, b"a")])
    world.producer.silent = call
    with pytest.raises(Retryable, match=r"Task 0_0 waited 0.05 s \(max.block.ms\) for (the records|its)") as told:
        task.commit()
    assert told.value.context == {"task": "0_0"}
    assert task.state is TaskState.FAILED
    world.producer.silent = ""
    world.producer.answered.set()  # it takes place after all
    assert rows(task.stores) == {b"a": b"1"}
    assert task.offsets() == {TopicPartition("app-counts-changelog", 0): 0}
    assert "abort" not in world.producer.happened  # the producer is of no more use
    stores = task.recycle()
    world.producer = TransactionalListed(first=2)
    world.consumed = [1]
    world.end = world.last_stable = 1  # nothing came of it
    again = world.running(stores, IMPATIENT)
    again.process([Input(1, b"a")])
    again.commit()
    assert rows(stores) == {b"a": b"2"}
    assert again.offsets() == {TopicPartition("app-counts-changelog", 0): 2}
    again.close()


def test_brokers_that_do_not_answer_keep_nobody_from_opening_aborting_and_giving_stores_away(world: World) -> None:
    exactly_once = world.spec.processing_guarantee is EXACTLY_ONCE
    task = world.active(commits=IMPATIENT)
    world.producer.silent = "init_transactions"
    if exactly_once:
        with pytest.raises(Retryable, match="for what an earlier instance has left open"):
            task.open()
        assert task.state is TaskState.FAILED
        task.close()
    else:
        task.close()
    world.producer = TransactionalListed()
    task = world.running(commits=IMPATIENT)
    task.process([Input(0, b"a")])
    world.producer.silent = "abort_transaction" if exactly_once else "flush"
    with pytest.raises(Retryable, match="Task 0_0 waited"):
        task.abort()
    assert task.state is TaskState.FAILED
    stores = task.recycle()
    assert rows(stores) == {}
    stores.close()
    world.producer.answered.set()


@pytest.mark.parametrize("guarantee", [AT_LEAST_ONCE])
def test_a_consumer_that_no_broker_answers_has_committed_nothing_as_far_as_the_stores_go(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[int | None] = []

    def silent(self: ListedConsumer, offsets: Any, timeout_ms: int | None = None) -> None:
        given.append(timeout_ms)
        raise KafkaTimeoutError("in vain")

    monkeypatch.setattr(ListedConsumer, "commit", silent)
    task = world.running(commits=IMPATIENT)
    task.process([Input(0, b"a")])
    with pytest.raises(Retryable, match=r"Task 0_0 waited 0.05 s .* for its input offsets to be committed"):
        task.commit()
    assert given == [50]
    assert rows(task.stores) == {}
    task.close()
