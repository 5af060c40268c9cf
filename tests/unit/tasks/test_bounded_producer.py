"""A producer whose calls end, and that is of no more use once one was not answered."""

from __future__ import annotations

import gc
import signal
import threading
from collections.abc import Callable
from contextlib import closing
from types import FrameType
from typing import Any

import pytest
from kafka import KafkaProducer
from kafka.producer.sender import Sender

from statecore.errors import Retryable
from statecore.tasks import bounded_producer
from statecore.tasks.bounded_producer import BoundedProducer
from tests.harness.raising import raises
from tests.unit.tasks.counting import TransactionalListed

CALLS: dict[str, Callable[[BoundedProducer], object]] = {
    "flush": lambda producer: producer.flush(),
    "init_transactions": lambda producer: producer.init_transactions(),
    "send_offsets_to_transaction": lambda producer: producer.send_offsets_to_transaction({}, "group"),
    "commit_transaction": lambda producer: producer.commit_transaction(),
    "abort_transaction": lambda producer: producer.abort_transaction(),
}
OTHERS: dict[str, Callable[[BoundedProducer], object]] = {
    "send": lambda producer: producer.send("out", b"v"),
    "begin_transaction": lambda producer: producer.begin_transaction(),
}


class Sending(TransactionalListed, KafkaProducer):  # type: ignore[misc]
    """kafka-python's producer, with a sender that says when it is told to end."""

    def __init__(self, silent: str = "") -> None:
        TransactionalListed.__init__(self, silent=silent)
        self._sender = self

    def close(self, *_: Any, **__: Any) -> None:
        pass

    def force_close(self) -> None:
        self.happened.append("closed")


@pytest.mark.parametrize("call", CALLS)
def test_a_call_that_is_not_answered_ends_and_the_producer_is_refused_from_then_on(call: str) -> None:
    listed = Sending(silent=call)
    producer = BoundedProducer(listed, "0_1", 30)
    with raises(Retryable, "acknowledgement-timeout", task="0_1"):
        CALLS[call](producer)
    assert listed.happened == ["closed"]
    listed.silent = ""
    for later in (*CALLS.values(), *OTHERS.values()):
        with raises(Retryable, "producer-unusable", task="0_1"):
            later(producer)
    assert listed.happened == ["closed"]
    assert listed.records == []
    listed.answered.set()


def test_an_abandoned_producer_refuses_further_use() -> None:
    listed = Sending(silent="flush")
    with pytest.raises(Retryable):
        BoundedProducer(listed, "0_1", 30).flush()
    listed.silent = ""
    listed.answered.set()
    again = BoundedProducer(listed, "0_2", 60_000)
    for call in (*CALLS.values(), *OTHERS.values()):
        with raises(Retryable, "producer-unusable", task="0_2"):
            call(again)
    assert listed.records == []
    BoundedProducer(Sending(), "0_1", 60_000).flush()


def test_no_more_is_kept_of_a_producer_that_was_given_up_than_there_is_of_the_producer() -> None:
    listed = Sending(silent="flush")
    with pytest.raises(Retryable):
        BoundedProducer(listed, "0_1", 30).flush()
    assert id(listed) in bounded_producer._ABANDONED
    of = id(listed)
    (asking,) = (one for one in threading.enumerate() if one.name == "producer of task 0_1")
    listed.answered.set()
    asking.join()
    del asking
    listed._sender = None
    del listed
    gc.collect()
    assert of not in bounded_producer._ABANDONED


def test_abandoning_a_producer_stops_the_sender_of_the_pinned_kafka_python(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[Sender] = []
    answered = threading.Event()
    monkeypatch.setattr(Sender, "run", lambda self: self._client.close())
    with closing(KafkaProducer(bootstrap_servers="localhost:1", api_version=(3, 9))) as producer:
        with monkeypatch.context() as patched:
            patched.setattr(Sender, "force_close", lambda self: ended.append(self))
            patched.setattr(producer, "flush", answered.wait)
            with pytest.raises(Retryable):
                BoundedProducer(producer, "0_1", 30).flush()
        assert ended == [producer._sender]
        answered.set()


@pytest.mark.parametrize("call", CALLS)
def test_a_call_that_is_answered_is_the_producers_own(call: str) -> None:
    listed = Sending()
    producer = BoundedProducer(listed, "0_1", 60_000)
    CALLS[call](producer)
    assert len(listed.happened) == 1
    OTHERS["begin_transaction"](producer)
    assert producer.send("out", b"v", b"k").get().offset == 0
    assert "closed" not in listed.happened


def test_an_error_of_the_producer_is_the_callers_and_the_producer_stays_of_use() -> None:
    listed = Sending()
    listed.commit_error = ValueError("no")
    producer = BoundedProducer(listed, "0_1", 60_000)
    with pytest.raises(ValueError, match="no"):
        producer.commit_transaction()
    producer.abort_transaction()
    assert listed.happened == ["abort"]


@pytest.mark.parametrize(("max_block_ms", "timeout"), [(60_000, 0.02), (20, 60.0)])
def test_a_flush_waits_for_the_shorter_time(max_block_ms: int, timeout: float) -> None:
    listed = Sending(silent="flush")
    producer = BoundedProducer(listed, "0_1", max_block_ms)
    with pytest.raises(Retryable, match=r"waited 0\.02 s"):
        producer.flush(timeout)
    listed.answered.set()


def test_a_signal_that_ends_the_wait_abandons_the_producer() -> None:
    def raising(number: int, frame: FrameType | None) -> Any:
        raise KeyboardInterrupt

    waiting = threading.get_ident()

    class Signalling(Sending):
        def _reach(self, call: str) -> None:
            if call == self.silent:
                signal.pthread_kill(waiting, signal.SIGUSR1)
            super()._reach(call)

    listed = Signalling(silent="commit_transaction")
    producer = BoundedProducer(listed, "0_1", 60_000)
    before = signal.signal(signal.SIGUSR1, raising)
    try:
        with pytest.raises(KeyboardInterrupt):
            producer.commit_transaction()
    finally:
        signal.signal(signal.SIGUSR1, before)
        listed.answered.set()
    assert listed.happened[0] == "closed"
    with raises(Retryable, "producer-unusable", task="0_1"):
        producer.abort_transaction()
