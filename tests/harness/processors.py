"""Processors without compiled Java: each puts every record into one store, by method handles alone.

The DSL of Kafka Streams 4.3.1 never writes record headers into its stores (it puts ``new RecordHeaders()``); a
processor does. A ``Processor`` is a proxy whose ``init`` keeps the store it finds in the context, and whose ``process``
hands the store and the record to a handle.
"""

from __future__ import annotations

from typing import Any

from tests.harness.streams import StreamsJvm

_OBJECT = "java.lang.Object"
_METHOD = "java.lang.reflect.Method"
_API = "org.apache.kafka.streams.processor.api"
_STATE = "org.apache.kafka.streams.state"
_RECORD = f"{_API}.Record"
_REFERENCE = "java.util.concurrent.atomic.AtomicReference"
_HEADERS = "org.apache.kafka.common.header.Headers"
_WINDOWED = "org.apache.kafka.streams.kstream.Windowed"
_SESSION = "org.apache.kafka.streams.kstream.internals.SessionWindow"

_INSTANCES = 64
"""Kafka Streams asks for one processor a task and a few more to see that they differ."""


class Puts:
    """Handles ``(store, record) -> ignored`` that put a record into a store."""

    def __init__(self, jvm: StreamsJvm) -> None:
        self._f = jvm.functions

    def key_value(self, value: Any) -> Any:
        """Puts ``value(record)`` under the record's key."""
        put = self._f.method(f"{_STATE}.KeyValueStore", "put", "void", _OBJECT, _OBJECT)
        return self._of_record(put, self._get("key"), value)

    def window(self, value: Any) -> Any:
        """Puts ``value(record)`` under the record's key, in the window that starts at its timestamp."""
        put = self._f.method(f"{_STATE}.WindowStore", "put", "void", _OBJECT, _OBJECT, "long")
        return self._of_record(put, self._get("key"), value, self._get("timestamp", "long"))

    def session(self, value: Any) -> Any:
        """Puts ``value(record)`` under the record's key, as a session that starts and ends at its timestamp."""
        f = self._f
        put = f.method(f"{_STATE}.SessionStore", "put", "void", _WINDOWED, _OBJECT)
        time = self._get("timestamp", "long")
        session = f.same_argument(f.on_arguments(f.constructor(_SESSION, "long", "long"), 0, time, time))
        window = "org.apache.kafka.streams.kstream.Window"
        windowed = f.on_arguments(f.constructor(_WINDOWED, _OBJECT, window), 0, self._get("key"), session)
        return self._of_record(put, f.same_argument(windowed), value)

    def versioned(self, value: Any) -> Any:
        """Puts ``value(record)`` under the record's key, valid from its timestamp; null deletes."""
        put = self._f.method(f"{_STATE}.VersionedKeyValueStore", "put", "long", _OBJECT, _OBJECT, "long")
        return self._of_record(put, self._get("key"), value, self._get("timestamp", "long"))

    def plain(self) -> Any:
        """``record -> record.value()``."""
        return self._get("value")

    def with_time_and_headers(self) -> Any:
        """``record -> ValueTimestampHeaders``, null where the value is."""
        owner = f"{_STATE}.ValueTimestampHeaders"
        make = self._f.static(owner, "make", owner, _OBJECT, "long", _HEADERS)
        parts = (self._get("value"), self._get("timestamp", "long"), self._get("headers", _HEADERS))
        return self._f.same_argument(self._f.on_arguments(make, 0, *parts))

    def with_headers(self) -> Any:
        """``record -> AggregationWithHeaders``, null where the value is."""
        owner = f"{_STATE}.AggregationWithHeaders"
        make = self._f.static(owner, "make", owner, _OBJECT, _HEADERS)
        parts = (self._get("value"), self._get("headers", _HEADERS))
        return self._f.same_argument(self._f.on_arguments(make, 0, *parts))

    def _get(self, name: str, of: str = _OBJECT) -> Any:
        return self._f.method(_RECORD, name, of)

    def _of_record(self, put: Any, *parts: Any) -> Any:
        """``(store, record) -> put(store, part(record), …)``."""
        return self._f.repeated(self._f.on_arguments(put, 1, *parts), 1)


def supplier(jvm: StreamsJvm, store: str, put: Any) -> Any:
    """A ``ProcessorSupplier`` whose processors give every record with a key to ``put``, with their task's store."""
    f, java = jvm.functions, jvm.jvm.java
    # (reference, arguments) of both methods; what they are cast to is what Kafka Streams gives.
    argument = f.element(_OBJECT, 0)
    get_store = f.method(
        f"{_API}.ProcessorContext", "getStateStore", "org.apache.kafka.streams.processor.StateStore", "java.lang.String"
    )
    find = f.then(argument, f.bind(get_store, 1, store))
    keep = f.on_arguments(f.method(_REFERENCE, "set", "void", _OBJECT), 1, find)
    kept = f.method(_REFERENCE, "get", _OBJECT)
    process = f.on_arguments(put, 0, kept, argument)
    signature = (_OBJECT, _REFERENCE, f"{_OBJECT}[]")
    nothing = f.ignoring(f.constant(_OBJECT, None), 0, *signature[1:])
    named = f.method(_METHOD, "getName", "java.lang.String")
    equals = f.method("java.lang.String", "equals", "boolean", _OBJECT)

    def is_called(name: str) -> Any:
        test = f.then(named, f.bind(equals, 1, name))
        return f.ignoring(f.ignoring(test, 0, _REFERENCE, _OBJECT), 3, f"{_OBJECT}[]")

    def handling(one: Any) -> Any:
        return f.ignoring(f.cast(one, *signature), 1, _OBJECT, _METHOD)

    other = f.ignoring(nothing, 1, _OBJECT, _METHOD)
    handle = f.either(is_called("process"), handling(process), f.either(is_called("init"), handling(keep), other))
    queue = java.util.concurrent.ConcurrentLinkedQueue()
    for _ in range(_INSTANCES):
        reference = java.util.concurrent.atomic.AtomicReference()
        queue.add(f.proxy(f"{_API}.Processor", f.bind(handle, 0, reference)))
    poll = f.bind(f.method("java.util.Queue", "poll", _OBJECT), 0, queue)
    return f.instance(f"{_API}.ProcessorSupplier", poll)
