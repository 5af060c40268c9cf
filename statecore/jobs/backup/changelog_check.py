"""What the brokers say of the changelogs of a snapshot: are these the topics that its offsets are of?

A snapshot whose offset lies outside the log that there is would make Kafka Streams restore the store from the start,
or, beyond the end, miss what is written up to there. So it is refused while somebody is there who can do something.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from statecore.changelog.cluster import Cluster
from statecore.changelog.horizon import horizon_seen, least_horizon_ms
from statecore.changelog.markers import of_markers
from statecore.changelog.model import LogOffsets, OffsetRange, TopicDescription
from statecore.errors import Reason, Retryable
from statecore.formats.offsets import OFFSET_UNKNOWN
from statecore.formats.topic_partition import TopicPartition
from statecore.jobs.backup.copies import StoreCopy
from statecore.jobs.backup.problems import Refuse
from statecore.repository.manifest import ChangelogEnd
from statecore.spec.model import ApplicationSpec, ProcessingGuarantee


@dataclass(frozen=True)
class Logs:
    """What the brokers said, or that nobody asked them.

    Attributes:
        ends: of each store, by task and name, how far it has come in what its changelogs were like then.
        read_ms: when they were asked, in ms since the epoch; ``None`` where nobody did. By the cluster's clock where
            horizons are known.
        partitions: how many partitions each topic has; none likewise.
        only_markers: what lies behind ends, where it was seen to be markers of transactions and nothing else.
        horizons: for how long each topic kept deletes then; none where the cluster did not tell the time.
    """

    ends: Mapping[tuple[str, str], tuple[ChangelogEnd, ...]]
    read_ms: int | None = None
    partitions: Mapping[str, int] | None = None
    only_markers: Collection[OffsetRange] = ()
    horizons: Mapping[str, int] = field(default_factory=dict)

    def cut_ms(self, store: tuple[str, str]) -> int | None:
        """The cut time of a store, by task and name: when its ends were read, if nothing lay behind them then.

        Deletes that lie behind its ends are younger than that. Where something lay behind them already, nobody knows.
        """
        return self.read_ms if self.has_all(store) else None

    def has_all(self, store: tuple[str, str]) -> bool:
        """Whether nothing was seen to lie behind the ends of a store, by task and name."""
        ends = self.ends[store]
        return self.read_ms is not None and all(
            one.end == one.log_end or _behind(one) in self.only_markers for one in ends
        )

    def horizon_ms(self, store: tuple[str, str]) -> int | None:
        """For how long deletes were kept behind the ends of a store, by task and name, at its cut time. Of a time
        before that nobody knows it.
        """
        if self.cut_ms(store) is None:
            return None
        return least_horizon_ms(self.horizons.get(one.topic) for one in self.ends[store])


def not_asked(stores: Iterable[StoreCopy]) -> Logs:
    """The ends as the stores say them."""
    return Logs({_key(store): tuple(_end(store, *said) for said in _said(store)) for store in stores})


def asked(
    spec: ApplicationSpec,
    stores: Iterable[StoreCopy],
    refuse: Refuse,
    *,
    timeout: float,
    clock: Callable[[], float] = time.time,
) -> Logs:
    """The ends, and what the brokers say of their logs now.

    Args:
        spec: how the brokers are reached.
        stores: the stores.
        refuse: told every reason why an offset does not fit its log.
        timeout: seconds that one call may take.
        clock: seconds since the epoch, by this machine's clock: it counts where the cluster does not tell the time.

    Raises:
        NotFound: a topic or partition does not exist.
        Retryable: the brokers cannot be reached.
        Invalid: they do not let this client in.
    """
    every = list(stores)
    wanted = [partition for store in every for partition, _ in _said(store)]
    try:
        with Cluster(spec.bootstrap_servers, spec.kafka, timeout=timeout) as cluster:
            told_ms = cluster.time_ms()
            read_ms = int(clock() * 1000) if told_ms is None else told_ms
            topics = cluster.describe_topics({partition.topic for partition in wanted})
            offsets = cluster.log_offsets(wanted)
            ends = {_key(store): tuple(_asked(store, topics, offsets)) for store in every}
            behind = {_behind(one) for found in ends.values() for one in found if one.end < one.log_end}
            # Without transactions there are no markers, and what lies behind are records.
            exactly_once = spec.processing_guarantee is ProcessingGuarantee.EXACTLY_ONCE_V2
            only_markers = of_markers(cluster, behind) if exactly_once else set()
    except Retryable as error:
        raise error.restated(error.what, action=f"{error.action} Or do without the brokers (--offline).") from error
    for store in every:
        for one in ends[_key(store)]:
            _check(store, one, refuse)
    partitions = {name: topic.partitions for name, topic in topics.items()}
    horizons = {} if told_ms is None else {name: horizon_seen(topic) for name, topic in topics.items()}
    return Logs(ends, read_ms, partitions, only_markers, horizons)


def refuse_ahead(stores: Iterable[StoreCopy], logs: Logs, refuse: Refuse) -> None:
    """Refuse stores whose rows may be ahead of their offsets, unless nothing lies behind these that they could be of.

    Args:
        stores: the stores.
        logs: what the brokers say of their changelogs, after the stores were copied.
        refuse: told of each that is refused.
    """
    for store in stores:
        if store.may_be_ahead and not logs.has_all(_key(store)):
            what = (
                f"{store.taken.name} is versioned and transactional. Such a store does not say whether it was closed "
                "or was restoring, so its rows may be ahead of its offset, and versions must not be applied again. "
                "It is taken where nothing lies behind its offset in the changelog: close the application, and ask "
                "the brokers (without --offline); or name the stores that are wanted (--store)."
            )
            refuse(_problem("versioned-store-ahead", what, store))


def _asked(
    store: StoreCopy, topics: Mapping[str, TopicDescription], offsets: Mapping[TopicPartition, LogOffsets]
) -> Iterator[ChangelogEnd]:
    for partition, offset in _said(store):
        log, topic_id = offsets[partition], topics[partition.topic].topic_id
        end = _end(store, partition, offset).end
        yield ChangelogEnd(*partition, topic_id, offset, end, log.log_start, log.log_end, log.leader_epoch)


def _behind(end: ChangelogEnd) -> OffsetRange:
    return OffsetRange(end.topic, end.partition, end.end, end.log_end)


def _check(store: StoreCopy, end: ChangelogEnd, refuse: Refuse) -> None:
    if end.offset == OFFSET_UNKNOWN:
        return
    what = f"{store.taken.name} says offset {end.offset} of {end.topic_partition}, and the log"
    if end.end > end.log_end:
        what += (
            f" ends before {end.log_end}: the topic was made anew or truncated, or this is another cluster. "
            "Restore the store (statecore restore --replace), or check bootstrap_servers."
        )
        refuse(_problem("offset-beyond-log-end", what, store))
    elif end.end < end.log_start:
        what += (
            f" begins at {end.log_start}: what lies between is gone, and Kafka Streams would restore the store "
            "from the start. Let the application do so, or restore it (statecore restore --replace)."
        )
        refuse(_problem("offset-below-log-start", what, store))


def _problem(code: str, what: str, store: StoreCopy) -> Reason:
    task, name = _key(store)
    return Reason(what, code, task=task, store=name)


def _key(store: StoreCopy) -> tuple[str, str]:
    return store.taken.task, store.taken.spec.name


def _said(store: StoreCopy) -> list[tuple[TopicPartition, int]]:
    return sorted(store.offsets.items())


def _end(store: StoreCopy, partition: TopicPartition, offset: int) -> ChangelogEnd:
    """The end that an offset means: a global store's is the next one."""
    end = 0 if offset == OFFSET_UNKNOWN else offset + (store.taken.changelog is not None)
    return ChangelogEnd(*partition, "", offset, end)
