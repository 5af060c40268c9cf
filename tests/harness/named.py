"""Applications of named topologies: several topologies in one application, each with its own directory and tasks.

``KafkaStreamsNamedTopologyWrapper`` is internal to Kafka Streams and deprecated; applications that use it keep their
tasks in ``__<topology>__/<task>``, and their changelogs are called ``<application>-<topology>-<store>-changelog``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.harness.streams import StreamsApplication, StreamsJvm

Fill = Callable[[StreamsJvm, Any], None]
"""Puts a topology into a ``StreamsBuilder``."""


class NamedTopologies(StreamsApplication):
    """One application with topologies by name; ``settings`` are those of ``StreamsApplication``."""

    def __init__(
        self,
        jvm: StreamsJvm,
        application_id: str,
        bootstrap_servers: str,
        state_dir: Path,
        topologies: Mapping[str, Fill],
        **settings: Any,
    ) -> None:
        self._fills = dict(topologies)
        self.topologies: dict[str, Any] = {}
        super().__init__(jvm, application_id, bootstrap_servers, state_dir, lambda _: None, **settings)

    def describe_topology(self, name: str) -> str:
        """The text of ``Topology.describe()`` of one topology."""
        return str(self.topologies[name].describe().toString())

    def _client(self, topology: Any, properties: Any) -> Any:
        internals = self.jvm.jvm.org.apache.kafka.streams.processor.internals
        client = internals.namedtopology.KafkaStreamsNamedTopologyWrapper(properties)
        for name, fill in self._fills.items():
            builder = client.newNamedTopologyBuilder(name)
            fill(self.jvm, builder)
            self.topologies[name] = builder.build()
        return client

    def _start(self) -> None:
        every = self.jvm.jvm.java.util.ArrayList()
        for one in self.topologies.values():
            every.add(one)
        self._streams.start(every)
