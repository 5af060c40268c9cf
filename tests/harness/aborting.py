"""An exactly-once application with transactional stores (KIP-892) that is fed all the time and fails on demand.

Every attempt to process a record gives it another value, so a row of an attempt whose transaction was aborted is in no
committed changelog. Memtables are small: RocksDB flushes by itself, in the middle of transactions.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

from statecore.formats.kinds import StoreKind
from tests.harness import topics
from tests.harness.broker import Broker
from tests.harness.config_setter import CONFIG_SETTER, config_setter
from tests.harness.fed_application import FedApplication, eventually
from tests.harness.feeds import EVENTS, MINUTE
from tests.harness.java_source import compile_class
from tests.harness.kinds import PLAIN, TRANSACTIONAL, KindsApplication
from tests.harness.sources import RETENTION, Sources
from tests.harness.streams import StreamsApplication, StreamsJvm
from tests.harness.topics import Record

VERSIONED = "versioned-key-value"
STORES = {
    "key-value": StoreKind.KEY_VALUE,
    "timestamped-key-value": StoreKind.TIMESTAMPED_KEY_VALUE,
    "timestamped-window": StoreKind.TIMESTAMPED_WINDOW,
    "session": StoreKind.SESSION,
}
"""The stores besides the versioned one."""

KEYS = 20
"""Of each partition."""

_STEP_MS = 300
_LATE_MS = 2 * MINUTE
_SEGMENT_MS = RETENTION // 2
_COMMIT_MS, _TRANSACTION_MS = 700, 5_000

_SOURCE = """
package statecore.harness;

import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.streams.errors.TaskMigratedException;
import org.apache.kafka.streams.kstream.*;

public class %(name)s implements ValueMapper, ForeachAction {
    private final AtomicInteger left = new AtomicInteger();
    private final Semaphore failures = new Semaphore(0);

    public Object apply(final Object value) {
        return value == null ? null : value + "@" + System.nanoTime();
    }

    public void apply(final Object key, final Object value) {
        if (value != null && left.get() > 0 && left.decrementAndGet() == 0) {
            failures.acquireUninterruptibly();
            throw new TaskMigratedException("on demand");
        }
    }

    public void failAfter(final int records) {
        left.set(records);
    }

    public boolean isHeld() {
        return failures.hasQueuedThreads();
    }

