"""The brokers' topology of a streams group, for ``discover``.

The description has everything that the text of ``Topology.describe()`` has (global stores have no numbers). Without it,
the configured topology has the changelogs of each subtopology, whose names contain those of the logged stores.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from statecore.changelog.streams_groups import (
    ConfiguredSubtopology,
    Node,
    NodeType,
    StreamsGroup,
    TopologyDescription,
)
from statecore.discover.topology import Subtopology
from statecore.errors import Invalid, NotFound

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
    names = [topic.name for topic in part.changelogs]
    own = re.compile(f"{re.escape(application_id)}-(.+)-changelog")
    found = {name: match[1] for name in names if name not in part.source_topics and (match := own.fullmatch(name))}
    unnamed = sorted(set(names) - found.keys())
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
