"""Checks that Kafka Streams can continue the stores of a snapshot from the live topics, with correct results.

================================================  =====================================================================
check                                             otherwise
================================================  =====================================================================
the cluster has the snapshot's id                 nothing of the snapshot is of its topics
the topic exists and has the same id              offsets of a recreated topic mean nothing
the log starts at or before the store's end       records between are lost, and under exactly-once the task is wiped
the log reaches as far as the store, and the      records of the store were lost and replaced by others
epoch of its end has not ended before it
the end is younger than ``delete.retention.ms``,  deletes after the end may be compacted away, and the store would keep
or the log has not grown since                    deleted keys
================================================  =====================================================================

A checkpoint checks the first three before it reads a tail (:mod:`statecore.changelog.soundness`); the age it judges
after the read, and only if the tail has gaps. Kafka Streams reads the tail here, so its age is judged in advance: with
the same clock (the cluster's) and the same retention (the shorter of the snapshot's and the topic's).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from statecore.changelog.cluster import Cluster
from statecore.changelog.delete_retention import ENDLESS_MS, recorded_retention_ms
from statecore.changelog.model import LogOffsets, TopicDescription
from statecore.changelog.soundness import age_of, refusal
from statecore.errors import Invalid, NotFound, Reason
from statecore.formats.topic_partition import TopicPartition, is_known_topic_id, is_same_topic
from statecore.jobs.bases.base import base_end
from statecore.jobs.bases.choice import epoch_ends_of
from statecore.jobs.fetch.job import FetchJob
from statecore.jobs.fetch.plan import FetchPlan
from statecore.jobs.fetch.store_to_fetch import StoreToFetch
from statecore.repository.manifest import StoredEnd
from statecore.repository.publish.cluster_check import fetch_refused, is_of_other_cluster

_SHOWN = 5


class _Verdict(NamedTuple):
    wrong: Reason | None = None
    doubt: Reason | None = None

    def hardened(self) -> _Verdict:
        """Treat a doubt as an error, because a newer snapshot did not fit."""
        assert self.doubt is not None
        reason = Reason(f"{self.doubt}; and a newer snapshot did not fit", self.doubt.code, **self.doubt.context)
        return _Verdict(wrong=reason)


class _Topics(NamedTuple):
    """Topics, logs, epoch ends and time (ms) of the cluster; by task the delete retention in newer snapshots."""

    topics: Mapping[str, TopicDescription]
    logs: Mapping[TopicPartition, LogOffsets]
    epoch_ends: Mapping[tuple[TopicPartition, int], int | None]
    now_ms: int | None
    retention_by_task: Mapping[str, int]


def check_live_topics(job: FetchJob, plan: FetchPlan) -> tuple[str, ...]:
    """Compare the offsets of a plan with the live topics if brokers are given; returns notes."""
    if not job.context.bootstrap_servers or not plan.stores:
        return ()
    retention_by_task = job.snapshots.delete_retention_since(plan.found)
    with job.context.cluster() as cluster:
        cluster_id = cluster.cluster_id()
        if is_of_other_cluster(plan.found.manifest, cluster_id):
            raise fetch_refused(job.repository, plan.found.manifest, cluster_id)
        return tuple(check_topics(cluster, plan.stores, retention_by_task, no_doubts=job.snapshots.has_unfit))


def check_topics(
    cluster: Cluster,
    stores: Iterable[StoreToFetch],
    retention_by_task: Mapping[str, int] = MappingProxyType({}),
    *,
    no_doubts: bool = False,
) -> list[Reason]:
    """Compare the ends of stores with the current topics; returns notes on doubts."""
    ends = [(store, end) for store in stores if not store.placed_empty for end in store.snapshot.changelogs]
    try:
        topics = cluster.describe_topics({end.topic for _, end in ends})
    except NotFound as error:
        raise _missing_topics(error) from error
    present = {end.topic_partition for _, end in ends if end.partition < topics[end.topic].partitions}
    try:
        logs = cluster.log_offsets(present)
        known = [base_end(end, None, None) for _, end in ends if end.topic_partition in present]
        seen = _Topics(topics, logs, epoch_ends_of(known, cluster.epoch_ends), cluster.time_ms(), retention_by_task)
    except NotFound as error:
        raise _missing_topics(error) from error
    wrong, doubts = [], []
    for store, end in ends:
        verdict = _compare(store, end, seen)
        is_recorded = store.snapshot.delete_retention_ms is not None and is_known_topic_id(end.topic_id)
        if no_doubts and verdict.doubt and not is_recorded:
            verdict = verdict.hardened()
        wrong += [_placed(store, end, verdict.wrong)] if verdict.wrong is not None else []
        doubts += [_placed(store, end, verdict.doubt)] if verdict.doubt is not None else []
    if wrong:
        more = [f"... and {len(wrong) - _SHOWN} more"] if len(wrong) > _SHOWN else []
        raise Invalid(
            "The snapshot does not fit the topics:\n  " + "\n  ".join([*wrong[:_SHOWN], *more]) + "\n",
            code="snapshot-topics-mismatch",
            action="Rebuild the stores from their changelogs (statecore restore), or let Kafka Streams do it.",
            problems=[one.to_json() for one in wrong],
        )
    if len(doubts) > _SHOWN:
        more_of_it = Reason(f"... and {len(doubts) - _SHOWN} more of the same kind", "more", count=len(doubts) - _SHOWN)
        doubts = [*doubts[:_SHOWN], more_of_it]
    return doubts


def _placed(store: StoreToFetch, end: StoredEnd, why: Reason) -> Reason:
    """A reason with the store and the partition it is about."""
    return Reason(
        f"store {store.snapshot.store} of task {store.task}: {why}",
        why.code,
        **{
            **why.context,
            "task": store.task,
            "store": store.snapshot.store,
            "topic": end.topic,
            "partition": end.partition,
        },
    )


def _missing_topics(error: NotFound) -> Invalid:
    return Invalid(
        f"The snapshot has stores of topics that do not exist: {error.what}",
        code="changelog-topic-missing",
        action="Check that these are the right brokers and the right application; stores of deleted topics are useless "
        "to it.",
        **error.context,
    )


def _compare(store: StoreToFetch, end: StoredEnd, seen: _Topics) -> _Verdict:
    log, topic = seen.logs.get(end.topic_partition), seen.topics[end.topic]
    if log is None:
        return _Verdict(Reason(f"{end.topic_partition} no longer exists", "partition-not-found"))
    if end.offset < 0 and is_same_topic(end.topic_id, topic.topic_id):
        return _Verdict()
    epoch_end = seen.epoch_ends.get((end.topic_partition, end.leader_epoch))
    if (why := refusal(base_end(end, None, None), topic, log, epoch_end)) is not None:
        return _Verdict(why)
    newer_retention_ms = seen.retention_by_task.get(store.task, ENDLESS_MS)
    return _compare_ages(store, end, log, recorded_retention_ms(topic), newer_retention_ms, seen.now_ms)


def _compare_ages(
    store: StoreToFetch,
    end: StoredEnd,
    log: LogOffsets,
    topic_retention_ms: int,
    newer_retention_ms: int,
    now_ms: int | None,
) -> _Verdict:
    """Whether deletes after an end may be lost, by the topic's retention and that recorded by newer snapshots."""
    name = str(end.topic_partition)
    unnamed = (
        None
        if is_known_topic_id(end.topic_id)
        else Reason(f"{name} has no topic id in the snapshot, so a recreated topic is not detected", "topic-id-unknown")
    )
    recorded, read_at_ms = store.snapshot.delete_retention_ms, store.snapshot.read_at_ms
    retention_ms = min(topic_retention_ms, newer_retention_ms, ENDLESS_MS if recorded is None else recorded)
    # Compaction stops at the last stable offset, so beyond it no delete is lost.
    if log.last_stable <= end.end or recorded == retention_ms == ENDLESS_MS:
        return _Verdict(doubt=unnamed)
    grown, retention = f"{name} has grown by {log.log_end - end.end} since", retention_ms / 1000
    values = {"grown": log.log_end - end.end}
    if retention_ms == ENDLESS_MS:
        return _Verdict(
            doubt=Reason(
                f"{grown}, and whether it was compacted when the snapshot was made is unknown",
                "cleanup-policy-unknown",
                **values,
            )
        )
    gone = f"{grown}, and deletes may have been compacted away after {retention:.0f} s (delete.retention.ms)"
    age = age_of(read_at_ms, retention_ms, now_ms, gone, **values, retention_ms=retention_ms)
    if isinstance(age, Reason):
        is_far = abs(age.context.get("age_ms", 0)) > retention_ms
        return _Verdict(wrong=age) if is_far else _Verdict(doubt=age)
    age_ms = abs(age.age_ms)  # a clock that was ahead makes the age unknown as well
    source = (
        "delete.retention.ms, as snapshots recorded it" if retention_ms < topic_retention_ms else "delete.retention.ms"
    )
    if age_ms > retention_ms:
        return _Verdict(
            Reason(
                f"{name} has grown since, and the store is {age_ms / 1000:.0f} s old; deletes among the new records "
                f"may have been compacted away after {retention:.0f} s ({source})",
                "deletes-compacted",
                **values,
                age_ms=age_ms,
                retention_ms=retention_ms,
                is_recorded=retention_ms < topic_retention_ms,
            )
        )
    if recorded is None:
        return _Verdict(
            doubt=Reason(
                f"{grown}, and the snapshot does not record how long deletes were retained "
                "when it was made, or not by the cluster's clock; it may keep keys that were deleted since",
                "retention-unknown",
                **values,
            )
        )
    if age_ms > retention_ms / 2 or not age.keeps_deletes:
        return _Verdict(
            doubt=Reason(
                f"{name} has grown since, and the store is {age_ms / 1000:.0f} s old; the application has to read the "
                f"new records before {retention:.0f} s (delete.retention.ms) are over",
                "retention-nearly-over",
                **values,
                age_ms=age_ms,
                retention_ms=retention_ms,
            )
        )
    return _Verdict(doubt=unnamed)
