"""A topology with a store of every kind, the records that try it, and how each store is declared and asked.

Kafka Streams' own DSL makes every store, so that what is tested is what applications have. A ``KindCase`` is one store;
cases of one ``KindsApplication`` live in one topology, which costs one start for all of them. The Java functions are
put together from methods the JVM has (``tests.harness.functions``); no record passes through Python.

::

    application = PLAIN                                     # or HEADERS, GLOBALS, ...
    for portion in application.feed(base, partitions=2):    # [(role, records), ...] in the order they must be processed
        ...
    application.topology(topics_by_role)                    # for StreamsApplication
    application.spec(description, guarantee, ...)           # what statecore is told
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tests.harness.feeds import (
    EVENTS,
    KEYS,
    LEFT,
    MINUTE,
    MORE,
    PRICES,
    PUTS,
    REFERENCE,
    RIGHT,
    SOURCE,
    SPAN,
    SPARSE,
    TABLE,
    Portion,
    feed,
)
from tests.harness.processors import supplier
from tests.harness.queries import StoreQuery
from tests.harness.sources import RETENTION, Sources
from tests.harness.streams import StreamsJvm, stores_of
from tests.harness.topics import Record

Add = Callable[[Sources], None]

TRANSACTIONAL = "enable.transactional.statestores"
"""KIP-892, since 4.4: rows reach RocksDB with the commit only, together with their offset."""


@dataclass(frozen=True)
class KindCase:
    """One store.

    Attributes:
        kind: as in the spec.
        store: its name.
        add: puts it, and perhaps stores of other cases with it, into a topology.
        query: how it is asked; None where Kafka Streams does not let anybody ask.
        declared: what the spec says besides the kind.
        source: role of the topic that it is filled from, where it has no changelog of its own.
        is_global: whether it is a global store.
    """

    kind: str
    store: str
    add: Add
    query: StoreQuery | None = None
    declared: Mapping[str, Any] = field(default_factory=dict)
    source: str | None = None
    is_global: bool = False

    @property
    def expires(self) -> bool:
        """Whether rows of it expire."""
        return "retention" in self.declared


@dataclass(frozen=True)
class KindsApplication:
    """Stores that live in one topology.

    Attributes:
        name: of the application, in ids of tests.
        cases: its stores.
        feed: the input, given the time of its first record (ms) and the number of partitions.
        properties: Streams properties it needs; they are also given to ``StreamsBuilder.build``.
        outputs: roles of the topics that it writes.
    """

    name: str
    cases: tuple[KindCase, ...]
    feed: Callable[[int, int], list[Portion]]
    properties: Mapping[str, str] = field(default_factory=dict)
    outputs: tuple[str, ...] = ()

    @property
    def transactional(self) -> bool:
        """Whether its stores are transactional."""
        return self.properties.get(TRANSACTIONAL) == "true"

    def roles(self) -> list[str]:
        """The roles of its input topics, in the order of the feed."""
        return list(dict.fromkeys(role for role, _ in self.feed(0, 1)))

    def topology(self, topics: Mapping[str, str]) -> Callable[[StreamsJvm], Any]:
        """Makes the topology; ``topics`` are its input and output topics by role."""

        def build(jvm: StreamsJvm) -> Any:
            builder = jvm.jvm.org.apache.kafka.streams.StreamsBuilder()
            self.fill(jvm, builder, topics)
            properties = jvm.jvm.java.util.Properties()
            for name, value in self.properties.items():
                properties.put(name, value)
            return builder.build(properties)

        return build

    def fill(self, jvm: StreamsJvm, builder: Any, topics: Mapping[str, str]) -> None:
        """Puts the stores into a topology."""
        sources = Sources(jvm, builder, topics)
        for add in dict.fromkeys(case.add for case in self.cases):
            add(sources)

    def queries(self, base: int, until: int = SPAN) -> dict[str, StoreQuery]:
        """How the stores are asked.

        Args:
            base: time of the first record in ms.
            until: time of the newest record, counted from there: what is within the retention then is asked for.
                Versioned stores are always asked for what still is at the end of ``more``.
        """

        def since(query: StoreQuery) -> int:
            return base + (SPAN + MORE if query.shape == "versioned" else until) - RETENTION + 1

        return {
            case.store: replace(case.query, since=since(case.query)) if case.expires else case.query
            for case in self.cases
            if case.query is not None
        }

    def subtopologies(self, description: str, topics: Mapping[str, str]) -> dict[str, Any]:
        """The spec's ``subtopologies``, from the text of ``Topology.describe()``."""
        declared = {
            case.store: {
                "kind": case.kind,
                **case.declared,
                **({"changelog": topics[case.source]} if case.source else {}),
            }
            for case in self.cases
            if not case.is_global
        }
        found = {
            str(number): {"stores": {store: declared[store] for store in sorted(stores) if store in declared}}
            for number, stores in stores_of(description).items()
        }
        return {number: one for number, one in found.items() if one["stores"]}

    def global_stores(self, topics: Mapping[str, str]) -> dict[str, Any]:
        """The spec's ``global_stores``."""
        return {
            case.store: {"kind": case.kind, "topic": topics[case.source], **case.declared}
            for case in self.cases
            if case.is_global and case.source
        }


