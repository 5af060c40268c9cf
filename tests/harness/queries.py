"""All answers of a Kafka Streams store, in bytes, in a handful of py4j calls however many rows there are.

The JVM writes ``hex(key) hex(value) [timestamp]`` of every row that the store returns to a file, by a stream of
functions put together in ``tests.harness.functions``; Python reads the file. Keys and values pass through the
serializers of the store's serdes, so that what is compared is bytes, whatever the types are.

A window or session is part of its row's key: its start and end follow the key as two int64. Headers follow the value,
as the text Java gives them. Versioned stores have no ``all()``: they are asked for each of the given keys, for the
latest version and for every version since a time.
"""

from __future__ import annotations

import hashlib
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from py4j.protocol import Py4JJavaError

if TYPE_CHECKING:
    from tests.harness.streams import StreamsJvm

Row = tuple[bytes, bytes, int | None]
"""Key, value, and the timestamp in milliseconds (None: the store keeps none)."""

Shape = Literal["key-value", "window", "session", "versioned"]

_OBJECT = "java.lang.Object"
_STRING = "java.lang.String"
_KEY_VALUE = "org.apache.kafka.streams.KeyValue"
_WINDOWED = "org.apache.kafka.streams.kstream.Windowed"
_WINDOW = "org.apache.kafka.streams.kstream.Window"
_HEADERS = "org.apache.kafka.common.header.Headers"
_STATE = "org.apache.kafka.streams.state"
_HEX = "java.util.HexFormat"
_FOR_EVER = (1 << 63) - 1
_REBALANCE_SECONDS = 600.0

T = TypeVar("T")


@dataclass(frozen=True)
class StoreQuery:
    """How a store is asked.

    Attributes:
        timestamped: whether its values carry a timestamp (the DSL's stores do).
        key: serde of the keys, a method of ``Serdes``: ``String``, ``Long``, ``ByteArray``…
        value: serde of the values.
        shape: what it answers by: rows of keys, windows, sessions, or versions.
        headers: whether its values carry headers (``dsl.store.format=HEADERS``).
        since: windows that start, sessions that end and versions that are valid at this time (ms) or later. What is
            older than the retention is still answered or not, by what the running application has seen.
        keys: the keys that a versioned store is asked for.
        moments: times (ms) as of which a versioned store is asked for each key, besides.
    """

    timestamped: bool
    key: str = "ByteArray"
    value: str = "ByteArray"
    shape: Shape = "key-value"
    headers: bool = False
    since: int = 0
    keys: tuple[bytes, ...] = ()
    moments: tuple[int, ...] = ()


def rows(jvm: StreamsJvm, streams: Any, store: str, partition: int | None, query: StoreQuery) -> list[Row]:
    """Every row of one partition of a store (``None``: a global store's), sorted by key bytes.

    A rebalance is waited for: a group may meet once more after every instance has been RUNNING.

    Raises:
        py4j.protocol.Py4JJavaError: the store or partition is not there, or the application is not running.
    """
    return _after_rebalance(lambda: _rows(jvm, streams, store, partition, query))


def _after_rebalance(ask: Callable[[], T]) -> T:
    deadline = time.monotonic() + _REBALANCE_SECONDS
    while True:
        try:
            return ask()
        except Py4JJavaError as error:
            told = str(error.java_exception.getMessage())
            if "stream thread is PARTITIONS_" not in told or time.monotonic() > deadline:
                raise
        time.sleep(0.05)


def _rows(jvm: StreamsJvm, streams: Any, store: str, partition: int | None, query: StoreQuery) -> list[Row]:
    if query.shape == "versioned":
        return sorted(_versions(jvm, streams, store, partition, query))
    opened = _opened(jvm, streams, store, partition, query)
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o777)  # the JVM may run as another user
        target = Path(directory) / "rows"
        iterator = _iterator(jvm, opened, query)
        try:
            format_of_rows = (query.shape, query.key, query.value, query.headers, query.timestamped)
            text = jvm.functions.kept(format_of_rows, lambda: _row_text(jvm, query))
            _write(jvm, iterator, text, target)
        finally:
            iterator.close()
        return sorted(_parse(target.read_bytes().splitlines()))


def values_of(
    jvm: StreamsJvm, streams: Any, store: str, partition: int, keys: Iterable[bytes], query: StoreQuery
) -> list[bytes | None]:
    """The value of each key of a key-value store with ``ByteArray`` serdes, without its timestamp."""

    wanted = list(keys)

    def ask() -> list[bytes | None]:
        opened = _opened(jvm, streams, store, partition, query)
        found = (opened.get(key) for key in wanted)
        return [None if one is None else bytes(one.value() if query.timestamped else one) for one in found]

    return _after_rebalance(ask)


