"""Subtopologies, from the text of ``Topology.describe()`` or from the brokers of a streams group.

::

    Topologies:
       Sub-topology: 0
        Source: KSTREAM-SOURCE-0000000000 (topics: [flights])
          --> KSTREAM-AGGREGATE-0000000002
        Processor: KSTREAM-AGGREGATE-0000000002 (stores: [latest, counts])
          --> none
          <-- KSTREAM-SOURCE-0000000000

       Sub-topology: 1 for global store (will not generate tasks)
        Source: KSTREAM-SOURCE-0000000003 (topics: [products])
          --> KTABLE-SOURCE-0000000004
        Processor: KTABLE-SOURCE-0000000004 (stores: [products-store])
          --> none
          <-- KSTREAM-SOURCE-0000000003

``kafka-streams-groups.sh --describe --topology`` prints nodes sorted by name, full names of repartition topics, and
its own numbers for global stores. The other numbers are those in task ids. The text has neither kinds nor changelogs,
but the names that Kafka Streams generates (``KStreamImpl``, ``KTableImpl``, ``OuterStreamJoinStoreFactory``) show some
of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from statecore.changelog.streams_groups import ConfiguredSubtopology, Node, NodeType, StreamsGroup, TopologyDescription
from statecore.errors import Invalid, NotFound

_SUBTOPOLOGY = re.compile(r"\s*Sub-topology: (\d+)( for global store)?")
_SOURCE = re.compile(r"\s*Source:\s+(\S+) \(topics: \[?(.*?)\]?\)\s*$")
_PROCESSOR = re.compile(r"\s*Processor:\s+(\S+) \(stores: \[(.*)\]\)\s*$")
_SINK = re.compile(r"\s*Sink:\s")
_TABLE_SOURCE = re.compile(r"KTABLE-SOURCE-[0-9]{10}")
_OF_THE_DSL = re.compile(r"(?:KSTREAM|KTABLE|COGROUPKSTREAM)-[A-Z-]+-[0-9]{10}")
_UPSTREAM = re.compile(r"\s*<-- (.*)$")


@dataclass(frozen=True)
class Subtopology:
    """One subtopology.

    Attributes:
        number: as in its task ids; -1 for a global store without a number.
        is_global: whether it only fills a global store.
        store_inputs: store → each processor that uses it → topics of the sources directly above that.
    """

    number: int
    is_global: bool
    store_inputs: dict[str, dict[str, set[str]]] = field(default_factory=dict)
    sources: set[str] = field(default_factory=set)

    @property
    def stores(self) -> dict[str, set[str]]:
        """Store → topics of the sources directly above its processors."""
        return {store: set().union(*by_processor.values()) for store, by_processor in self.store_inputs.items()}

    @property
    def processors(self) -> dict[str, set[str]]:
        """Store → names of the processors that use it."""
        return {store: set(by_processor) for store, by_processor in self.store_inputs.items()}

    def tables_of(self, store: str) -> set[str]:
        """The topics whose table the store is, by ``StreamsBuilder.table`` and its name for the processor."""
        fed = self.store_inputs.get(store, {})
        return set().union(*(topics for name, topics in fed.items() if _TABLE_SOURCE.fullmatch(name)))

    def possible_store_inputs(self, store: str) -> set[str]:
        """Topics directly above processors whose names the DSL did not generate."""
        fed = self.store_inputs.get(store, {})
        return set().union(*(topics for name, topics in fed.items() if not _OF_THE_DSL.fullmatch(name)))

    def may_be_global_table(self, store: str) -> bool:
        """Whether ``globalTable`` could have created this: ``StreamsBuilder`` names source and processor this way."""
        return all(
            _TABLE_SOURCE.fullmatch(processor) or f"{processor}-source" in self.sources
            for processor in self.processors.get(store, ())
        )


def parse_topology(text: str, source: str = "The topology") -> list[Subtopology]:
    """Parse the subtopologies of a description. Raises ``Invalid`` if the text has none."""
    found: list[Subtopology] = []
    topics: dict[str, set[str]] = {}
    fed: list[set[str]] = []
    above: list[tuple[list[set[str]], dict[str, set[str]], set[str]]] = []
    for line in text.splitlines():
        if match := _SUBTOPOLOGY.match(line):
            found.append(Subtopology(int(match[1]), match[2] is not None))
            topics, fed = {}, []
        elif not found:
            continue
        elif match := _SOURCE.match(line):
            topics[match[1]] = _names(match[2])
            found[-1].sources.add(match[1])
            fed = []
        elif match := _PROCESSOR.match(line):
            by_store = [found[-1].store_inputs.setdefault(store, {}) for store in sorted(_names(match[2]))]
            fed = [by_processor.setdefault(match[1], set()) for by_processor in by_store]
        elif _SINK.match(line):
            fed = []
        elif match := _UPSTREAM.match(line):
            above.append((fed, topics, _names(match[1])))
    # A source may be below its successors: kafka-streams-groups.sh sorts the nodes by name.
    for stores, topics, nodes in above:
        for one in stores:
            one.update(*(topics.get(node, ()) for node in nodes))
    if not found:
        raise Invalid(
            f"{source} contains no line 'Sub-topology: <number>'.",
            code="topology-invalid",
            action="Save the output of the application's topology.describe() to a file, and give that file.",
            source=source,
        )
    return found


def _names(text: str) -> set[str]:
    return {name.strip() for name in text.split(",") if name.strip()}


PLUGIN_SETTING = "group.streams.topology.description.plugin.class"
"""The broker setting that enables topology descriptions."""

_GIVE = "Give --topology with the text of Topology.describe(), or --state-dir of a healthy instance."


@dataclass(frozen=True)
class GroupTopology:
    """The topology of a group.

    Attributes:
        subtopologies: the topology; ``None`` if it has no usable one.
        remarks: its source, and what it does not show.
    """

    subtopologies: list[Subtopology] | None = None
    remarks: tuple[str, ...] = ()


def topology_of(group: StreamsGroup, *, required: bool) -> GroupTopology:
    """The brokers' topology of a group."""
    name, epoch = group.group_id, group.topology_epoch
    if group.description is not None:
        remark = f"The topology is the description that the brokers keep of the group {name} (topology epoch {epoch})."
        return GroupTopology(_described(group.description, name), (remark,))
    if not required:
        return GroupTopology()
    why = f"the brokers keep no description ({group.description_status.name})"
    if group.subtopologies is None:
        raise NotFound(
            f"The group {name} ({group.state}) has no topology at the brokers: {why}, and it was not ready, as when "
            "source topics are missing.",
            code="group-topology-missing",
            action=_GIVE,
            group=name,
        )
    parts = [_configured(part, name) for part in group.subtopologies]
    return GroupTopology(
        parts,
        (
            f"The topology is the configured one of the group {name} (topology epoch {epoch}), as {why}: that needs "
            f"Kafka Streams 4.4 and the brokers' setting {PLUGIN_SETTING}.",
            "Not in it: stores that are not logged, global stores, and processors, whose names tell kinds. Give "
            "--topology if the application has any of these.",
        ),
    )


