"""A topology while it is made: its input streams, and shorthands for Kafka Streams' DSL over py4j."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tests.harness.feeds import MINUTE
from tests.harness.processors import Puts, supplier
from tests.harness.streams import StreamsJvm

RETENTION = 10 * MINUTE
"""Of every store here that has one; windows and sessions then have segments of 5 minutes."""

_GRACE = 3 * MINUTE


class Sources:
    """A topology while it is made: the streams of its input topics, each made once, and shorthands for the DSL.

    Attributes:
        jvm: where it is made.
        builder: the ``StreamsBuilder``.
    """

    def __init__(self, jvm: StreamsJvm, builder: Any, topics: Mapping[str, str]) -> None:
        self.jvm, self.builder, self._topics = jvm, builder, topics
        self._made: dict[str, Any] = {}
        java = jvm.jvm
        self.streams = java.org.apache.kafka.streams
        self.kstream = java.org.apache.kafka.streams.kstream
        self.stores = java.org.apache.kafka.streams.state.Stores
        self.puts = Puts(jvm)
        self._serdes = java.org.apache.kafka.common.serialization.Serdes

    def topic(self, role: str) -> str:
        return self._topics[role]

    def stream(self, role: str) -> Any:
        """The stream of an input topic, byte arrays to strings."""
        if role not in self._made:
            self._made[role] = self.builder.stream(self.topic(role), self.consumed())
        return self._made[role]

    def replace(self, role: str, stream: Any) -> Any:
        """Has everything that is made from now on read another stream than the topic's; returns it."""
        self._made[role] = stream
        return stream

    def consumed(self) -> Any:
        return getattr(self.kstream.Consumed, "with")(self._serdes.ByteArray(), self._serdes.String())

    def grouped(self, role: str) -> Any:
        serdes = getattr(self.kstream.Grouped, "with")(self._serdes.ByteArray(), self._serdes.String())
        return self.stream(role).groupByKey(serdes)

    def materialized(self, name_or_supplier: Any, *, retention: bool = False) -> Any:
        """A store without a cache, so that every update is in the changelog."""
        made = getattr(self.kstream.Materialized, "as")(name_or_supplier)
        made = made.withKeySerde(self._serdes.ByteArray()).withValueSerde(self._serdes.String()).withCachingDisabled()
        return made.withRetention(self.duration(RETENTION)) if retention else made

    def put_all(self, role: str, builder: Callable[..., Any], of: Any, put: Any) -> None:
        """Every record of a topic goes into a store by a processor of its own, as applications without the DSL do.

        Args:
            role: of the topic.
            builder: the method of ``Stores`` that makes the store's builder.
            of: the store's supplier.
            put: ``(store, record) -> ignored``.
        """
        self.put_into(role, self.store_builder(builder, of), of.name(), put)

    def put_into(self, role: str, made: Any, name: str, put: Any) -> None:
        """The same, of a store's builder and the store's name."""
        self.builder.addStateStore(made)
        names = self.jvm.gateway.new_array(self.jvm.jvm.java.lang.String, 1)
        names[0] = name
        self.stream(role).process(supplier(self.jvm, name, put), names)

    def store_builder(self, builder: Callable[..., Any], of: Any) -> Any:
        """A store's builder, of a method of ``Stores`` and the store's supplier."""
        return builder(of, self._serdes.ByteArray(), self._serdes.String()).withCachingDisabled()

    def duration(self, ms: int) -> Any:
        return self.jvm.jvm.java.time.Duration.ofMillis(ms)

    def reducer(self) -> Any:
        """``(old, new) -> new``, but null, which deletes, where the new value is ``delete``."""
        f = self.jvm.functions
        table = self.jvm.jvm.java.util.HashMap()
        table.put("delete", None)
        look_up = f.method("java.util.Map", "getOrDefault", *["java.lang.Object"] * 3)
        latest = f.ignoring(f.same_argument(f.bind(look_up, 0, table)), 0, "java.lang.Object")
        return f.instance("org.apache.kafka.streams.kstream.Reducer", latest)

    def joiner(self) -> Any:
        """``(left, right) -> left``."""
        f = self.jvm.functions
        first = f.ignoring(f.identity("java.lang.Object"), 1, "java.lang.Object")
        return f.instance("org.apache.kafka.streams.kstream.ValueJoiner", first)

    def both(self) -> Any:
        """``(left, right) -> left+right``, where null is the text ``null``."""
        f = self.jvm.functions
        text = f.static("java.lang.String", "valueOf", "java.lang.String", "java.lang.Object")
        joined = f.on_arguments(f.join("+", 2), 0, text, text)
        joined = f.cast(joined, *["java.lang.Object"] * 3)
        return f.instance("org.apache.kafka.streams.kstream.ValueJoiner", joined)

    def send(self, stream: Any, role: str, windows: str = "") -> None:
        """Writes a stream into an output topic; ``windows`` says of which kind its keys' are: time or session."""
        key = self._serdes.ByteArray()
        if windows == "time":
            key = self.kstream.WindowedSerdes.TimeWindowedSerde(key, MINUTE)
        elif windows == "session":
            key = self.kstream.WindowedSerdes.SessionWindowedSerde(key)
        stream.to(self.topic(role), getattr(self.kstream.Produced, "with")(key, self._serdes.String()))

    def tumbling(self) -> Any:
        windows = self.kstream.TimeWindows
        return windows.ofSizeAndGrace(self.duration(MINUTE), self.duration(_GRACE))

    def sliding(self) -> Any:
        windows = self.kstream.SlidingWindows
        return windows.ofTimeDifferenceAndGrace(self.duration(MINUTE), self.duration(_GRACE))

    def sessions(self) -> Any:
        windows = self.kstream.SessionWindows
        return windows.ofInactivityGapAndGrace(self.duration(MINUTE), self.duration(_GRACE))

    def join_windows(self) -> Any:
        """Windows whose stores are kept for the retention: before + after + grace."""
        windows = self.kstream.JoinWindows
        return windows.ofTimeDifferenceAndGrace(self.duration(2 * MINUTE), self.duration(RETENTION - 4 * MINUTE))

    def joined(self, name: str) -> Any:
        serdes = self._serdes
        made = getattr(self.kstream.StreamJoined, "with")(serdes.ByteArray(), serdes.String(), serdes.String())
        return made.withName(name).withStoreName(name)

    def table_joined(self, name: str) -> Any:
        serdes = self._serdes
        made = getattr(self.kstream.Joined, "with")(serdes.ByteArray(), serdes.String(), serdes.String())
        return made.withName(name)
