"""The demo's application: real Kafka Streams 4.4.0 under exactly-once, with four stores over the flights of 2013.

::

    flights ──┬─▶ flights-by-id           plain key-value store: every flight by its id            (subtopology 0)
              ├─▶ latest-flight-by-plane  timestamped: the flight each plane made last             (1, by repartition)
              ├─▶ flights-by-carrier      timestamped: how many flights each carrier made          (2, by repartition)
              └─▶ delay-by-airport        timestamped: minutes of arrival delay at each airport    (3, by repartition)

Four partitions each: sixteen tasks. The topology is written with the DSL, from Python through py4j; the functions in
it are put together from methods of the JVM (``tests.harness.functions``), so that no record passes through Python.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from demo import flights
from tests.harness import topics
from tests.harness.queries import StoreQuery, digest
from tests.harness.streams import StreamsApplication, StreamsJvm

application_id = "flights"

STORES = {
    "flights-by-id": StoreQuery(timestamped=False, key="String", value="String"),
    "latest-flight-by-plane": StoreQuery(timestamped=True, key="String", value="String"),
    "flights-by-carrier": StoreQuery(timestamped=True, key="String", value="Long"),
    "delay-by-airport": StoreQuery(timestamped=True, key="String", value="Long"),
}
"""Every store, and how it is asked."""

COMMIT_INTERVAL_MS = 500
"""Short enough that the changelogs hold dozens of real transactions."""

_KSTREAM = "org.apache.kafka.streams.kstream"
_OBJECT = "java.lang.Object"
_STRING = "java.lang.String"


@dataclass(frozen=True)
class StoreState:
    """What one partition of a store answers.

    Attributes:
        task: the Kafka Streams task, ``<subtopology>_<partition>``.
        store: name of the store.
        partition: of the store and its changelog.
        rows: number of rows that its ``all()`` returns.
        digest: SHA-256 (hex) over all of them, keys, values and timestamps.
    """

    task: str
    store: str
    partition: int
    rows: int
    digest: str


def create_topics(bootstrap_servers: str) -> None:
    """Creates the input topic; Kafka Streams creates its own."""
    topics.create(bootstrap_servers, flights.TOPIC, flights.PARTITIONS)


def changelog(store: str) -> str:
    """The changelog topic of a store."""
    return f"{application_id}-{store}-changelog"


def build(jvm: StreamsJvm) -> Any:
    """The topology, a Java object."""
    streams = jvm.jvm.org.apache.kafka.streams
    dsl = _Dsl(jvm)
    builder = streams.StreamsBuilder()
    stream = builder.stream(flights.TOPIC, dsl.with_(streams.kstream.Consumed, "String", "String"))
    stream.toTable(
        dsl.as_(streams.kstream.Materialized, streams.state.Stores.persistentKeyValueStore("flights-by-id"))
        .withKeySerde(dsl.serde("String"))
        .withValueSerde(dsl.serde("String"))
    )

    by_plane = stream.filterNot(dsl.is_missing("tailnum")).groupBy(
        dsl.key_by("tailnum"), dsl.grouped("plane", "String")
    )
    by_plane.reduce(dsl.newer(), dsl.store("latest-flight-by-plane", "String"))

    by_carrier = stream.groupBy(dsl.key_by("carrier"), dsl.grouped("carrier", "String"))
    by_carrier.count(dsl.store("flights-by-carrier", "Long"))

    delays = stream.filterNot(dsl.is_missing("arr_delay")).map(dsl.pair("dest", "arr_delay"))
    by_airport = delays.groupByKey(dsl.grouped("airport", "Long"))
    by_airport.reduce(dsl.sum(), dsl.store("delay-by-airport", "Long"))
    return builder.build()


class FlightsApplication:
    """One life of the application: its own JVM, started and closed (or killed).

    Args:
        bootstrap_servers: ``host:port`` of the broker; the input topic must be there (``create_topics``).
        state_dir: ``state.dir``; its state is in ``state_dir/flights``.
        log_file: receives warnings and errors of Kafka Streams.
    """

    def __init__(self, bootstrap_servers: str, state_dir: Path, log_file: Path) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._jvm = StreamsJvm(log_file)
        self._application = StreamsApplication(
            self._jvm,
            application_id,
            bootstrap_servers,
            state_dir,
            build,
            threads=2,
            commit_interval_ms=COMMIT_INTERVAL_MS,
            stores=STORES,
        )

    def start(self, timeout: float = 120.0) -> FlightsApplication:
        """Starts it and returns when it is RUNNING: everything is restored then."""
        self._application.start(timeout)
        return self

    def wait_until_processed(self, timeout: float = 120.0) -> None:
        """Waits until every flight has gone all the way, through the repartition topics too, and is committed."""
        repartition = [f"{application_id}-{name}-repartition" for name in ("plane", "carrier", "airport")]
        topics.wait_until_consumed(self._bootstrap_servers, application_id, [flights.TOPIC, *repartition], timeout)

    def describe(self) -> str:
        """The text of ``Topology.describe()``, which tells the subtopology numbers."""
        return self._application.describe()

    def digests(self) -> list[StoreState]:
        """What every partition of every store answers, through interactive queries, in the order of the tasks."""
        found = []
        for task, store, partition in self._application.store_tasks():
            rows = self._application.query_rows(store, partition)
            found.append(StoreState(task, store, partition, len(rows), digest(rows)))
        return found

    def restored_records(self) -> dict[tuple[str, int], int]:
        """Records that Kafka Streams had to restore since the start, by (store, partition)."""
        return self._application.restored_records()

    def close(self) -> None:
        """Closes the application cleanly, and its JVM."""
        try:
            self._application.close()
        finally:
            self._jvm.close()

    def kill(self) -> None:
        """SIGKILL, as when the machine is lost."""
        self._jvm.kill()

    def __enter__(self) -> FlightsApplication:
        return self.start()

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self.kill()


class _Dsl:
    """The Java objects the topology asks for: serdes, named stores, and functions over a flight's line."""

    def __init__(self, jvm: StreamsJvm) -> None:
        self._f = jvm.functions
        self._jvm = jvm.jvm
        self._kstream = jvm.jvm.org.apache.kafka.streams.kstream

    def serde(self, name: str) -> Any:
        return getattr(self._jvm.org.apache.kafka.common.serialization.Serdes, name)()

    def with_(self, owner: Any, key: str, value: str) -> Any:
        return getattr(owner, "with")(self.serde(key), self.serde(value))  # "with" and "as" are words of Python

    def as_(self, owner: Any, *arguments: Any) -> Any:
        return getattr(owner, "as")(*arguments)

    def grouped(self, name: str, value: str) -> Any:
        return self.with_(self._kstream.Grouped, "String", value).withName(name)

    def store(self, name: str, value: str) -> Any:
        materialized = self.as_(self._kstream.Materialized, name)
        return materialized.withKeySerde(self.serde("String")).withValueSerde(self.serde(value))

    def key_by(self, column: str) -> Any:
        """``(key, line) -> column``."""
        return self._f.instance(f"{_KSTREAM}.KeyValueMapper", self._f.ignoring(self._column(column), 0, _OBJECT))

    def is_missing(self, column: str) -> Any:
        """``(key, line) -> column is NA``."""
        equals = self._f.bind(self._f.method(_OBJECT, "equals", "boolean", _OBJECT), 1, "NA")
        test = self._f.then(self._column(column), equals)
        return self._f.instance(f"{_KSTREAM}.Predicate", self._f.ignoring(test, 0, _OBJECT))

    def pair(self, key: str, value: str) -> Any:
        """``(key, line) -> KeyValue(column key, column value as Long)``."""
        f = self._f
        number = f.then(self._column(value), f.static("java.lang.Long", "valueOf", "java.lang.Long", _STRING))
        pair = f.static(
            "org.apache.kafka.streams.KeyValue", "pair", "org.apache.kafka.streams.KeyValue", _OBJECT, _OBJECT
        )
        of_line = f.same_argument(f.on_arguments(pair, 0, self._column(key), number))
        return f.instance(f"{_KSTREAM}.KeyValueMapper", f.ignoring(of_line, 0, _OBJECT))

    def sum(self) -> Any:
        """``(a, b) -> a + b``."""
        return self._f.instance(f"{_KSTREAM}.Reducer", self._f.static("java.lang.Long", "sum", "long", "long", "long"))

    def newer(self) -> Any:
        """``(before, line) -> line``: flights come in order of time within a partition of the input only, so the
        later of two is not always the one that came last; what matters here is that it is one of them, for ever."""
        return self._f.instance(f"{_KSTREAM}.Reducer", self._f.ignoring(self._f.identity(_OBJECT), 0, _OBJECT))

    def _column(self, name: str) -> Any:
        """``line -> column``."""
        f = self._f
        split = f.bind(f.method(_STRING, "split", f"{_STRING}[]", _STRING), 1, ",")
        return f.then(split, f.element(_STRING, flights.COLUMNS.index(name)))
