"""Decides whether a store can be caught up from its changelog, or its rows may be stale. Pure functions.

Known are the store's offset and where the log begins and ends::

      log start                  committed + 1              log end
          |------------------------------|---------------------|      caught up from committed + 1
                 committed + 1
    ...........|        |--------------------------------------|      deleted records were lost: rows may be stale
                                                               |.....|      offset past the end: another topic

Unknown is whether a topic was recreated and has grown past the offset since (unless the caller gives the id that it
had), whether an unclean leader election lost records and replaced them, and whether deletes were compacted away between
the offset and the end, when the store was down for longer than ``delete.retention.ms``.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from statecore.changelog.cluster import Cluster
from statecore.changelog.model import LogOffsets
from statecore.errors import Invalid, Reason, Retryable
from statecore.formats.topic_partition import TopicPartition, is_same_topic

_POLL_INTERVAL = 0.1


def why_stale(partition: TopicPartition, committed: int | None, log: LogOffsets, *, has_rows: bool) -> Reason | None:
    """Why the rows of a store cannot be caught up, as a sentence, or ``None`` when they can."""
    if committed is None:
        if not has_rows:
            return None
        return Reason(
            f"The store has rows and no offset of {partition}, so it is unknown which records they are of.",
            "offset-missing",
        )
    if committed + 1 > log.log_end:
        return Reason(
            f"The store is at offset {committed} of {partition}, whose log ends at {log.log_end}: the topic was "
            "recreated, or truncated.",
            "log-ends-before-store",
            offset=committed,
            log_end=log.log_end,
        )
    if committed + 1 < log.log_start:
        return Reason(
            f"The store is at offset {committed} of {partition}, whose log begins at {log.log_start} now: the "
            "records between were deleted before the store read them.",
            "records-deleted",
            offset=committed,
            log_start=log.log_start,
        )
    return None


def refuse_stale(partition: TopicPartition, why: Reason) -> Invalid:
    """The error for a store that must be wiped before it can be restored."""
    return Invalid(
        f"{why} Nothing was changed.",
        code="store-stale",
        action="Check that this is the right cluster and topic; then restore with on_stale=OnStale.WIPE, which deletes "
        "the store's rows first, or rebuild the store with statecore restore.",
        topic=partition.topic,
        partition=partition.partition,
        reason=why.code,
        **why.context,
    )


def topic_id_of(cluster: Cluster, partition: TopicPartition) -> str | None:
    """The topic's id as 32 hex digits; ``None`` where the broker is too old to have one."""
    found = cluster.leader(partition, refresh=True).topic_id
    return found.hex if found.int else None


def check_topic_id(partition: TopicPartition, expected: str | None, found: str | None) -> None:
    """Refuse a topic that was deleted and recreated, with ``Invalid``."""
    if not is_same_topic(expected or "", found or ""):
        raise Invalid(
            f"Topic {partition.topic} was recreated: its id is {found} and was {expected}.",
            code="topic-recreated",
            action="Check that this is the right cluster and topic; then wipe the store and restore it without the id.",
            topic=partition.topic,
            partition=partition.partition,
            expected=expected,
            found=found,
        )


def settled_offsets(
    cluster: Cluster,
    partition: TopicPartition,
    wait: float,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> LogOffsets:
    """Log start, and the first log end once no transaction below it is open: what a predecessor just commits counts."""
    deadline = clock() + wait
    seen = cluster.log_offsets([partition])[partition]
    end = seen.log_end
    while seen.last_stable < end:
        if clock() >= deadline:
            raise Retryable(
                f"A transaction that began at offset {seen.last_stable} of {partition} is still open below the log's "
                f"end {end}, after {wait:g} s.",
                code="log-transaction-open",
                action="Call the producer's init_transactions() first, which ends a predecessor's transaction, or "
                "wait until the transaction has timed out.",
                topic=partition.topic,
                partition=partition.partition,
                offset=seen.last_stable,
            )
        sleep(_POLL_INTERVAL)
        seen = cluster.log_offsets([partition])[partition]
    return LogOffsets(seen.log_start, end, end)