    public void fail() {
        failures.release();
    }
}
"""

_numbers = count(1)


class _Kinds(KindsApplication):
    """Stores of values that each attempt gives anew; the record that ends an attempt is in all of them."""

    def fill(self, jvm: StreamsJvm, builder: Any, topics: Mapping[str, str]) -> None:
        attempt = jvm.functions.kept(("attempt",), lambda: _attempt(jvm))
        sources = Sources(jvm, builder, topics)
        stream = sources.replace(EVENTS, sources.stream(EVENTS).mapValues(attempt))
        for add in dict.fromkeys(case.add for case in self.cases):
            add(sources)
        stream.foreach(attempt)


def _attempt(jvm: StreamsJvm) -> Any:
    name = f"Attempt{next(_numbers)}"
    made = compile_class(jvm, f"statecore.harness.{name}", _SOURCE % {"name": name})
    return made.getDeclaredConstructor(None).newInstance(None)


_APPLICATION = _Kinds(
    "aborting",
    tuple(
        replace(case, query=None) if case.store == VERSIONED else case
        for case in PLAIN.cases
        if case.store in (*STORES, VERSIONED)
    ),
    lambda *_: [(EVENTS, [])],
)


class AbortingApplication(FedApplication):
    """The application, in any JVM, with a topic that a thread feeds.

    Args:
        broker: where its topics are.
        application_id: its id.
        state_dir: its ``state.dir``.
        transactional: whether its stores are, at first.
    """

    def __init__(self, broker: Broker, application_id: str, state_dir: Path, *, transactional: bool = True) -> None:
        super().__init__(broker.bootstrap_servers, application_id, state_dir, "exactly_once_v2", _APPLICATION)
        self.set_transactional(transactional)
        self.fed = 0

    def set_transactional(self, transactional: bool) -> None:
        """Says what the application is started with from now on, and what its spec says."""
        self.kinds = replace(self.kinds, properties={TRANSACTIONAL: "true"} if transactional else {})

    def application(self, jvm: StreamsJvm) -> StreamsApplication:
        """The application, not started."""
        made = StreamsApplication(
            jvm,
            self.application_id,
            self.servers,
            self.state_dir,
            self.kinds.topology(self.inputs),
            commit_interval_ms=_COMMIT_MS,
            properties={
                **self.kinds.properties,
                # What a killed instance leaves open is aborted after this time.
                "producer.transaction.timeout.ms": str(_TRANSACTION_MS),
                CONFIG_SETTER: config_setter(jvm, "options.setWriteBufferSize(65536L);"),
            },
        )
        self.description = made.describe()
        return made

    @contextmanager
    def feeding(self) -> Iterator[None]:
        """Feeds inside the block, in a thread."""
        end, failed = threading.Event(), []

        def feed() -> None:
            try:
                while not end.wait(0.1):
                    self.feed_some(20)
            except BaseException as error:  # shown by the test, not by the thread
                failed.append(error)

        thread = threading.Thread(target=feed)
        thread.start()
        try:
            yield
        finally:
            end.set()
            thread.join()
        assert not failed, failed

    def wait(self, roles: Collection[str] = (EVENTS,)) -> None:
        """Waits until the application has consumed what was fed."""
        super().wait(set(roles))

    def feed_some(self, each: int) -> None:
        """Feeds so many records to each partition: updates, late ones, and deletes."""
        records = []
        for number in range(self.fed, self.fed + each):
            at = self.base + number * _STEP_MS - (_LATE_MS if number % 7 == 3 else 0)
            value = None if number % 31 == 30 else (b"value %d" % number).ljust(400, b".")
            records += [
                Record(b"key-%02d" % (number % KEYS), value, partition, at) for partition in range(self.partitions)
            ]
        self.fed += each
        topics.produce(self.servers, self.inputs[EVENTS], records)

    def abort(self, jvm: StreamsJvm, after: int = 60) -> None:
        """Has the application fail after so many records, when the broker has some of the transaction."""
        attempt = jvm.functions.kept(("attempt",), lambda: _attempt(jvm))
        attempt.failAfter(after)
        _until(attempt.isHeld)
        eventually(self.is_open, True, _TRANSACTION_MS / 1000)  # the broker itself aborts what is open for longer
        attempt.fail()

    def changelogs(self) -> dict[tuple[str, int], str]:
        """The changelog of each store and partition, without the versioned store's."""
        return {
            (store, partition): f"{self.application_id}-{store}-changelog"
            for store in STORES
            for partition in range(self.partitions)
        }

    def is_open(self) -> bool:
        """Whether a transaction with records of a changelog is open."""
        return any(
            topics.end_offset(self.servers, topic, partition, "read_committed")
            < topics.end_offset(self.servers, topic, partition)
            for (_, partition), topic in self.changelogs().items()
        )

    def wait_until_open(self) -> None:
        """Returns while a transaction is open."""
        _until(self.is_open)

    def has_room_in_segment(self) -> bool:
        """Whether the newest segment of windows has begun, and 300 more records begin no other."""
        return MINUTE < (self.base + self.fed * _STEP_MS) % _SEGMENT_MS < _SEGMENT_MS - 3 * MINUTE // 2

    def wait_until_segments(self, count: int) -> None:
        """Returns when records of so many segments of windows were fed."""
        _until(lambda: self.fed * _STEP_MS > (count - 1) * _SEGMENT_MS)

    def wait_until_ended(self) -> None:
        """Returns when no transaction is open any more: the broker aborts those of the dead."""
        _until(lambda: not self.is_open())

    def committed(self) -> dict[tuple[str, int], list[Record]]:
        """The committed records of each changelog."""
        return {
            (store, partition): topics.read(self.servers, topic, partition)
            for (store, partition), topic in self.changelogs().items()
        }

    def aborted(self) -> set[bytes]:
        """Values of which all records in a changelog are of aborted transactions."""
        found: set[bytes] = set()
        for (_, partition), topic in self.changelogs().items():
            every = topics.read(self.servers, topic, partition, "read_uncommitted")
            found |= {one.value for one in every if one.value is not None}
        committed = {one.value for records in self.committed().values() for one in records}
        return {value for value in found - committed if b"@" in value}

    def all_answers(self, running: StreamsApplication) -> Any:
        """What is answered of what has not expired."""
        return self.answers(running, self.fed * _STEP_MS)


def _until(condition: Callable[[], bool]) -> None:
    assert eventually(condition, True)
