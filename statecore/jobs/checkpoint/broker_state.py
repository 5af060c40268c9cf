"""What the brokers say about an application, compared with its newest snapshot: is a checkpoint worth making?"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from statecore.changelog.cluster import Cluster
from statecore.changelog.delete_retention import min_current_retention_ms, recorded_retention_ms
from statecore.changelog.model import TopicDescription
from statecore.errors import Reason
from statecore.formats.integers import min_known
from statecore.formats.topic_partition import TopicPartition, is_same_topic
from statecore.jobs.bases.base import Key
from statecore.jobs.checkpoint.confirmation import reason_to_confirm
from statecore.jobs.fields.catalog import VersionedStart
from statecore.jobs.planning.plan import is_restored_by_kafka_streams
from statecore.jobs.planning.planner import consumed_sources
from statecore.jobs.planning.selection import check_partitions, select_stores
from statecore.repository.compatibility import differences
from statecore.repository.manifest import Manifest, ReadPosition, StoreSnapshot
from statecore.spec.model import ApplicationSpec, StoreSpec, is_source, task_of


@dataclass(frozen=True)
class BrokerState:
    """What the brokers say about an application.

    Attributes:
        read_at_ms: broker time just before the ends were read, in ms since the epoch; ``None`` if the brokers gave
            no time.
    """

    spec: ApplicationSpec
    versioned: VersionedStart
    topics: Mapping[str, TopicDescription]
    stores: Mapping[Key, tuple[StoreSpec, frozenset[TopicPartition]]]
    ends: Mapping[TopicPartition, int]
    log_ends: Mapping[TopicPartition, int]
    read_at_ms: int | None

    @staticmethod
    def of(cluster: Cluster, spec: ApplicationSpec, versioned: VersionedStart) -> BrokerState:
        declared = select_stores(spec)
        read_at_ms = cluster.time_ms()
        topics = cluster.describe_topics(sorted({store.changelog for store in declared}))
        stores: dict[Key, tuple[StoreSpec, set[TopicPartition]]] = {}
        for store, numbers in check_partitions(declared, topics).items():
            for number in numbers:
                partitions = stores.setdefault((task_of(store, number), store.name), (store, set()))[1]
                partitions.add(TopicPartition(store.changelog, number))
        frozen = {key: (store, frozenset(partitions)) for key, (store, partitions) in stores.items()}
        ends, log_ends = _ends(cluster, spec, frozen.values(), versioned)
        return BrokerState(spec, versioned, topics, frozen, ends, log_ends, read_at_ms)

    def reason_to_advance(self, there: Mapping[Key, StoreSnapshot], inherited_since_ms: int) -> Reason | None:
        """What a checkpoint would find new; versioned stores younger than ``inherited_since_ms`` are inherited."""
        behind: dict[TopicPartition, int] = {}
        for (task, name), (declared, partitions) in self.stores.items():
            store = there.get((task, name))
            if store is None:
                return Reason(f"store {name} of task {task} is in no snapshot", "store-new", task=task, store=name)
            left = is_restored_by_kafka_streams(declared, self.versioned)
            if left != store.restored_by_kafka_streams or differences(task, store, self.spec, empty=left):
                return Reason(
                    f"the declaration of store {name} of task {task} has changed",
                    "store-redeclared",
                    task=task,
                    store=name,
                )
            if left:
                continue
            known = {end.topic_partition: end for end in store.changelogs}
            if known.keys() != partitions:
                return Reason(
                    f"the partitions of {declared.changelog} have changed",
                    "partitions-changed",
                    topic=declared.changelog,
                )
            for part, end in known.items():
                if not is_same_topic(end.topic_id, self.topics[part.topic].topic_id):
                    return Reason(f"{part.topic} was recreated", "topic-recreated", topic=part.topic)
                if self.ends[part] != end.end and not _is_inherited(store, inherited_since_ms):
                    behind[part] = self.ends[part] - end.end
        if not behind:
            return None
        ahead, lower = sum(max(0, one) for one in behind.values()), sum(max(0, -one) for one in behind.values())
        what = [f"{ahead:,} new offsets"] if ahead else []
        what += [f"{lower:,} fewer offsets"] if lower else []
        return Reason(
            f"{' and '.join(what)} in {len(behind)} partitions",
            "offsets-new",
            offsets=ahead,
            partitions=len(behind),
            **({"fewer_offsets": lower} if lower else {}),
        )

    def reason_to_confirm(self, manifest: Manifest, there: Mapping[Key, StoreSnapshot], now_ms: int) -> Reason | None:
        """Why to publish although nothing is new; tasks with records that a checkpoint does not read are excluded."""
        quiet = {task for task, _ in self.stores} - {key[0] for key in self.stores if self._lags(there[key])}
        at_ms = now_ms if self.read_at_ms is None else self.read_at_ms
        retentions: dict[str, list[int | None]] = {task: [] for task in quiet}
        for (task, _), (store, _) in self.stores.items():
            if task in quiet and not is_restored_by_kafka_streams(store, self.versioned):
                is_timed = self.read_at_ms is not None  # a retention is recorded only with a time of the cluster
                retentions[task].append(recorded_retention_ms(self.topics[store.changelog]) if is_timed else None)
        read_positions = {task: ReadPosition(at_ms, min_known(found)) for task, found in retentions.items()}
        return reason_to_confirm(manifest, read_positions, min_current_retention_ms(self.topics.values()))

    def _lags(self, store: StoreSnapshot) -> bool:
        """Whether records lie beyond the ends of a store."""
        return not store.restored_by_kafka_streams and any(
            end.end < self.log_ends[end.topic_partition] for end in store.changelogs
        )


def _is_inherited(store: StoreSnapshot, since_ms: int) -> bool:
    """Whether a checkpoint inherits a store because it is versioned and young enough."""
    return store.kind.is_versioned and (store.read_at_ms or 0) >= since_ms


def _ends(
    cluster: Cluster,
    spec: ApplicationSpec,
    stores: Collection[tuple[StoreSpec, frozenset[TopicPartition]]],
    versioned: VersionedStart,
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """Where a checkpoint would stop reading now, and where the logs end."""
    read = {
        part
        for store, partitions in stores
        if not is_restored_by_kafka_streams(store, versioned)
        for part in partitions
    }
    sources = {part for store, partitions in stores if is_source(spec, store) for part in partitions} & read
    logs = cluster.log_offsets(read)
    isolation = spec.processing_guarantee.isolation
    log_ends = {part: log.end(isolation) for part, log in logs.items()}
    seen = logs | consumed_sources(cluster, spec, {part: logs[part] for part in sources})
    return {part: log.end(isolation) for part, log in seen.items()}, log_ends
