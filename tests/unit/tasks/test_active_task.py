"""An active task commits to Kafka first and to its stores last, and gives them away open; Kafka is a fake here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from statecore.errors import Capacity, Fenced, Invalid, NotFound, Retryable
from statecore.formats.kinds import StoreKind
from statecore.formats.offsets import OFFSET_UNKNOWN
from statecore.formats.topic_partition import TopicPartition
from statecore.spec.model import ProcessingGuarantee
from statecore.stores.rocksdb.store import RocksDBStore
from statecore.tasks.active_context import InputRecord
from statecore.tasks.active_task import TaskState
from statecore.tasks.standby_log_state import StandbyLogStates
from statecore.tasks.task_offsets import NextReader
from tests.unit.tasks.active_world import EXACTLY_ONCE, World, rows
from tests.unit.tasks.counting import COUNTS, Counting, Input, source


class ProducerFencedError(Exception):
    """Named as the client's."""


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
    @dataclass
    class Silent(Counting):
        def process(self, record: InputRecord) -> None:  # an output record that fails too would stop the commit as well
            assert record.key is not None
            self.stores[0].put(record.key, b"1")

    world.processor = Silent("out")
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


def full_disk(self: StandbyLogStates) -> None:
    raise Capacity("The disk is full.", code="test-error", action="Make room.")


@pytest.mark.parametrize("state", [TaskState.RUNNING, TaskState.RESTORING, TaskState.FAILED])
def test_a_full_disk_keeps_no_database_open_when_a_task_is_closed(
    world: World, monkeypatch: pytest.MonkeyPatch, state: TaskState
) -> None:
    task = world.running()
    task.process([Input(0, b"a")])
    task.commit()
    task.process([Input(1, b"a")])
    if state is TaskState.RESTORING:
        task.abort()
    elif state is TaskState.FAILED:
        world.producer.failing = OSError("gone")
        task.process([Input(2, b"a")])
        with pytest.raises(Retryable):
            task.commit()
    assert task.state is state
    path = task.stores.store(COUNTS).path
    monkeypatch.setattr(StandbyLogStates, "write", full_disk)
    task.close()
    assert task.state is TaskState.CLOSED
    with RocksDBStore(path, StoreKind.KEY_VALUE) as closed:
        assert dict(closed.all()) == {b"a": b"1"}


def test_a_processor_whose_close_raises_keeps_no_database_open(world: World) -> None:
    @dataclass
    class BadClose(Counting):
        def close(self) -> None:
            raise OSError("a file of its own could not be closed")

    world.processor = BadClose("out")
    task = world.running()
    with pytest.raises(OSError, match="a file of its own"):
        task.close()
    assert task.state is TaskState.CLOSED
    assert not task.stores.is_open


def test_a_task_whose_stores_could_not_be_closed_as_asked_can_still_be_closed(world: World) -> None:
    task = world.running()
    with pytest.raises(Invalid):
        task.close(NextReader.KAFKA_STREAMS_4_2)
    assert task.stores.is_open
    task.close()
    assert task.state is TaskState.CLOSED
    assert not task.stores.is_open


def test_a_close_writes_down_what_is_known_of_the_changelogs(world: World) -> None:
    task = world.running()
    task.process([Input(0, b"a")])
    task.commit()
    task.abort()
    world.end, world.last_stable, world.epoch = 1, 1, 7
    world.consumed = [1]
    assert task.catch_up().is_complete
    task.close()
    again = world.standby(world.stores())
    assert again.epochs() == {TopicPartition("app-counts-changelog", 0): 7}
    again.close()


def test_the_epoch_of_an_end_is_not_that_of_what_was_written_behind_it(world: World) -> None:
    changelog = TopicPartition("app-counts-changelog", 0)
    task = world.running()
    task.process([Input(0, b"a")])
    task.commit()
    task.abort()
    world.end, world.last_stable, world.epoch = 1, 1, 7
    world.consumed = [1]
    assert task.catch_up().is_complete
    assert task.positions() == {source(): 1}
    task.commit()  # nothing was written: the end is known under its epoch
    standby = world.standby(task.recycle())
    assert standby.epochs() == {changelog: 7}
    task = world.running(standby.recycle())
    world.producer.first = 1 - len(world.producer.records)
    task.process([Input(1, b"a")])
    task.commit()  # perhaps under a later leader, so of no known epoch
    assert task.offsets()[changelog] >= 1
    standby = world.standby(task.recycle())
    assert standby.epochs() == {}
    standby.close()


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
