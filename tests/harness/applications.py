"""Topologies that several tests run: each a function for ``StreamsApplication``, with how its stores are asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.harness.queries import StoreQuery
from tests.harness.streams import StreamsJvm

PLAIN_AND_STAMPED = {"plain": StoreQuery(timestamped=False), "stamped": StoreQuery(timestamped=True)}
"""The stores of ``two_stores``."""


def two_stores(topic: str) -> Callable[[StreamsJvm], Any]:
    """The input as a plain and as a timestamped table, in one subtopology, with every update logged."""

    def build(jvm: StreamsJvm) -> Any:
        streams = jvm.jvm.org.apache.kafka.streams
        serdes = jvm.jvm.org.apache.kafka.common.serialization.Serdes
        materialized = getattr(streams.kstream.Materialized, "as")
        builder = streams.StreamsBuilder()
        consumed = getattr(streams.kstream.Consumed, "with")(serdes.ByteArray(), serdes.ByteArray())
        stream = builder.stream(topic, consumed)
        plain = materialized(streams.state.Stores.persistentKeyValueStore("plain"))
        for one in (plain, materialized("stamped")):
            with_serdes = one.withKeySerde(serdes.ByteArray()).withValueSerde(serdes.ByteArray())
            stream.toTable(with_serdes.withCachingDisabled())
        return builder.build()

    return build