def _opened(jvm: StreamsJvm, streams: Any, store: str, partition: int | None, query: StoreQuery) -> Any:
    kafka_streams = jvm.jvm.org.apache.kafka.streams
    parameters = kafka_streams.StoreQueryParameters.fromNameAndType(store, _type(jvm, query))
    return streams.store(parameters if partition is None else parameters.withPartition(partition))


def digest(found: Iterable[Row]) -> str:
    """SHA-256 over rows, each as ``hex(key) hex(value) timestamp`` on a line, in the order given."""
    sha = hashlib.sha256()
    for key, value, timestamp in found:
        sha.update(f"{key.hex()} {value.hex()} {'' if timestamp is None else timestamp}\n".encode())
    return sha.hexdigest()


def _type(jvm: StreamsJvm, query: StoreQuery) -> Any:
    names = {
        "key-value": ("keyValueStore", "timestampedKeyValueStore", "timestampedKeyValueStoreWithHeaders"),
        "window": ("windowStore", "timestampedWindowStore", "timestampedWindowStoreWithHeaders"),
        "session": ("sessionStore", "sessionStore", "sessionStoreWithHeaders"),
    }[query.shape]
    name = names[2 if query.headers else int(query.timestamped)]
    return getattr(jvm.jvm.org.apache.kafka.streams.state.QueryableStoreTypes, name)()


def _iterator(jvm: StreamsJvm, store: Any, query: StoreQuery) -> Any:
    if query.shape == "window":
        instant = jvm.jvm.java.time.Instant.ofEpochMilli
        return store.fetchAll(instant(query.since), instant(1 << 52))
    if query.shape == "session":
        signature = (
            f"{_STATE}.ReadOnlySessionStore",
            "findSessions",
            "org.apache.kafka.streams.state.KeyValueIterator",
        )
        find = jvm.functions.method(*signature, _OBJECT, _OBJECT, "long", "long")
        return jvm.functions.call(find, store, None, None, query.since, _FOR_EVER)
    return store.all()


def _parse(lines: Iterable[bytes]) -> Iterable[Row]:
    for line in lines:
        key, value, timestamp = line.decode().split(" ")
        yield bytes.fromhex(key), bytes.fromhex(value), int(timestamp) if timestamp else None


def _row_text(jvm: StreamsJvm, query: StoreQuery) -> Any:
    """A handle ``KeyValue -> "hex(key) hex(value) timestamp"``."""
    f = jvm.functions
    line = f.on_arguments(f.join(" ", 3), 0, _key_text(jvm, query), *_value_texts(jvm, query))
    return f.same_argument(line)


def _key_text(jvm: StreamsJvm, query: StoreQuery) -> Any:
    """A handle ``KeyValue -> hex(key)``, with start and end of a window or session behind it."""
    f = jvm.functions
    key = f.field(_KEY_VALUE, "key", _OBJECT)
    if query.shape == "key-value":
        return f.then(key, _hex(jvm, query.key))
    windowed = f.cast(key, _WINDOWED, _KEY_VALUE)
    window = f.then(windowed, f.method(_WINDOWED, "window", _WINDOW))
    digits = f.bind(f.method(_HEX, "toHexDigits", _STRING, "long"), 0, jvm.jvm.java.util.HexFormat.of())
    times = [f.then(f.then(window, f.method(_WINDOW, name, "long")), digits) for name in ("start", "end")]
    plain = f.then(f.then(windowed, f.method(_WINDOWED, "key", _OBJECT)), _hex(jvm, query.key))
    return f.same_argument(f.on_arguments(f.join("", 3), 0, plain, *times))


def _value_texts(jvm: StreamsJvm, query: StoreQuery) -> tuple[Any, Any]:
    """Handles ``KeyValue -> hex(value)``, with the headers behind it, and ``KeyValue -> timestamp``."""
    f = jvm.functions
    value = f.field(_KEY_VALUE, "value", _OBJECT)
    timestamp = f.ignoring(f.constant(_STRING, ""), 0, _KEY_VALUE)
    if query.shape == "session" and query.headers:
        owner, name = f"{_STATE}.AggregationWithHeaders", "aggregation"
    elif query.headers:
        owner, name = f"{_STATE}.ValueTimestampHeaders", "value"
    elif query.timestamped and query.shape != "session":
        owner, name = f"{_STATE}.ValueAndTimestamp", "value"
    else:
        return f.then(value, _hex(jvm, query.value)), timestamp
    plain = f.then(f.then(value, f.method(owner, name, _OBJECT)), _hex(jvm, query.value))
    if query.headers:
        found = f.then(f.then(value, f.method(owner, "headers", _HEADERS)), _headers_hex(jvm))
        plain = f.same_argument(f.on_arguments(f.join("", 2), 0, plain, found))
    if query.shape != "session":
        millis = f.then(value, f.method(owner, "timestamp", "long"))
        timestamp = f.then(millis, f.static(_STRING, "valueOf", _STRING, "long"))
    return plain, timestamp


