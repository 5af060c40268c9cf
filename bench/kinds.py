"""The kinds of store that are measured: what their changelogs look like, and which topology has such a store.

Keys are 16 bytes, as for the key-value store, with the times behind them that the kind has; all rows lie in segments
that are live, so that none is dropped and every contender does all the work.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.harness.streams import StreamsJvm

RETENTION_MS = 4 * 3_600_000
"""Retention of the measured windows, sessions and histories."""

SPAN_MS = 3 * 3_600_000
"""The times of rows are spread over this span: two segments of a windowed store."""


@dataclass(frozen=True)
class BenchKind:
    """One kind.

    Attributes:
        kind: its name in the spec.
        times: int64 times behind each key: none, the start of a window, or end and start of a session.
        sequence: whether a sequence number of four bytes ends the key.
    """

    kind: str
    times: int = 0
    sequence: bool = False

    @property
    def spec(self) -> dict[str, Any]:
        """What the spec says of the store."""
        return {"kind": self.kind, **({} if "key-value" in self.kind and not self.versioned else {"retention": "4h"})}

    @property
    def versioned(self) -> bool:
        """Whether it is a versioned store."""
        return self.kind == "versioned-key-value"

    def topology(self, jvm: StreamsJvm, topic: str, store: str) -> Any:
        """A topology over ``topic`` with a store of this kind and nothing else."""
        streams, java = jvm.jvm.org.apache.kafka.streams, jvm.jvm.java
        serdes = jvm.jvm.org.apache.kafka.common.serialization.Serdes
        consumed = getattr(streams.kstream.Consumed, "with")(serdes.ByteArray(), serdes.ByteArray())
        materialized = getattr(streams.kstream.Materialized, "as")
        retention = java.time.Duration.ofMillis(RETENTION_MS)
        builder = streams.StreamsBuilder()
        if self.versioned:
            supplier = streams.state.Stores.persistentVersionedKeyValueStore(store, retention)
            builder.table(topic, consumed, materialized(supplier))
        elif not self.times:
            builder.table(topic, consumed, materialized(store))
        else:
            minutes, none = java.time.Duration.ofMinutes(5), java.time.Duration.ZERO
            windows = (
                streams.kstream.SessionWindows.ofInactivityGapAndGrace(minutes, none)
                if self.times == 2
                else streams.kstream.TimeWindows.ofSizeAndGrace(minutes, none)
            )
            grouped = builder.stream(topic, consumed).groupByKey()
            grouped.windowedBy(windows).count(materialized(store).withRetention(retention))
        return builder.build()


KINDS = {
    one.kind: one
    for one in (
        BenchKind("timestamped-key-value"),
        BenchKind("timestamped-window", times=1, sequence=True),
        BenchKind("session", times=2),
        BenchKind("versioned-key-value"),
    )
}
"""By the spec's name; the first is what the others are compared with."""
