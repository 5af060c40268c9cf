"""Compares the offsets of a backup with the changelogs on the brokers.

An offset before the start of its log would make Kafka Streams restore the store from the start; one beyond the end
would make it miss the records written up to there. Both are refused before anything is published.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from statecore.changelog.cluster import Cluster
from statecore.changelog.delete_retention import recorded_retention_ms
from statecore.changelog.model import LogOffsets, OffsetRange, TopicDescription
from statecore.changelog.peeks import ranges_of_markers
from statecore.errors import Reason, Retryable
from statecore.formats.integers import min_known
from statecore.formats.offsets import OFFSET_UNKNOWN
from statecore.formats.topic_partition import TopicPartition
from statecore.jobs.backup.copies import StoreCopy
from statecore.jobs.backup.stores import Problems, Refuse, StoreKey
from statecore.jobs.job import Job
from statecore.repository.manifest import StoredEnd
from statecore.spec.model import ApplicationSpec


@dataclass(frozen=True)
class Logs:
    """State of the changelogs, or that the brokers were not asked.

    Attributes:
        ends: by task and store name, the store's ends and the logs at that time.
        read_ms: when the brokers were asked, in ms since the epoch, by the cluster's clock if ``retentions`` are known;
            ``None`` if they were not.
        partitions: number of partitions of each topic; ``None`` if the brokers were not asked.
        only_markers: tails that consist of transaction markers only.
        retentions: delete retention of each topic; empty if the cluster gave no time.
        cluster_id: of the brokers; empty if they have none, or were not asked.
    """

    ends: Mapping[StoreKey, tuple[StoredEnd, ...]]
    read_ms: int | None = None
    partitions: Mapping[str, int] | None = None
    only_markers: Collection[OffsetRange] = ()
    retentions: Mapping[str, int] = field(default_factory=dict)
    cluster_id: str = ""

    def read_at_ms(self, store: StoreKey) -> int | None:
        """When the ends of a store were read, if it had no tail then: later deletes are younger."""
        return self.read_ms if self.has_all(store) else None

    def has_all(self, store: StoreKey) -> bool:
        """Whether a store (task, name) had no tail."""
        ends = self.ends[store]
        return self.read_ms is not None and all(
            one.end == one.log_end or _tail(one) in self.only_markers for one in ends
        )

    def delete_retention_ms(self, store: StoreKey) -> int | None:
        """Delete retention after the ends of a store (task, name) at its :meth:`read_at_ms`; ``None`` if unknown."""
        if self.read_at_ms(store) is None:
            return None
        return min_known(self.retentions.get(one.topic) for one in self.ends[store])


def check_changelogs(job: Job, stores: Sequence[StoreCopy]) -> Logs:
    """The ends of stores and the state of their logs, unless the request is offline. Raises ``Invalid``."""
    request, problems = job.context.request, Problems()
    if request.offline:
        logs = ends_without_brokers(stores)
    else:
        job.progress.phase("ask the brokers")
        logs = ends_from_brokers(job.spec, stores, problems.add, timeout=request.timeout, clock=job.context.clock)
        job.progress.done()
    refuse_ahead(stores, logs, problems.add)
    problems.check()
    return logs


def ends_without_brokers(stores: Iterable[StoreCopy]) -> Logs:
    """The ends that the stores record, without the brokers."""
    return Logs({store.key: tuple(_end(store, *offset) for offset in _sorted_offsets(store)) for store in stores})


def ends_from_brokers(
    spec: ApplicationSpec, stores: Iterable[StoreCopy], refuse: Refuse, *, timeout: float, clock: Callable[[], float]
) -> Logs:
    """The ends of stores, and the state of their logs now."""
    every = list(stores)
    wanted = [partition for store in every for partition, _ in _sorted_offsets(store)]
    try:
        with Cluster(spec.bootstrap_servers, spec.kafka, timeout=timeout) as cluster:
            cluster_ms, cluster_id = cluster.time_ms(), cluster.cluster_id()
            read_ms = int(clock() * 1000) if cluster_ms is None else cluster_ms
            topics = cluster.describe_topics({partition.topic for partition in wanted})
            offsets = cluster.log_offsets(wanted)
            ends = {store.key: tuple(_ends_of(store, topics, offsets)) for store in every}
            tails = {_tail(one) for found in ends.values() for one in found if one.end < one.log_end}
            # Without transactions there are no markers, so a tail consists of records.
            exactly_once = spec.processing_guarantee.is_exactly_once
            only_markers = ranges_of_markers(cluster, tails) if exactly_once else set()
    except Retryable as error:
        raise error.restated(
            error.what, action=f"{error.action} Or use --offline to do without the brokers."
        ) from error
    for store in every:
        for one in ends[store.key]:
            _check(store, one, refuse)
    partitions = {name: topic.partitions for name, topic in topics.items()}
    retentions = {} if cluster_ms is None else {name: recorded_retention_ms(topic) for name, topic in topics.items()}
    return Logs(ends, read_ms, partitions, only_markers, retentions, cluster_id)


def refuse_ahead(stores: Iterable[StoreCopy], logs: Logs, refuse: Refuse) -> None:
    """Refuse stores whose rows may be ahead of their offsets, unless they have no tail."""
    for store in stores:
        if store.may_be_ahead and not logs.has_all(store.key):
            what = (
                f"{store.selected.name} is versioned and transactional. Such a store does not record whether it was "
                "closed or was restoring, so its rows may be ahead of its offset, and versions must not be applied "
                "again. It can be published if its changelog has no records after its offset: close the application, "
                "and ask the brokers (without --offline); or name other stores (--store)."
            )
            refuse(_problem("versioned-store-ahead", what, store))


def _ends_of(
    store: StoreCopy, topics: Mapping[str, TopicDescription], offsets: Mapping[TopicPartition, LogOffsets]
) -> Iterator[StoredEnd]:
    for partition, offset in _sorted_offsets(store):
        log, topic_id = offsets[partition], topics[partition.topic].topic_id
        end = _end(store, partition, offset).end
        yield StoredEnd(*partition, topic_id, offset, end, log.log_start, log.log_end, log.leader_epoch)


def _tail(end: StoredEnd) -> OffsetRange:
    return OffsetRange(end.topic, end.partition, end.end, end.log_end)


def _check(store: StoreCopy, end: StoredEnd, refuse: Refuse) -> None:
    if end.offset == OFFSET_UNKNOWN:
        return
    what = f"{store.selected.name} has offset {end.offset} of {end.topic_partition}, and the log"
    if end.end > end.log_end:
        what += (
            f" ends before {end.log_end}: the topic was recreated or truncated, or this is another cluster. "
            "Restore the store (statecore restore --replace), or check bootstrap_servers."
        )
        refuse(_problem("offset-beyond-log-end", what, store))
    elif end.end < end.log_start:
        what += (
            f" starts at {end.log_start}: the records between were deleted, and Kafka Streams would restore the store "
            "from the start. Let the application do so, or restore it (statecore restore --replace)."
        )
        refuse(_problem("offset-below-log-start", what, store))


def _problem(code: str, what: str, store: StoreCopy) -> Reason:
    task, name = store.key
    return Reason(what, code, task=task, store=name)


def _sorted_offsets(store: StoreCopy) -> list[tuple[TopicPartition, int]]:
    return sorted(store.offsets.items())


def _end(store: StoreCopy, partition: TopicPartition, offset: int) -> StoredEnd:
    """Convert an offset to an end; a global store records the next offset already."""
    end = 0 if offset == OFFSET_UNKNOWN else offset + (store.selected.changelog is not None)
    return StoredEnd(*partition, "", offset, end)
