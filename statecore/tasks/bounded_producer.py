"""A producer whose calls end: kafka-python waits without bound for brokers when it flushes or ends a transaction.

Each such call runs on a thread of its own, for ``max.block.ms`` at most, which is what Kafka's own producer does. When
that has passed nobody knows what the brokers make of the call. It may still take place, so the producer is given up::

    call --answered in time--> the call's result, or its error
         --not in time, or the waiting thread was interrupted--> given up: every later call is refused

A producer that is given up sends nothing more, whoever has it: what it still had would come behind a changelog that the
next task has read to its end. That task needs another one; ``close()`` of this one returns at once. What is left is one
sleeping thread, of the process, when the call was one of a transaction: kafka-python never wakes it.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from statecore.errors import Retryable
from statecore.tasks.active_context import TransactionalProducer
from statecore.tasks.change_logging import Acknowledgement

_GIVEN_UP: dict[int, str] = {}
"""By ``id()`` of a producer that was given up, for as long as there is that producer, what it did not answer."""


class BoundedProducer:
    """A producer of one task alone, given up when a call of it is not answered in time.

    Args:
        producer: the producer.
        task: the task, for errors.
        max_block_ms: how long one call may wait for brokers, in ms.
    """

    def __init__(self, producer: TransactionalProducer, task: str, max_block_ms: int) -> None:
        self._producer = producer
        self._task = task
        self._max_block_ms = max_block_ms
        self._unanswered: str | None = None

    def send(self, *args: Any, **kwargs: Any) -> Acknowledgement:
        """Send a record as :meth:`Producer.send` does; the producer's own ``max_block_ms`` bounds that.

        Raises:
            Retryable: the producer was given up.
        """
        self.check()
        return self._producer.send(*args, **kwargs)

    def flush(self, timeout: float | None = None) -> None:
        """Wait until everything sent is acknowledged, ``timeout`` seconds or ``max_block_ms``, whichever is less.

        Raises:
            Retryable: not everything was, and the producer is given up.
        """
        within = self._max_block_ms if timeout is None else min(self._max_block_ms, int(timeout * 1000))
        self._wait("the records that it has sent to be acknowledged", self._producer.flush, within)

    def init_transactions(self) -> None:
        """Fence an earlier producer with this id. Raises ``Retryable`` where the brokers do not answer in time."""
        self._wait("what an earlier instance has left open to be ended", self._producer.init_transactions)

    def begin_transaction(self) -> None:
        """Begin, which no broker is asked for. Raises ``Retryable`` where the producer was given up."""
        self.check()
        self._producer.begin_transaction()

    def send_offsets_to_transaction(self, offsets: Any, group_metadata: Any) -> None:
        """Have input offsets committed with the transaction. Raises ``Retryable`` as :meth:`init_transactions`."""
        self._wait(
            "its input offsets to be taken into its transaction",
            lambda: self._producer.send_offsets_to_transaction(offsets, group_metadata),
        )

    def commit_transaction(self) -> None:
        """Commit. Raises ``Retryable`` where the brokers do not answer in time: it may be committed, now or later."""
        self._wait("its transaction to be committed", self._producer.commit_transaction)

    def abort_transaction(self) -> None:
        """Abort. Raises ``Retryable`` as :meth:`init_transactions`; the brokers abort it later in any case."""
        self._wait("its transaction to be aborted", self._producer.abort_transaction)

    def check(self) -> None:
        """Raise ``Retryable`` where the producer was given up, by this task or by one that had it before."""
        what = self._unanswered or _GIVEN_UP.get(id(self._producer))
        if what is not None:
            raise Retryable(
                f"Task {self._task} does not use its producer any more: it waited in vain for {what}.",
                code="producer-unusable",
                action="Close the producer; give the stores to a new active task with a new one.",
                task=self._task,
            )

    def _wait(self, what: str, call: Callable[[], object], within_ms: int | None = None) -> None:
        self.check()
        within = self._max_block_ms if within_ms is None else within_ms
        answered = threading.Event()
        errors: list[BaseException] = []

        def ask() -> None:
            try:
                call()
            except BaseException as error:
                errors.append(error)
            finally:
                answered.set()

        self._unanswered = what  # and stays so when a signal handler raises out of the wait
        try:
            threading.Thread(target=ask, name=f"producer of task {self._task}", daemon=True).start()
            if self._is_answered(answered, within / 1000):
                self._unanswered = None
        finally:
            if self._unanswered is not None:
                self._give_up(self._unanswered)
        if self._unanswered is not None:
            raise unanswered(self._task, what, within)
        if errors:
            raise errors[0]

    def _is_answered(self, answered: threading.Event, seconds: float) -> bool:
        return answered.wait(seconds)

    def _give_up(self, unanswered: str) -> None:
        from kafka import KafkaProducer

        with suppress(TypeError):  # one without weak references is refused here only
            weakref.finalize(self._producer, _GIVEN_UP.pop, id(self._producer), None).atexit = False
            _GIVEN_UP[id(self._producer)] = unanswered
        if isinstance(self._producer, KafkaProducer):
            # KafkaProducer.close() flushes first, and where that ends in vain it leaves its sender at work.
            self._producer._sender.force_close()


def unanswered(task: str, what: str, within_ms: int) -> Retryable:
    """The error of a call that brokers have not answered in time; what came of it nobody knows.

    Args:
        task: the task.
        what: what was waited for.
        within_ms: for how long, in ms.
    """
    return Retryable(
        f"Task {task} waited {within_ms / 1000:g} s (max.block.ms) for {what}, and no broker has answered: nobody "
        "knows whether that has happened. Its stores stand at their last commit.",
        code="acknowledgement-timeout",
        action="Check the brokers; then close the producer, and give the stores to a new active task with a new one: "
        "it takes what was committed after all from the changelogs.",
        task=task,
    )
