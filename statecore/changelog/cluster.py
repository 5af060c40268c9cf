"""A Kafka cluster as a client: topic descriptions, offsets and leaders.

`NotFound` is raised only when a broker has answered; without an answer the error is `Retryable`.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from statecore.changelog.client import BrokerClient
from statecore.changelog.leader_requests import EpochEndsRequest, LeaderRequest, OffsetsRequest
from statecore.changelog.model import LogOffsets, TopicDescription
from statecore.errors import Invalid, NotFound, Retryable
from statecore.formats.topic_partition import TopicPartition

if TYPE_CHECKING:
    from statecore.changelog.wire import Wire

_TOPIC = 2  # resource type in DescribeConfigs
_UNKNOWN_TOPIC, _LEADER_NOT_AVAILABLE, _INVALID_TOPIC, _TOPIC_DENIED = 3, 5, 17, 29
_PASSING = {5, 6, 7, 13, 14, 15, 41}  # no controller, or another one than the broker thought
_METADATA_LOG = "__cluster_metadata"


@dataclass(frozen=True)
class Leader:
    """Leader of a partition."""

    node: int  # broker id
    where: str  # host:port
    epoch: int  # leader epoch, -1 where the broker is too old to give a reliable one
    topic_id: uuid.UUID  # the topic's id; the nil UUID where the broker is too old to have one


class Cluster(BrokerClient):
    """A Kafka cluster as a client; a context manager that connects on first use.

    Args:
        bootstrap_servers: ``host:port``, several separated by commas.
        kafka: further settings by kafka-python's names (``security_protocol``, ``sasl_mechanism``, ...).
        timeout: seconds for each call.

    Raises:
        Invalid: a setting that kafka-python does not know.
    """

    def __init__(self, bootstrap_servers: str, kafka: Mapping[str, Any] = {}, *, timeout: float = 30.0) -> None:
        super().__init__(bootstrap_servers, kafka, timeout=timeout)
        self.idle: dict[int, list[Wire]] = {}
        """Unused fetch connections, by broker id; see `statecore.changelog.wire`."""
        self._topics: dict[str, Any] = {}
        self._cluster_id: str | None = None

    def close(self) -> None:
        """Close all connections, idle ones included. A closed cluster can be used again and reconnects."""
        with self._lock:
            for wires in self.idle.values():
                for wire in wires:
                    wire.close()
            self.idle.clear()
            super().close()

    def describe_topics(self, names: Iterable[str]) -> dict[str, TopicDescription]:
        """Partitions, id and configuration of topics.

        Raises:
            NotFound: some topics do not exist; all of them are named.
            Retryable: no broker answered in time.
            Invalid: this client may not describe a topic, or was rejected.
        """
        wanted = sorted(set(names))
        if not wanted:
            return {}
        deadline = self.deadline()
        topics = self.run(self._look_up, wanted, deadline)
        configs = self.run(self._configs, wanted, deadline)
        return {
            name: TopicDescription(name, topics[name].topic_id.hex, len(topics[name].partitions), configs[name])
            for name in wanted
        }

    def list_topics(self) -> list[str]:
        """Names of all visible topics without Kafka's internal ones, sorted. Raises `Retryable` without an answer."""
        response = self.run(self._metadata, None, self.deadline())
        return sorted(topic.name for topic in response.topics if not topic.is_internal and topic.error_code == 0)

    def brokers(self) -> list[str]:
        """Advertised ``host:port`` of every broker, sorted. Raises `Retryable` if no broker answers."""
        return sorted({f"{one.host}:{one.port}" for one in self.run(self._metadata, [], self.deadline()).brokers})

    def cluster_id(self) -> str:
        """Id of the cluster; empty if its brokers are older than Kafka 0.10.1. Raises `Retryable` if none answers."""
        if self._cluster_id is None:
            self.run(self._metadata, [], self.deadline())
        return self._cluster_id or ""

    def log_offsets(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, LogOffsets]:
        """Log start, last stable offset and log end of partitions: three parallel requests to each leader.

        Raises:
            NotFound: some topics or partitions do not exist.
            Retryable: a leader did not answer in time.
        """
        wanted = sorted(set(tps))
        if not wanted:
            return {}
        return self.run(self._offsets, wanted, self.deadline())

    def epoch_ends(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """End offsets of leader epochs in the current logs: one parallel request to each leader.

        A log that was truncated and has grown again has other records from the end of its earlier epoch on.

        Args:
            wanted: leader epoch by partition; -1 where it is not known.

        Returns:
            Partition → the end offset of the largest epoch that is not later than the requested one (the log end where
            no later epoch has begun); ``None`` where the brokers are too old, the epoch is not known, or it is later
            than every epoch of the log.

        Raises:
            NotFound: some topics or partitions do not exist.
            Retryable: a leader did not answer in time.
            Invalid: this client may not describe a topic.
        """
        if not wanted:
            return {}
        return self.run(self._epoch_ends, dict(sorted(wanted.items())), self.deadline())

    def time_ms(self) -> int | None:
        """Clock of the active controller, in ms since the epoch.

        No other response of a broker has the time; DescribeQuorum has it where the leader reports its own state.

        Returns:
            ``None`` where the brokers use ZooKeeper or are older than Kafka 3.3, or this client may not describe the
            cluster.

        Raises:
            Retryable: no broker answered in time.
        """
        return self.run(self._time_ms, self.deadline())

    def leader(self, tp: TopicPartition, *, refresh: bool = False, deadline: float | None = None) -> Leader:
        """Leader of a partition.

        Args:
            tp: the partition.
            refresh: fetch metadata again even if the leader is known (it answered that it no longer leads).
            deadline: ``time.monotonic()`` at which to give up.

        Raises:
            NotFound: the topic or partition does not exist.
            Retryable: the partition has no leader, or no broker answered in time.
        """
        until = self.deadline() if deadline is None else deadline
        if refresh or tp.topic not in self._topics:
            self.run(self._look_up, [tp.topic], until)
        return self._leader(tp)

    async def _time_ms(self, deadline: float) -> int | None:
        from kafka.errors import IncompatibleBrokerVersion
        from kafka.protocol.admin import DescribeQuorumRequest

        def request() -> Any:
            topic = DescribeQuorumRequest.TopicData
            part = topic.PartitionData(partition_index=0)
            return DescribeQuorumRequest(topics=[topic(topic_name=_METADATA_LOG, partitions=[part])])

        pause = 0.05
        while True:
            try:
                response = await self.ask(self.metadata_brokers, request, deadline)
            except Invalid as error:
                if isinstance(error.__cause__, IncompatibleBrokerVersion):
                    return None
                raise
            parts = [part for topic in response.topics for part in topic.partitions]
            codes = {response.error_code, *(part.error_code for part in parts)} - {0}
            if not codes:
                return _time_of_leader(parts)
            if not codes & _PASSING or time.monotonic() + pause >= deadline:
                return None
            await self.sleep(pause)
            pause = min(2 * pause, 1.0)

    async def _metadata(self, names: list[str] | None, deadline: float) -> Any:
        from kafka.protocol.metadata import MetadataRequest

        def request() -> Any:
            topics = None if names is None else [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
            return MetadataRequest(
                topics=topics,
                allow_auto_topic_creation=False,
                include_cluster_authorized_operations=False,
                include_topic_authorized_operations=False,
            )

        response = await self.ask(self.metadata_brokers, request, deadline)
        self.manager.cluster.update_metadata(response)  # addresses of the brokers
        self._cluster_id = response.cluster_id or ""
        return response

    async def _look_up(self, names: list[str], deadline: float) -> dict[str, Any]:
        """Metadata of topics, all without error, cached for `_leader`."""
        pause = 0.1
        absent_before: set[str] = set()
        while True:
            response = await self._metadata(names, deadline)
            found = {topic.name: topic for topic in response.topics if topic.error_code == 0}
            errors = {topic.name: topic.error_code for topic in response.topics if topic.error_code != 0}
            self._check_rights("Describe", errors)
            absent = {name for name, code in errors.items() if code in (_UNKNOWN_TOPIC, _INVALID_TOPIC)}
            # Twice, because a broker may lag behind the creation of a topic by some milliseconds.
            if absent and absent == absent_before:
                raise NotFound(
                    f"Topics do not exist on {self.bootstrap_servers}: {', '.join(sorted(absent))}.",
                    code="topic-not-found",
                    action="Check the application id, the topic names and the cluster (kafka-topics.sh --list).",
                    topics=sorted(absent),
                )
            leaderless = [
                f"{topic.name}-{partition.partition_index}"
                for topic in found.values()
                for partition in topic.partitions
                if partition.leader_id < 0
            ]
            if not errors and not leaderless:
                for topic in found.values():
                    topic.partitions = {partition.partition_index: partition for partition in topic.partitions}
                    if response.API_VERSION < 9:  # KAFKA-9212: old controllers send stale leader epochs
                        for partition in topic.partitions.values():
                            partition.leader_epoch = -1
                self._topics.update(found)
                return found
            if time.monotonic() + pause >= deadline:
                what = ", ".join(leaderless) or ", ".join(f"{name} (error {code})" for name, code in errors.items())
                raise Retryable(
                    f"Partitions have no leader: {what}.",
                    code="leader-not-available",
                    action="Restart the brokers that hold their replicas, then try again.",
                    topics=sorted({*(name.rpartition("-")[0] for name in leaderless), *errors}),
                    partitions=leaderless,
                )
            absent_before = absent
            await self.sleep(pause)
            pause = min(2 * pause, 1.0)

    def _check_rights(self, right: str, errors: dict[str, int]) -> None:
        denied = sorted(name for name, code in errors.items() if code == _TOPIC_DENIED)
        if denied:
            raise Invalid(
                f"The user of this client lacks the right {right} on the topics {', '.join(denied)}.",
                code="topic-authorization-failed",
                action=f"Grant {right} on them. All rights that statecore needs on a topic: Describe, DescribeConfigs, "
                "Read.",
                topics=denied,
                right=right,
            )

    def _leader(self, tp: TopicPartition) -> Leader:
        topic = self._topics[tp.topic]
        partition = topic.partitions.get(tp.partition)
        if partition is None:
            raise NotFound(
                f"Topic {tp.topic} has no partition {tp.partition}; it has {len(topic.partitions)}.",
                code="partition-not-found",
                action="Check the spec against the topic; plan again if the topic was changed.",
                topic=tp.topic,
                partition=tp.partition,
                partitions=len(topic.partitions),
            )
        node = partition.leader_id
        return Leader(node, self.where(node), partition.leader_epoch, topic.topic_id or uuid.UUID(int=0))

    async def _configs(self, names: list[str], deadline: float) -> dict[str, dict[str, str]]:
        from kafka.protocol.admin import DescribeConfigsRequest

        def request() -> Any:
            resource = DescribeConfigsRequest.DescribeConfigsResource
            resources = [resource(resource_type=_TOPIC, resource_name=name, configuration_keys=None) for name in names]
            return DescribeConfigsRequest(resources=resources, include_synonyms=False, include_documentation=False)

        response = await self.ask(self.metadata_brokers, request, deadline)
        configs: dict[str, dict[str, str]] = {}
        for result in response.results:
            if result.error_code != 0:
                self._check_rights("DescribeConfigs", {result.resource_name: result.error_code})
                raise Retryable(
                    f"The configuration of topic {result.resource_name} could not be read: "
                    f"error {result.error_code} {result.error_message or ''}.",
                    code="broker-error",
                    action="Try again; if the error persists, check the broker's log.",
                    topic=result.resource_name,
                    error_code=result.error_code,
                )
            configs[result.resource_name] = {
                entry.name: entry.value for entry in result.configs if entry.value is not None
            }
        return configs

    async def _offsets(self, wanted: list[TopicPartition], deadline: float) -> dict[TopicPartition, LogOffsets]:
        await self._look_up(sorted({tp.topic for tp in wanted} - self._topics.keys()) or [wanted[0].topic], deadline)
        request = OffsetsRequest(wanted, self.timeout)
        await self._ask_leaders(request, deadline)
        return request.answers()

    async def _epoch_ends(self, wanted: dict[TopicPartition, int], deadline: float) -> dict[TopicPartition, int | None]:
        request = EpochEndsRequest(wanted)
        unknown = {tp.topic for tp in request.missing()} - self._topics.keys()
        if unknown:
            await self._look_up(sorted(unknown), deadline)
        await self._ask_leaders(request, deadline)
        return request.answers()

    async def _ask_leaders(self, request: LeaderRequest, deadline: float) -> None:
        """Ask the leaders until all answers are there; retry where one did not answer or no longer leads."""
        pause = 0.05
        while missing := request.missing():
            problem = await self._ask_once(request, missing, deadline)
            if problem is None:
                continue
            if time.monotonic() + pause >= deadline:
                if isinstance(problem, Retryable):
                    raise problem
                raise Retryable(
                    f"Offsets of {problem} could not be read in time.",
                    code="offsets-unavailable",
                    action="Check the brokers that lead these partitions, then try again.",
                    problem=problem,
                )
            await self.sleep(pause)
            pause = min(2 * pause, 1.0)
            await self._look_up(sorted({tp.topic for tp in missing}), deadline)

    async def _ask_once(
        self, request: LeaderRequest, missing: list[TopicPartition], deadline: float
    ) -> str | Retryable | None:
        """Run one round; returns a failure that may pass, if any."""
        from kafka.errors import IncompatibleBrokerVersion

        by_leader: dict[int, dict[TopicPartition, int]] = {}
        for tp in missing:
            leader = self._leader(tp)
            by_leader.setdefault(leader.node, {})[tp] = leader.epoch
        waiting = []
        for node, epochs in by_leader.items():
            # Only new metadata shows that a leader has died; repeating the request does not.
            until = min(deadline, time.monotonic() + max(1.0, self.timeout / 4))
            for one in request.exchanges(epochs):
                sent = self.manager.call_soon(self.ask, partial(list, [node]), one.request, until)
                waiting.append((one, sent))
        problem: str | Retryable | None = None
        for one, sent in waiting:
            try:
                response = await sent
            except Retryable as error:
                problem = error if error.code == "broker-name-unresolved" else error.what
                continue
            except Invalid as error:
                if one.unsupported is None or not isinstance(error.__cause__, IncompatibleBrokerVersion):
                    raise
                one.unsupported()
                continue
            for tp, code in one.take(response):
                self._check_rights("Describe", {tp.topic: code})
                problem = f"{tp} (error {code})"
        return problem


def _time_of_leader(parts: Iterable[Any]) -> int | None:
    """Time of the leader in a DescribeQuorum response: the leader has caught up with itself now."""
    times = [
        voter.last_caught_up_timestamp
        for part in parts
        for voter in part.current_voters
        if voter.replica_id == part.leader_id
    ]
    return max((one for one in times if one is not None and one > 0), default=None)