def _described(described: TopologyDescription, application_id: str) -> list[Subtopology]:
    parts = [_part(number, False, nodes, application_id) for number, nodes in described.subtopologies.items()]
    return parts + [_part(-1, True, nodes, application_id) for nodes in described.global_stores]


def _part(number: int, is_global: bool, nodes: Iterable[Node], application_id: str) -> Subtopology:
    part = Subtopology(number, is_global)
    above: dict[str, set[str]] = {}
    for node in nodes:
        if node.type is NodeType.SOURCE:
            part.sources.add(node.name)
            for below in node.successors:
                above.setdefault(below, set()).update(
                    _as_in_text(topic, application_id) for topic in node.source_topics
                )
    for node in nodes:
        for store in sorted(node.stores):
            part.store_inputs.setdefault(store, {})[node.name] = above.get(node.name, set())
    return part


def _as_in_text(topic: str, application_id: str) -> str:
    """``Topology.describe()`` names repartition topics without the application id."""
    internal = topic.startswith(f"{application_id}-") and topic.endswith("-repartition")
    return topic.removeprefix(f"{application_id}-") if internal else topic


def _configured(part: ConfiguredSubtopology, application_id: str) -> Subtopology:
    """The logged stores, by the names of their changelogs."""
    own = re.compile(f"{re.escape(application_id)}-(.+)-changelog")
    found = {
        name: match[1] for name in part.changelogs if name not in part.source_topics and (match := own.fullmatch(name))
    }
    unnamed = sorted(set(part.changelogs) - found.keys())
    if unnamed:
        raise Invalid(
            f"Subtopology {part.number} of {application_id} has a store that is restored from "
            f"{', '.join(unnamed)}, and the configured topology of its group does not name the store.",
            code="group-topology-incomplete",
            action=f"{_GIVE} Brokers with {PLUGIN_SETTING} have it for Kafka Streams 4.4.",
            subtopology=part.number,
            topics=unnamed,
        )
    return Subtopology(part.number, False, {store: {} for store in found.values()})