def _headers_hex(jvm: StreamsJvm) -> Any:
    """A handle ``Headers -> hex of "[RecordHeader(key = …, value = [1, 2]), …]"``."""
    f = jvm.functions
    array = f.method(_HEADERS, "toArray", "org.apache.kafka.common.header.Header[]")
    text = f.then(array, f.static("java.util.Arrays", "toString", _STRING, f"{_OBJECT}[]"))
    return f.then(f.then(text, f.method(_STRING, "getBytes", "byte[]")), _to_hex(jvm))


def _to_hex(jvm: StreamsJvm) -> Any:
    f = jvm.functions
    return f.bind(f.method(_HEX, "formatHex", _STRING, "byte[]"), 0, jvm.jvm.java.util.HexFormat.of())


def _hex(jvm: StreamsJvm, serde: str) -> Any:
    """A handle ``Object -> hex of its serialized bytes``."""
    f = jvm.functions
    serializer = getattr(jvm.jvm.org.apache.kafka.common.serialization.Serdes, serde)().serializer()
    serialize = f.method("org.apache.kafka.common.serialization.Serializer", "serialize", "byte[]", _STRING, _OBJECT)
    return f.then(f.bind(serialize, 0, serializer, ""), _to_hex(jvm))


def _versions(jvm: StreamsJvm, streams: Any, store: str, partition: int | None, query: StoreQuery) -> Iterator[Row]:
    """``key ? value`` of the latest version, ``key o valid from o valid to ? value`` of every version asked for.

    ``key o moment ? value`` of what was valid at each moment asked for.
    """
    queries = jvm.jvm.org.apache.kafka.streams.query
    serdes = jvm.jvm.org.apache.kafka.common.serialization.Serdes
    from_bytes, to_bytes = getattr(serdes, query.key)().deserializer(), getattr(serdes, query.value)().serializer()
    # Each name on the way to a class is a question to the JVM.
    by_key, of_versions = queries.VersionedKeyQuery, queries.MultiVersionedKeyQuery
    of_store = queries.StateQueryRequest.inStore(store)
    partitions, instant_of = jvm.jvm.java.util.Set.of(partition), jvm.jvm.java.time.Instant

    def asked(one: Any) -> Any:
        request = of_store.withQuery(one).withPartitions(partitions)
        answer = streams.query(request).getPartitionResults().get(partition)
        if answer.isFailure():
            raise RuntimeError(f"{store}-{partition}: {answer.getFailureReason()} {answer.getFailureMessage()}")
        return answer.getResult()

    for key in query.keys:
        wanted = from_bytes.deserialize("", key)
        latest = asked(by_key.withKey(wanted))
        if latest is not None:
            yield key, bytes(to_bytes.serialize("", latest.value())), int(latest.timestamp())
        for moment in query.moments:
            then = asked(by_key.withKey(wanted).asOf(instant_of.ofEpochMilli(moment)))
            if then is not None:
                yield (
                    key + b"?" + moment.to_bytes(8, "big"),
                    bytes(to_bytes.serialize("", then.value())),
                    int(then.timestamp()),
                )
        if query.since < 0:
            continue
        since = instant_of.ofEpochMilli(query.since)
        found = asked(of_versions.withKey(wanted).fromTime(since).withAscendingTimestamps())
        try:
            while found.hasNext():
                version = found.next()
                start, end = int(version.timestamp()), version.validTo().orElse(None)
                times = start.to_bytes(8, "big") + (b"" if end is None else int(end).to_bytes(8, "big"))
                yield key + b"@" + times, bytes(to_bytes.serialize("", version.value())), start
        finally:
            found.close()


def _write(jvm: StreamsJvm, iterator: Any, text: Any, target: Path) -> None:
    """Writes ``text(element)`` of all elements to a file, a line each."""
    f, java = jvm.functions, jvm.jvm.java
    stream = java.util.stream.StreamSupport.stream(java.util.Spliterators.spliteratorUnknownSize(iterator, 0), False)
    lines = stream.map(f.instance("java.util.function.Function", text))
    once = f.bind(f.method("java.util.stream.BaseStream", "iterator", "java.util.Iterator"), 0, lines)
    options = jvm.gateway.new_array(java.nio.file.OpenOption, 0)
    java.nio.file.Files.write(
        java.nio.file.Path.of(str(target), jvm.gateway.new_array(java.lang.String, 0)),
        f.instance("java.lang.Iterable", once),
        options,
    )
