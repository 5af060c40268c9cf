"""Whether the stores of a snapshot fit the live topics: could Kafka Streams go on from their offsets, and be right?

================================================  =====================================================================
what is compared                                  otherwise
================================================  =====================================================================
the topic is there, and the same (its id)         offsets of a topic that was made anew mean nothing
the log begins at or before the store's end       what lies between is gone, and under exactly-once the task is wiped
the log reaches as far as the store               the records that the store has were lost, and others took their place
the end is younger than ``delete.retention.ms``,  deletes that lie beyond the end may be compacted away, and the store
or the log has not grown since                    would keep the dead keys
================================================  =====================================================================
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from statecore.changelog.cluster import Cluster
from statecore.changelog.horizon import horizon_ms
from statecore.changelog.model import LogOffsets, TopicDescription
from statecore.errors import Invalid, NotFound
from statecore.jobs.store_to_fetch import StoreToFetch
from statecore.repository.manifest import ChangelogEnd

_SHOWN = 5


class _Verdict(NamedTuple):
    wrong: str = ""
    doubt: str = ""


def check_topics(
    cluster: Cluster,
    stores: Iterable[StoreToFetch],
    *,
    no_doubts: bool = False,
    clock: Callable[[], float] = time.time,
) -> list[str]:
    """Compare what stores end at with the topics as they are now.

    Args:
        cluster: where the topics are.
        stores: the stores.
        no_doubts: whether what nobody knows speaks against a store: a newer snapshot did not fit, and an older one
            whose age or topic is not known may fit even less.
        clock: seconds since the epoch.

    Returns:
        What the operator should know although nothing speaks against them.

    Raises:
        Invalid: a store does not fit; all reasons are named.
        Retryable: no broker could be reached.
    """
    ends = [(store, end) for store in stores if not store.left for end in store.snapshot.changelogs]
    try:
        topics = cluster.describe_topics({end.topic for _, end in ends})
    except NotFound as error:
        raise _gone(error) from error
    present = {end.topic_partition for _, end in ends if end.partition < topics[end.topic].partitions}
    try:
        offsets = cluster.log_offsets(present)
    except NotFound as error:
        raise _gone(error) from error
    wrong, doubts = [], []
    for store, end in ends:
        seen = offsets.get(end.topic_partition)
        verdict = _compare(store, end, topics[end.topic], seen, clock())
        if no_doubts and verdict.doubt and (store.snapshot.cut_ms is None or not end.topic_id):
            verdict = _Verdict(f"{verdict.doubt}; and a newer snapshot did not fit")
        where = f"store {store.snapshot.store} of task {store.task}: {end.topic_partition} "
        wrong += [where + verdict.wrong] if verdict.wrong else []
        doubts += [where + verdict.doubt] if verdict.doubt else []
    if wrong:
        more = [f"... and {len(wrong) - _SHOWN} more"] if len(wrong) > _SHOWN else []
        raise Invalid(
            "The snapshot does not fit the topics:\n  " + "\n  ".join([*wrong[:_SHOWN], *more]) + "\n",
            action="Rebuild the stores from their changelogs (statecore restore), or let Kafka Streams do it.",
            problems=wrong,
        )
    if len(doubts) > _SHOWN:
        doubts = [*doubts[:_SHOWN], f"... and {len(doubts) - _SHOWN} more of the same kind"]
    return doubts


def _gone(error: NotFound) -> Invalid:
    return Invalid(
        f"The snapshot has stores of topics that do not exist: {error.what}",
        action="Look whether these are the right brokers and the right application; stores of topics that are gone "
        "are of no use to it.",
        **error.context,
    )


def _compare(
    store: StoreToFetch, end: ChangelogEnd, topic: TopicDescription, seen: LogOffsets | None, now: float
) -> _Verdict:
    if seen is None:
        return _Verdict("is no partition any more")
    if end.topic_id and end.topic_id != topic.topic_id:
        return _Verdict("is of a topic that was created anew since the snapshot was made")
    if end.offset < 0:
        return _Verdict()
    if seen.log_start > end.end:
        return _Verdict(f"begins at {seen.log_start} now, after the store's end {end.end}")
    if seen.log_end < end.end:
        return _Verdict(f"ends at {seen.log_end} now, before the store's end {end.end}")
    unnamed = "" if end.topic_id else "has no topic id in the snapshot, so a topic that was made anew is not seen"
    horizon = horizon_ms(topic)
    if seen.log_end == end.end or horizon is None:
        return _Verdict(doubt=unnamed)
    retention = horizon / 1000
    if store.snapshot.cut_ms is None:
        return _Verdict(
            doubt=f"has grown by {seen.log_end - end.end} since, and nobody knows how old the store is; if it is older "
            f"than {retention:.0f} s (delete.retention.ms), it may keep keys that were deleted since"
        )
    age = abs(now - store.snapshot.cut_ms / 1000)  # a clock that was ahead tells no age either
    if age > retention:
        return _Verdict(
            f"has grown since, and the store is {age:.0f} s old; deletes in what it grew by may have been compacted "
            f"away after {retention:.0f} s (delete.retention.ms)"
        )
    if age > retention / 2:
        return _Verdict(
            doubt=f"has grown since, and the store is {age:.0f} s old; the application has to have read what it grew "
            f"by before {retention:.0f} s (delete.retention.ms) are over"
        )
    return _Verdict(doubt=unnamed)
