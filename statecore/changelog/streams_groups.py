"""A streams group as the group coordinator knows it: an application with ``group.protocol=streams`` (KIP-1071).

Brokers from 4.0 on keep the *configured topology*: subtopologies with their source,
repartition and changelog topics. From 4.4 on a broker also keeps the *topology description* (KIP-1331), the content of
``Topology.describe()``, where ``group.streams.topology.description.plugin.class`` names a plugin and the application is
Kafka Streams 4.4 or newer. A group without members keeps both until it expires.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from operator import attrgetter
from typing import Any

from statecore.changelog.cluster import Cluster
from statecore.changelog.groups import ask_coordinator
from statecore.errors import Invalid, NotFound, Retryable

_TOPIC_DENIED, _GROUP_DENIED, _UNSUPPORTED, _NO_STREAMS_GROUP = 29, 30, 35, 69

NO_STREAMS_GROUP = "streams-group-not-found"
"""Code of a :class:`NotFound`: the group is classic or does not exist, or the brokers have no streams groups."""


class NodeType(IntEnum):
    """Type of a topology node."""

    SOURCE = 1
    PROCESSOR = 2
    SINK = 3


class DescriptionStatus(IntEnum):
    """Whether the broker has the topology description; ``NOT_REQUESTED`` on brokers older than 4.4."""

    NOT_REQUESTED = 0
    NOT_STORED = 1
    ERROR = 2
    AVAILABLE = 3


@dataclass(frozen=True)
class ConfiguredSubtopology:
    """A subtopology as the coordinator assigns its tasks."""

    number: int  # number of the subtopology in task ids
    source_topics: tuple[str, ...]  # the topics it reads, without repartition topics
    changelogs: tuple[str, ...]  # the topics its logged stores are restored from; a reused source topic among them


@dataclass(frozen=True)
class Node:
    """A node of a topology description."""

    name: str
    type: NodeType
    source_topics: tuple[str, ...]  # topics that a source reads, with full names of repartition topics
    stores: tuple[str, ...]  # the stores a processor uses
    successors: tuple[str, ...]  # the nodes that follow it


@dataclass(frozen=True)
class TopologyDescription:
    """The content of ``Topology.describe()``."""

    subtopologies: Mapping[int, tuple[Node, ...]]  # number → its nodes, sorted by name
    # source and processor of each global store; the broker gives them no number
    global_stores: tuple[tuple[Node, Node], ...]


@dataclass(frozen=True)
class StreamsGroup:
    """A streams group."""

    group_id: str  # the application.id
    state: str  # Stable, Empty, NotReady, Assigning, Reconciling or Dead
    topology_epoch: int  # epoch of its topology; -1 without one
    # the configured topology, by number; None while the group is not ready, for example when source topics are missing
    subtopologies: tuple[ConfiguredSubtopology, ...] | None
    description_status: DescriptionStatus  # whether the broker has the topology description
    description: TopologyDescription | None  # it, or None


def streams_group(cluster: Cluster, group: str) -> StreamsGroup:
    """Describe a streams group; ``group`` is the ``application.id``."""
    cluster.brokers()  # fetches their addresses
    return cluster.run(_ask, cluster, group, cluster.deadline())


async def _ask(cluster: Cluster, group: str, deadline: float) -> StreamsGroup:
    from kafka.errors import UnsupportedVersionError

    from statecore.changelog.protocol import StreamsGroupDescribeRequest

    def describe() -> Any:
        return StreamsGroupDescribeRequest(
            group_ids=[group], include_authorized_operations=False, include_topology_description=True
        )

    try:
        code, response = await ask_coordinator(cluster, group, describe, _code_of, deadline)
    except Invalid as error:
        if isinstance(error.__cause__, UnsupportedVersionError):
            raise _absent(cluster, group, _UNSUPPORTED, "") from error
        raise
    if code == 0:
        try:
            return decode(response.groups[0])
        except ValueError as error:  # clients choose subtopology names, and newer brokers may have more states
            raise Invalid(
                f"The coordinator describes the group {group} in a way that is not understood: {error}.",
                code="group-description-invalid",
                action="Give --topology with the text of Topology.describe(), or --state-dir.",
                group=group,
            ) from error
    reason = (response.groups[0].error_message or "") if response is not None else ""
    if code in (_NO_STREAMS_GROUP, _UNSUPPORTED):
        raise _absent(cluster, group, code, reason)
    if code == _GROUP_DENIED:
        raise Invalid(
            f"This client may not describe the group {group}.",
            code="group-authorization-failed",
            action="Grant Describe on the group.",
            group=group,
        )
    if code == _TOPIC_DENIED:
        raise Invalid(
            f"This client may not describe every topic of the topology of {group}: the broker returns nothing of it.",
            code="topic-authorization-failed",
            action="Grant Describe on all topics of the application: sources, repartition topics and changelogs.",
            group=group,
        )
    raise Retryable(
        f"The streams group {group} could not be described: Kafka error {code}{_because(reason)}.",
        code="broker-error",
        action="Try again; if the error persists, check the broker's log.",
        group=group,
        error_code=code,
    )


def _code_of(response: Any) -> int:
    return int(response.groups[0].error_code)


def _absent(cluster: Cluster, group: str, code: int, reason: str) -> NotFound:
    if code == _UNSUPPORTED:
        what = f"{cluster.bootstrap_servers} has no streams groups: its brokers are too old, or streams.version is 0."
    else:
        what = f"{cluster.bootstrap_servers} has no streams group {group}{_because(reason)}."
    return NotFound(
        what,
        action="An application with group.protocol=classic sends no topology to the brokers: give it with --topology "
        "(the text of Topology.describe()) or --state-dir. Otherwise check the application id.",
        group=group,
        code=NO_STREAMS_GROUP,
    )


def _because(reason: str) -> str:
    return f" ({reason.rstrip('.')})" if reason else ""


def decode(described_group: Any) -> StreamsGroup:
    """A group of a response. Responses of version 0 have defaults for missing fields."""
    topology, described = described_group.topology, described_group.topology_description
    configured = topology.subtopologies if topology is not None else None
    return StreamsGroup(
        group_id=described_group.group_id,
        state=described_group.group_state,
        topology_epoch=topology.epoch if topology is not None else -1,
        subtopologies=None
        if configured is None
        else tuple(sorted(map(_configured, configured), key=attrgetter("number"))),
        description_status=DescriptionStatus(described_group.topology_description_status),
        description=_description(described) if described is not None else None,
    )


def _configured(part: Any) -> ConfiguredSubtopology:
    return ConfiguredSubtopology(
        int(part.subtopology_id), tuple(part.source_topics), tuple(topic.name for topic in part.state_changelog_topics)
    )


def _description(described: Any) -> TopologyDescription:
    return TopologyDescription(
        {int(part.subtopology_id): tuple(map(_node, part.nodes)) for part in described.subtopologies},
        tuple((_node(one.source), _node(one.processor)) for one in described.global_stores),
    )


def _node(node: Any) -> Node:
    sources, stores, successors = map(tuple, (node.source_topics, node.stores, node.successors))
    return Node(node.name, NodeType(node.node_type), sources, stores, successors)