def _plain_key_value(at: Sources) -> None:
    at.stream(EVENTS).toTable(at.materialized(at.stores.persistentKeyValueStore("key-value")))


def _versioned(at: Sources) -> None:
    supplier = at.stores.persistentVersionedKeyValueStore("versioned-key-value", at.duration(RETENTION))
    at.stream(EVENTS).toTable(at.materialized(supplier))


def _plain_window(at: Sources) -> None:
    supplier = at.stores.persistentWindowStore("window", at.duration(RETENTION), at.duration(MINUTE), False)
    at.grouped(EVENTS).windowedBy(at.tumbling()).reduce(at.reducer(), at.materialized(supplier))


def _table(name: str) -> Add:
    return lambda at: at.stream(EVENTS).toTable(at.materialized(name)) and None


def _windows(name: str) -> Add:
    def add(at: Sources) -> None:
        at.grouped(EVENTS).windowedBy(at.tumbling()).reduce(at.reducer(), at.materialized(name, retention=True))

    return add


def _sessions(name: str) -> Add:
    def add(at: Sources) -> None:
        at.grouped(EVENTS).windowedBy(at.sessions()).reduce(at.reducer(), at.materialized(name, retention=True))

    return add


def _final(name: str, windows: str) -> Add:
    """An aggregation that emits a window once, when it closes; its store orders rows by time."""

    def add(at: Sources) -> None:
        on_close = at.kstream.EmitStrategy.onWindowClose()
        windowed = at.grouped(EVENTS).windowedBy(getattr(at, windows)())
        windowed.emitStrategy(on_close).reduce(at.reducer(), at.materialized(name, retention=True))

    return add


def _joins(at: Sources) -> None:
    """An inner join, and an outer one with its shared store of records that have found no partner yet."""
    left, right = at.stream(LEFT), at.stream(RIGHT)
    left.join(right, at.joiner(), at.join_windows(), at.joined("inner"))
    left.outerJoin(right, at.joiner(), at.join_windows(), at.joined("outer"))


