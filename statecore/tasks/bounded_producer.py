"""A producer whose calls time out: kafka-python waits without bound when it flushes or ends a transaction.

Each such call runs on a thread of its own, for ``max.block.ms`` at most, as Kafka's own producer does. After that the
outcome is unknown, and the call may still take effect, so the producer is abandoned::

    call --answered in time--> the call's result, or its error
         --not in time, or the waiting thread was interrupted--> abandoned: every later call is refused

An abandoned producer sends nothing more: its remaining records would be appended to a changelog that the next task has
read to its end. That task needs another producer; ``close()`` of this one returns at once. After a transactional call
one sleeping thread remains in the process: kafka-python never wakes it.
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

_ABANDONED: dict[int, str] = {}  # By id() of an abandoned producer, while it exists, the call that was not answered


class BoundedProducer:
    """A producer of one task alone, abandoned when a call is not answered within ``max_block_ms``."""

    def __init__(self, producer: TransactionalProducer, task: str, max_block_ms: int) -> None:
        self._producer = producer
        self._task = task
        self._max_block_ms = max_block_ms
        self._unanswered: str | None = None

    def send(self, *args: Any, **kwargs: Any) -> Acknowledgement:
        """Send a record as :meth:`Producer.send` does, within the producer's own ``max_block_ms``."""
        self.check()
        return self._producer.send(*args, **kwargs)

    def flush(self, timeout: float | None = None) -> None:
        """Wait until everything sent is acknowledged, ``timeout`` seconds or ``max_block_ms``, whichever is less."""
        within = self._max_block_ms if timeout is None else min(self._max_block_ms, int(timeout * 1000))
        self._wait("the records that it has sent to be acknowledged", self._producer.flush, within)

    def init_transactions(self) -> None:
        """Fence an earlier producer with this id. Raises ``Retryable`` where the brokers do not answer in time."""
        self._wait("what an earlier instance has left open to be ended", self._producer.init_transactions)

    def begin_transaction(self) -> None:
        """Begin a transaction, without asking a broker. Raises ``Retryable`` where the producer was abandoned."""
        self.check()
        self._producer.begin_transaction()

    def send_offsets_to_transaction(self, offsets: Any, group_metadata: Any) -> None:
        """Commit input offsets with the transaction. Raises ``Retryable`` as :meth:`init_transactions`."""
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
        """Raise ``Retryable`` where the producer was abandoned, by this task or by an earlier one."""
        what = self._unanswered or _ABANDONED.get(id(self._producer))
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

        self._unanswered = what  # and stays set when a signal handler raises out of the wait
        try:
            threading.Thread(target=ask, name=f"producer of task {self._task}", daemon=True).start()
            if self._is_answered(answered, within / 1000):
                self._unanswered = None
        finally:
            if self._unanswered is not None:
                self._abandon(self._unanswered)
        if self._unanswered is not None:
            raise unanswered(self._task, what, within)
        if errors:
            raise errors[0]

    def _is_answered(self, answered: threading.Event, seconds: float) -> bool:
        return answered.wait(seconds)

    def _abandon(self, unanswered: str) -> None:
        from kafka import KafkaProducer

        with suppress(TypeError):  # a producer without weak references is refused by this instance only
            weakref.finalize(self._producer, _ABANDONED.pop, id(self._producer), None).atexit = False
            _ABANDONED[id(self._producer)] = unanswered
        if isinstance(self._producer, KafkaProducer):
            # KafkaProducer.close() flushes first, and leaves its sender running if that fails.
            self._producer._sender.force_close()


def unanswered(task: str, what: str, within_ms: int) -> Retryable:
    """The error of a call that brokers have not answered within so many ms, whose outcome is unknown."""
    return Retryable(
        f"Task {task} waited {within_ms / 1000:g} s (max.block.ms) for {what}, and no broker has answered: it is "
        "unknown whether that has happened. Its stores are at their last commit.",
        code="acknowledgement-timeout",
        action="Check the brokers; then close the producer, and give the stores to a new active task with a new one: "
        "it applies from the changelogs what was committed after all.",
        task=task,
    )
