"""A producer whose calls end, and that is of no more use once one was not answered."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from statecore.errors import Retryable
from statecore.processor.bounded_producer import BoundedProducer
from tests.unit.processor.counting import TransactionalListed

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


class Sending(TransactionalListed):
    """Has a sender, as kafka-python's producer, that can be told to end."""

    def __init__(self, silent: str = "") -> None:
        super().__init__(silent=silent)
        self._sender = self

    def force_close(self) -> None:
        self.happened.append("closed")


@pytest.mark.parametrize("call", CALLS)
def test_a_call_that_is_not_answered_ends_and_the_producer_is_refused_from_then_on(call: str) -> None:
    listed = Sending(silent=call)
    producer = BoundedProducer(listed, "0_1", 30)
    began = time.monotonic()
    with pytest.raises(Retryable, match=r"Task 0_1 waited 0.03 s .* nobody knows"):
        CALLS[call](producer)
    assert time.monotonic() - began < 5
    assert listed.happened == ["closed"]
    listed.silent = ""
    for later in (*CALLS.values(), *OTHERS.values()):
        with pytest.raises(Retryable, match="Task 0_1 does not use its producer any more: it waited in vain for "):
            later(producer)
    assert listed.happened == ["closed"]
    assert listed.records == []
    listed.answered.set()


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


def test_a_flush_waits_for_the_shorter_time() -> None:
    listed = Sending(silent="flush")
    producer = BoundedProducer(listed, "0_1", 60_000)
    began = time.monotonic()
    with pytest.raises(Retryable, match=r"waited 0\.02 s"):
        producer.flush(0.02)
    assert time.monotonic() - began < 5
    listed.answered.set()


def test_a_signal_that_ends_the_wait_leaves_a_producer_that_nobody_uses() -> None:
    def raising(number: int, frame: FrameType | None) -> Any:
        raise KeyboardInterrupt

    listed = Sending(silent="commit_transaction")
    producer = BoundedProducer(listed, "0_1", 60_000)
    before = signal.signal(signal.SIGUSR1, raising)
    timer = threading.Timer(0.1, signal.pthread_kill, [threading.get_ident(), signal.SIGUSR1])
    try:
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            producer.commit_transaction()
    finally:
        timer.join()
        signal.signal(signal.SIGUSR1, before)
        listed.answered.set()
    assert listed.happened[0] == "closed"
    with pytest.raises(Retryable, match="its transaction to be committed"):
        producer.abort_transaction()
