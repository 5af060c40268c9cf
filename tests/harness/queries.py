"""All answers of a Kafka Streams store, in bytes, in a handful of py4j calls however many rows there are.

The JVM writes ``hex(key) hex(value) [timestamp]`` of every row that the store's ``all()`` returns to a file, by a
stream of functions put together in ``tests.harness.functions``; Python reads the file. Keys and values pass through
the serializers of the store's serdes, so that what is compared is bytes, whatever the types are.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.harness.streams import StreamsJvm

Row = tuple[bytes, bytes, int | None]
"""Key, value, and the timestamp in milliseconds (None: the store keeps none)."""

_OBJECT = "java.lang.Object"
_STRING = "java.lang.String"
_KEY_VALUE = "org.apache.kafka.streams.KeyValue"
_WITH_TIMESTAMP = "org.apache.kafka.streams.state.ValueAndTimestamp"


@dataclass(frozen=True)
class StoreQuery:
    """How a key-value store is asked.

    Attributes:
        timestamped: whether its values carry a timestamp (the DSL's stores do).
        key: serde of the keys, a method of ``Serdes``: ``String``, ``Long``, ``ByteArray``…
        value: serde of the values.
    """

    timestamped: bool
    key: str = "ByteArray"
    value: str = "ByteArray"


def rows(jvm: StreamsJvm, streams: Any, store: str, partition: int, query: StoreQuery) -> list[Row]:
    """Every row of one partition of a key-value store, sorted by key bytes.

    Raises:
        py4j.protocol.Py4JJavaError: the store or partition is not there, or the application is not running.
    """
    types = jvm.jvm.org.apache.kafka.streams.state.QueryableStoreTypes
    store_type = types.timestampedKeyValueStore() if query.timestamped else types.keyValueStore()
    parameters = jvm.jvm.org.apache.kafka.streams.StoreQueryParameters.fromNameAndType(store, store_type)
    opened = streams.store(parameters.withPartition(partition))
    with tempfile.TemporaryDirectory() as directory:
        target = Path(directory) / "rows"
        iterator = opened.all()
        try:
            _write(jvm, iterator, _row_text(jvm, query), target)
        finally:
            iterator.close()
        return sorted(_parse(target.read_bytes().splitlines()))


def digest(found: Iterable[Row]) -> str:
    """SHA-256 over rows, each as ``hex(key) hex(value) timestamp`` on a line, in the order given."""
    sha = hashlib.sha256()
    for key, value, timestamp in found:
        sha.update(f"{key.hex()} {value.hex()} {'' if timestamp is None else timestamp}\n".encode())
    return sha.hexdigest()


def _parse(lines: Iterable[bytes]) -> Iterable[Row]:
    for line in lines:
        key, value, timestamp = line.decode().split(" ")
        yield bytes.fromhex(key), bytes.fromhex(value), int(timestamp) if timestamp else None


def _row_text(jvm: StreamsJvm, query: StoreQuery) -> Any:
    """A handle ``KeyValue -> "hex(key) hex(value) timestamp"``."""
    f = jvm.functions
    key = f.then(f.field(_KEY_VALUE, "key", _OBJECT), _hex(jvm, query.key))
    value = f.field(_KEY_VALUE, "value", _OBJECT)
    if query.timestamped:
        plain = f.then(value, f.method(_WITH_TIMESTAMP, "value", _OBJECT))
        millis = f.then(value, f.method(_WITH_TIMESTAMP, "timestamp", "long"))
        timestamp = f.then(millis, f.static(_STRING, "valueOf", _STRING, "long"))
    else:
        plain = value
        timestamp = f.ignoring(f.constant(_STRING, ""), 0, _KEY_VALUE)
    line = f.on_arguments(f.join(" ", 3), 0, key, f.then(plain, _hex(jvm, query.value)), timestamp)
    return f.same_argument(line)


def _hex(jvm: StreamsJvm, serde: str) -> Any:
    """A handle ``Object -> hex of its serialized bytes``."""
    f = jvm.functions
    serializer = getattr(jvm.jvm.org.apache.kafka.common.serialization.Serdes, serde)().serializer()
    serialize = f.method("org.apache.kafka.common.serialization.Serializer", "serialize", "byte[]", _STRING, _OBJECT)
    to_hex = f.method("java.util.HexFormat", "formatHex", _STRING, "byte[]")
    return f.then(f.bind(serialize, 0, serializer, ""), f.bind(to_hex, 0, jvm.jvm.java.util.HexFormat.of()))


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
