"""A commit to Kafka that is not answered, or not the member's any more, is no commit; Kafka is a fake here."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from statecore.errors import Fenced, Retryable
from statecore.formats.topic_partition import TopicPartition
from statecore.tasks.active_context import ProcessorContext
from statecore.tasks.active_task import TaskState
from statecore.tasks.bounded_producer import BoundedProducer
from statecore.tasks.commit_policy import CommitSettings
from tests.harness.raising import raises
from tests.unit.tasks.active_world import AT_LEAST_ONCE, EXACTLY_ONCE, World, rows
from tests.unit.tasks.counting import Counting, Input, ListedConsumer, TransactionalListed


class KafkaTimeoutError(Exception):
    """Named as the client's."""


IMPATIENT = CommitSettings(max_block_ms=50)


@pytest.fixture(autouse=True)
def time_is_up_when_a_call_is_silent_and_never_before(monkeypatch: pytest.MonkeyPatch) -> None:
    def is_answered(self: BoundedProducer, answered: threading.Event, seconds: float) -> bool:
        listed: Any = self._producer
        while not answered.wait(0.001):
            if listed.reached.is_set():
                return False
        return True

    monkeypatch.setattr(BoundedProducer, "_is_answered", is_answered)


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
    with raises(Retryable, "acknowledgement-timeout") as told:
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


def test_stores_can_be_opened_aborted_and_released_without_brokers(world: World) -> None:
    exactly_once = world.spec.processing_guarantee is EXACTLY_ONCE
    task = world.active(commits=IMPATIENT)
    world.producer.silent = "init_transactions"
    if exactly_once:
        with raises(Retryable, "acknowledgement-timeout", task="0_0"):
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


def test_a_task_whose_producer_did_not_answer_a_task_before_it_is_refused_when_it_is_opened(world: World) -> None:
    task = world.running(commits=IMPATIENT)
    task.process([Input(0, b"a")])
    world.producer.silent = "flush"
    with pytest.raises(Retryable):
        task.commit()
    world.producer.silent = ""
    world.producer.answered.set()
    sent = len(world.producer.records)
    again = world.active(task.recycle())
    with raises(Retryable, "producer-unusable", task="0_0"):
        again.open()
    assert again.state is TaskState.FAILED
    assert len(world.producer.records) == sent
    again.close()


def test_what_a_processor_writes_before_the_first_record_is_committed_and_no_input_offset_is(world: World) -> None:
    class Preparing(Counting):
        def init(self, context: ProcessorContext) -> None:
            super().init(context)
            self.stores[0].put(b"prepared", b"0")

    world.processor = Preparing("out")
    task = world.running()
    world.producer.happened.clear()
    task.commit()
    exactly_once = world.spec.processing_guarantee is EXACTLY_ONCE
    assert "flush" in world.producer.happened
    assert [one for one in world.producer.happened if one != "flush"] == (["commit"] if exactly_once else [])
    assert rows(task.stores) == {b"prepared": b"0"}
    assert task.offsets() == {TopicPartition("app-counts-changelog", 0): 0}
    world.producer.happened.clear()
    task.commit()
    assert world.producer.happened == []  # there was nothing
    task.close()


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
    with raises(Retryable, "acknowledgement-timeout", task="0_0"):
        task.commit()
    assert given == [50]
    assert rows(task.stores) == {}
    task.close()


@pytest.mark.parametrize("guarantee", [EXACTLY_ONCE])
@pytest.mark.parametrize("joins", ["before", "later"])
def test_a_consumer_that_was_in_its_group_and_is_no_more_commits_nothing(world: World, joins: str) -> None:
    world.consumer.generation_id = 7 if joins == "before" else -1
    task = world.running()
    world.consumer.generation_id = 7
    if joins == "later":
        task.process([Input(0, b"a")])
        task.commit()
    task.process([Input(1, b"b")])
    world.consumer.generation_id = -1
    world.producer.happened.clear()
    with raises(Fenced, "consumer-fenced", task="0_0"):
        task.commit()
    assert world.producer.happened == ["flush", "abort"]
    assert task.state is TaskState.FAILED
    assert b"b" not in rows(task.stores)
    task.close()