def _grace(at: Sources) -> None:
    """A stream joined with a versioned table, each record after a grace period in which it lies in a buffer."""
    supplier = at.stores.persistentVersionedKeyValueStore("grace-table", at.duration(RETENTION))
    table = at.stream(TABLE).toTable(at.materialized(supplier))
    at.stream(LEFT).join(table, at.joiner(), at.table_joined("grace").withGracePeriod(at.duration(RETENTION // 2)))
    at.stream(SPARSE).leftJoin(table, at.joiner(), at.table_joined("sparse"))


def _put_key_values(at: Sources) -> None:
    of = at.stores.persistentTimestampedKeyValueStoreWithHeaders("put-key-value")
    put = at.puts.key_value(at.puts.with_time_and_headers())
    at.put_all(PUTS, at.stores.timestampedKeyValueStoreWithHeadersBuilder, of, put)


def _put_windows(at: Sources) -> None:
    times = at.duration(RETENTION), at.duration(MINUTE)
    of = at.stores.persistentTimestampedWindowStoreWithHeaders("put-window", *times, False)
    put = at.puts.window(at.puts.with_time_and_headers())
    at.put_all(PUTS, at.stores.timestampedWindowStoreWithHeadersBuilder, of, put)


def _put_counts(at: Sources) -> None:
    windowed = at.grouped(PUTS).windowedBy(at.tumbling())
    windowed.reduce(at.reducer(), at.materialized("counts", retention=True))


def _put_sessions(at: Sources) -> None:
    of = at.stores.persistentSessionStoreWithHeaders("put-session", at.duration(RETENTION))
    at.put_all(PUTS, at.stores.sessionStoreWithHeadersBuilder, of, at.puts.session(at.puts.with_headers()))


def _memory(at: Sources) -> None:
    at.stream(EVENTS).toTable(at.materialized(at.stores.inMemoryKeyValueStore("in-memory")))


def _source_table(at: Sources) -> None:
    at.builder.table(at.topic(SOURCE), at.consumed(), at.materialized("source-table"))


def _global_table(at: Sources) -> None:
    at.builder.globalTable(at.topic(REFERENCE), at.consumed(), at.materialized("global-table"))


def _plain_global_table(at: Sources) -> None:
    supplier = at.stores.persistentKeyValueStore("global-plain")
    at.builder.globalTable(at.topic(PRICES), at.consumed(), at.materialized(supplier))


def _processed_global_store(at: Sources) -> None:
    """A global store that the application fills by a processor of its own."""
    of = at.stores.persistentTimestampedKeyValueStoreWithHeaders("global-processed")
    put = at.puts.key_value(at.puts.with_time_and_headers())
    made = at.store_builder(at.stores.timestampedKeyValueStoreWithHeadersBuilder, of)
    processors = supplier(at.jvm, "global-processed", put)
    at.builder.addGlobalStore(made, at.topic(PRICES), at.consumed(), processors)


def _reading_table(at: Sources) -> None:
    """A table, in the topology of the global ones: an application without a task never gets to run."""
    at.stream(EVENTS).toTable(at.materialized("timestamped-key-value"))


def _unlogged(at: Sources) -> None:
    """A table and windows of the DSL, and a store of the Processor API, whose logging is disabled."""
    at.stream(EVENTS).toTable(at.materialized("unlogged-table").withLoggingDisabled())
    windows = at.materialized("unlogged-window", retention=True).withLoggingDisabled()
    at.grouped(EVENTS).windowedBy(at.tumbling()).reduce(at.reducer(), windows)
    of = at.stores.persistentTimestampedKeyValueStoreWithHeaders("unlogged-put")
    made = at.store_builder(at.stores.timestampedKeyValueStoreWithHeadersBuilder, of).withLoggingDisabled()
    at.put_into(PUTS, made, of.name(), at.puts.key_value(at.puts.with_time_and_headers()))


def _sparse(at: Sources) -> None:
    """Windows of a topic that has no record in its last partition, in a task whose other stores have some."""
    windowed = at.grouped(SPARSE).windowedBy(at.tumbling())
    windowed.reduce(at.reducer(), at.materialized("sparse-window", retention=True))


_RETAINED = {"retention": "10m"}
_ROWS = StoreQuery(timestamped=True, value="String")
_PLAIN_ROWS = StoreQuery(timestamped=False, value="String")
_WINDOWS = StoreQuery(timestamped=True, value="String", shape="window")
_PLAIN_WINDOWS = StoreQuery(timestamped=False, value="String", shape="window")
_SESSIONS = StoreQuery(timestamped=False, value="String", shape="session")
_VERSIONS = StoreQuery(timestamped=True, value="String", shape="versioned", keys=KEYS)


def _join_cases(window_kind: str) -> tuple[KindCase, ...]:
    windows = (
        "inner-this-join-store",
        "inner-other-join-store",
        "outer-outer-this-join-store",
        "outer-outer-other-join-store",
    )
    return (
        *(KindCase(window_kind, store, _joins, None, _RETAINED) for store in windows),
        KindCase("list", "outer-outer-shared-join-store", _joins),
    )


def _aggregation_cases(prefix: str) -> tuple[KindCase, ...]:
    """Stores of the DSL that come in two formats; the prefix of their kinds is the format's."""
    headers = prefix == "headers-"
    stamped = "headers" if headers else "timestamped"

    def case(kind: str, query: StoreQuery, add: Callable[..., Add], *more: str, retained: bool = True) -> KindCase:
        query = replace(query, headers=headers)
        return KindCase(kind, kind, add(kind, *more), query, _RETAINED if retained else {})

    return (
        case(f"{stamped}-key-value", _ROWS, _table, retained=False),
        case(f"{stamped}-window", _WINDOWS, _windows),
        case(f"{prefix}session", _SESSIONS, _sessions),
        case(f"{prefix}emit-final-window", _WINDOWS, _final, "tumbling"),
        case(f"{prefix}emit-final-sliding-window", _WINDOWS, _final, "sliding"),
        case(f"{prefix}emit-final-session", _SESSIONS, _final, "sessions"),
    )


# The outer join looks for records without a partner at every record, not once a second: runs are then alike.
_EAGER = {"__emit.interval.ms.kstreams.outer.join.spurious.results.fix__": "0"}


PLAIN = KindsApplication(
    "plain",
    (
        KindCase("key-value", "key-value", _plain_key_value, _PLAIN_ROWS),
        KindCase("versioned-key-value", "versioned-key-value", _versioned, _VERSIONS, _RETAINED),
        KindCase("window", "window", _plain_window, _PLAIN_WINDOWS, _RETAINED),
        *_aggregation_cases(""),
        *_join_cases("join-window"),
        KindCase("versioned-key-value", "grace-table", _grace, _VERSIONS, _RETAINED),
        KindCase("grace-buffer", "grace-Buffer", _grace),
        KindCase("timestamped-window", "sparse-window", _sparse, _WINDOWS, _RETAINED),
        KindCase("in-memory", "in-memory", _memory, _ROWS),
    ),
    lambda base, partitions: [one for one in feed(base, partitions) if one[0] != PUTS],
    _EAGER,
)
"""A store of every kind in the default format."""

HEADERS = KindsApplication(
    "headers",
    (
        *_aggregation_cases("headers-"),
        *_join_cases("headers-window"),
        KindCase("headers-key-value", "put-key-value", _put_key_values, replace(_ROWS, headers=True)),
        KindCase("headers-window", "put-window", _put_windows, replace(_WINDOWS, headers=True), _RETAINED),
        KindCase("headers-session", "put-session", _put_sessions, replace(_SESSIONS, headers=True), _RETAINED),
    ),
    lambda base, partitions: [one for one in feed(base, partitions) if one[0] in (EVENTS, PUTS, LEFT, RIGHT)],
    {"dsl.store.format": "HEADERS", **_EAGER},
)
"""A store of every kind that keeps headers."""


def _of_format(name: str, prefix: str, **properties: str) -> KindsApplication:
    headers = bool(prefix)
    stamped = "headers-" if headers else "timestamped-"

    def case(kind: str, store: str, query: StoreQuery, add: Add) -> KindCase:
        retained = {} if query.shape == "key-value" else _RETAINED
        return KindCase(kind, store, add, replace(query, headers=headers), retained)

    return KindsApplication(
        name,
        (
            case(f"{stamped}key-value", "latest", _ROWS, _LATEST),
            case(f"{stamped}window", "hours", _WINDOWS, _HOURS),
            case(f"{prefix}session", "stays", _SESSIONS, _STAYS),
            case(f"{prefix}emit-final-window", "final-hours", _WINDOWS, _FINAL_HOURS),
            case(f"{prefix}emit-final-sliding-window", "final-slides", _WINDOWS, _FINAL_SLIDES),
            case(f"{prefix}emit-final-session", "visits", _SESSIONS, _VISITS),
            *_join_cases("headers-window" if headers else "join-window"),
        ),
        lambda base, partitions: [one for one in feed(base, partitions) if one[0] in (EVENTS, LEFT, RIGHT)],
        properties | _EAGER,
    )


_LATEST, _HOURS, _STAYS = _table("latest"), _windows("hours"), _sessions("stays")
_FINAL_HOURS, _FINAL_SLIDES = _final("final-hours", "tumbling"), _final("final-slides", "sliding")
_VISITS = _final("visits", "sessions")

BEFORE_HEADERS = _of_format("before-headers", "")
"""A table and sessions in the default format."""

SINCE_HEADERS = _of_format("since-headers", "headers-", **{"dsl.store.format": "HEADERS"})
"""The same stores, which keep headers."""

_UNLOGGED = {"changelog": "none"}

UNLOGGED = KindsApplication(
    "unlogged",
    (
        KindCase("timestamped-key-value", "timestamped-key-value", _reading_table, _ROWS),
        KindCase("timestamped-window", "logged-window", _windows("logged-window"), _WINDOWS, _RETAINED),
        KindCase("timestamped-window", "counts", _put_counts, _WINDOWS, _RETAINED),
        KindCase("timestamped-key-value", "unlogged-table", _unlogged, _ROWS, _UNLOGGED),
        KindCase("timestamped-window", "unlogged-window", _unlogged, _WINDOWS, {**_RETAINED, **_UNLOGGED}),
        KindCase("headers-key-value", "unlogged-put", _unlogged, replace(_ROWS, headers=True), _UNLOGGED),
    ),
    lambda base, partitions: [one for one in feed(base, partitions) if one[0] in (EVENTS, PUTS)],
)
"""Stores that are not logged, in tasks with stores that are."""

SOURCES = KindsApplication(
    "sources",
    (KindCase("timestamped-key-value", "source-table", _source_table, _ROWS, source=SOURCE),),
    lambda base, partitions: [(SOURCE, records) for role, records in feed(base, partitions) if role == PUTS],
    {"topology.optimization": "all"},
)
"""A table whose source topic is its changelog."""

_GLOBAL_TABLE = KindCase(
    "timestamped-key-value", "global-table", _global_table, _ROWS, source=REFERENCE, is_global=True
)


def _global_feed(base: int, partitions: int) -> list[Portion]:
    """Events; those of global stores with keys of their own in each partition, whose order is undefined."""

    def apart(one: Record) -> Record:
        return one if one.key is None else replace(one, key=b"%d" % one.partition + one.key)

    return [
        (role, list(map(apart, records)))
        for heading, records in feed(base, partitions)
        if heading == PUTS
        for role in (EVENTS, REFERENCE, PRICES)
    ]


GLOBALS = KindsApplication(
    "globals",
    (
        _GLOBAL_TABLE,
        KindCase("key-value", "global-plain", _plain_global_table, _PLAIN_ROWS, source=PRICES, is_global=True),
        KindCase("timestamped-key-value", "timestamped-key-value", _reading_table, _ROWS),
    ),
    _global_feed,
)
"""Global tables, each filled from all partitions of its topic, beside a table with tasks."""

GLOBAL_HEADERS = KindsApplication(
    "global-headers",
    (
        replace(_GLOBAL_TABLE, kind="headers-key-value", query=replace(_ROWS, headers=True)),
        KindCase("headers-key-value", "timestamped-key-value", _reading_table, replace(_ROWS, headers=True)),
    ),
    lambda base, partitions: [one for one in _global_feed(base, partitions) if one[0] != PRICES],
    {"dsl.store.format": "HEADERS"},
)
"""A global table that keeps headers."""

PROCESSED = KindsApplication(
    "processed",
    (
        _GLOBAL_TABLE,
        KindCase(
            "headers-key-value",
            "global-processed",
            _processed_global_store,
            replace(_ROWS, headers=True),
            {"reprocess": True},
            source=PRICES,
            is_global=True,
        ),
        KindCase("timestamped-key-value", "timestamped-key-value", _reading_table, _ROWS),
    ),
    _global_feed,
)
"""A global table beside a global store that the application fills by a processor."""
