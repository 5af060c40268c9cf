"""Whether the tail of a changelog may be appended to a base: a store of a snapshot, or of a local state directory.

A base holds what the changelog said up to its end, where its tail begins. Base and tail together equal a rebuild only
if they come from the same log and no record of the tail is missing that would have removed a row of the base.

**The same log.** A topic that was deleted and created again has another id. A log that was truncated below the base's
end and has grown since has other records there: the leader epoch of the base's end ends before it
(``OffsetForLeaderEpoch``).

**Nothing is missing.** Retention and DeleteRecords move the log start; beyond the base's end they remove records of the
tail. Compaction removes records that later ones replace, which is harmless, and deletes (tombstones), which is not: the
deleted row would stay. It keeps a delete for at least ``delete.retention.ms`` after it was written. So one of two
things is shown of the tail of a compacted topic:

- **It was read in time.** When the base's end was read nothing came after it, so every delete of the tail is younger
  than that, and the read ended before ``delete.retention.ms`` had passed.
- **It is whole.** Every offset of it was in a record batch that was read, so compaction has removed nothing of it.

The first needs the base's age. Both times come from the cluster (:meth:`Cluster.time_ms`), never from the machines that
read, whose clocks may differ. Each broker compacts by its own clock, and the controller that reports the time may
change; ``CLOCK_MARGIN_MS`` is allowed for the difference. Where the difference is larger (a read that ended before the
base's end was read), or the cluster reports no time, age proves nothing, and the tail must be whole.

The retention of deletes is the smaller of the one recorded with the base's end and the topic's current one. Where none
was recorded, age proves nothing either. A shorter one that was in force only in between cannot be detected.

These are pure functions; the callers query the brokers. `refusal` is called before the tail is read; `start_moved`,
`missed_deletes` and `truncation` (of the ends of the read) after it: a log may be truncated between the two. Deletes
that may be missing are told apart from the rest, because reading the whole log still finds them.
:mod:`statecore.jobs.pipeline.tail_check` combines the three for a whole plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from statecore.changelog.delete_retention import (
    CLOCK_MARGIN_MS,
    ENDLESS_MS,
    recorded_retention_ms,
)
from statecore.changelog.model import LogOffsets, ReadStatistics, TopicDescription
from statecore.errors import Reason
from statecore.formats.integers import min_known
from statecore.formats.topic_partition import TopicPartition, is_same_topic
from statecore.spec.units import format_duration

NO_TIME = "the cluster does not report its time (KRaft does, from Kafka 3.3 on, to users with Describe on the cluster)"
"""Reason for an unknown age."""


@dataclass(frozen=True)
class BaseEnd:
    """How far a base has read one changelog partition."""

    topic_partition: TopicPartition
    topic_id: str  # the topic's id, 32 hex digits; empty where unknown
    end: int  # the first offset that the base does not contain
    leader_epoch: int  # epoch of the leader that the end was read from; -1 where unknown
    read_at_ms: int | None  # a time at which nothing came after the end, in ms since the epoch; None where unknown
    # minimum retention of deletes at that time; ENDLESS_MS where the topic was not compacted, None where unknown. Known
    # only where read_at_ms is by the cluster's clock.
    delete_retention_ms: int | None = None


def refusal(end: BaseEnd, topic: TopicDescription, log: LogOffsets, epoch_end: int | None) -> Reason | None:
    """Why no tail can be appended to a base now, or ``None``; called before the tail is read."""
    name = str(end.topic_partition)
    if not is_same_topic(end.topic_id, topic.topic_id):
        return Reason(
            f"{name} was deleted and created again: its topic's id was {end.topic_id} and is {topic.topic_id} now",
            "topic-recreated",
            **_of(end),
            expected=end.topic_id,
            found=topic.topic_id,
        )
    if log.log_start > end.end:
        return Reason(
            f"{name} begins at {log.log_start} now, after the base's end {end.end}: the records between are deleted",
            "records-deleted",
            **_of(end),
            log_start=log.log_start,
            end=end.end,
        )
    if end.end > log.log_end:
        return Reason(
            f"{name} ends at {log.log_end} now, before the base's end {end.end}: the log was truncated, or this is "
            "another cluster",
            "log-ends-before-base",
            **_of(end),
            log_end=log.log_end,
            end=end.end,
        )
    if end.leader_epoch > log.leader_epoch >= 0:
        return Reason(
            f"{name} is in leader epoch {log.leader_epoch}, before that of the base's end {end.end}, which is "
            f"{end.leader_epoch}: the cluster was restored to an older state, or this is another one",
            "leader-epoch-decreased",
            **_of(end),
            expected=end.leader_epoch,
            found=log.leader_epoch,
            end=end.end,
        )
    return truncation(end, epoch_end)


def truncation(end: BaseEnd, epoch_end: int | None, *, name: str = "the base's end") -> Reason | None:
    """Why an end is no longer part of the log it was read from, or ``None`` where nothing shows that.

    For the ends of a plan, after everything up to them was read, it detects a truncation between the plan and the read:
    the tail is then of another log than the base, although each by itself is whole.
    """
    if epoch_end is None or epoch_end >= end.end:
        return None
    return Reason(
        f"{end.topic_partition} was truncated at {epoch_end}, below {name} {end.end}, and has other records since: "
        f"leader epoch {end.leader_epoch}, which {name} was read under, ends there",
        "log-truncated",
        **_of(end),
        truncated_at=epoch_end,
        end=end.end,
        leader_epoch=end.leader_epoch,
    )


def start_moved(end: BaseEnd, statistics: Sequence[ReadStatistics], *, name: str = "the base's end") -> Reason | None:
    """Why what was read from an end on is incomplete because the log start moved meanwhile, or ``None``."""
    moved = [one.log_start_moved_to for one in statistics if one.log_start_moved_to is not None]
    if not moved:
        return None
    return Reason(
        f"{end.topic_partition} began at {max(moved)}, after {name} {end.end}, before the rest of it had been read: "
        "retention or DeleteRecords removed the records between",
        "records-deleted",
        **_of(end),
        log_start=max(moved),
        end=end.end,
    )


class EndAge(NamedTuple):
    """How long ago nothing followed an end, and how long deletes were kept since, in ms."""

    age_ms: int
    retention_ms: int

    @property
    def keeps_deletes(self) -> bool:
        """Whether no delete after the end can have been compacted away, by clocks that may differ."""
        return self.age_ms + CLOCK_MARGIN_MS < self.retention_ms


def age_of(
    read_at_ms: int | None, retention_ms: int | None, now_ms: int | None, what: str, /, **values: Any
) -> EndAge | Reason:
    """The age of an end; or why it proves nothing of the deletes after it.

    Args:
        read_at_ms: a time at which nothing followed the end; ``None`` where unknown.
        retention_ms: how long deletes were kept since; ``None`` where unknown.
        now_ms: the present time, by the same clock; ``None`` where the cluster reports none.
        what: the records that follow now, and what may be missing; the reason begins with it.
        values: of the reason.
    """
    if read_at_ms is None:
        return Reason(f"{what}: it is not known since when records follow this end", "base-age-unknown", **values)
    if retention_ms is None:
        why = "it is not known, or not by the cluster's clock, how long deletes were kept when none followed"
        return Reason(f"{what}: {why}", "retention-unknown", **values)
    if now_ms is None:
        return Reason(f"{what}: {NO_TIME}", "cluster-time-unknown", **values)
    age_ms = now_ms - read_at_ms
    if age_ms < -CLOCK_MARGIN_MS:
        why = f"by the clocks none followed {-age_ms / 1000:,.0f} s in the future, so they are wrong"
        return Reason(f"{what}: {why}", "clocks-disagree", **values, age_ms=age_ms)
    return EndAge(age_ms, retention_ms)


def missed_deletes(
    end: BaseEnd, topic: TopicDescription, statistics: Sequence[ReadStatistics], finished_ms: int | None
) -> Reason | None:
    """Why deletes may be missing in a tail, or ``None`` where none can be."""
    name = str(end.topic_partition)
    removed = sum(one.removed for one in statistics)
    recorded_ms = min_known((end.delete_retention_ms, recorded_retention_ms(topic)))
    if recorded_ms == ENDLESS_MS or not removed:
        return None
    gone = f"compaction has removed {removed:,} offsets of {name} from {end.end} on, which may have been deletes"
    values: dict[str, Any] = {**_of(end), "removed": removed, "end": end.end}
    age = age_of(end.read_at_ms, recorded_ms, finished_ms, gone, **values)
    if isinstance(age, Reason):
        return age
    if age.keeps_deletes:
        return None
    age_ms, retention_ms = age
    margin, retention = f"{CLOCK_MARGIN_MS / 60_000:.0f} min", format_duration(retention_ms)
    what = f"{gone}: the tail had been read {age_ms / 1000:,.0f} s after the base's end"
    values |= {"age_ms": age_ms, "retention_ms": retention_ms}
    now = recorded_retention_ms(topic)
    if retention_ms < now:
        today = "not compacted" if now == ENDLESS_MS else format_duration(now)
        return Reason(
            f"{what}, and delete.retention.ms ({retention}) was in force then or since, as snapshots recorded it; the "
            f"topic's current value ({today}) does not restore deletes",
            "retention-was-shorter",
            **values,
            retention_ms_now=None if now == ENDLESS_MS else now,
        )
    if retention_ms <= CLOCK_MARGIN_MS:
        return Reason(
            f"{what}, and no tail is read in time where delete.retention.ms ({retention}) is {margin} or less, because "
            f"clocks may differ by that: set it to more than {margin} and the interval between two checkpoints",
            "retention-too-short",
            **values,
        )
    return Reason(
        f"{what}, and it must be read within delete.retention.ms ({retention}) less {margin} for clocks that differ: "
        "make checkpoints more often, or set delete.retention.ms higher",
        "tail-read-too-late",
        **values,
    )


def _of(end: BaseEnd) -> dict[str, Any]:
    """The partition of an end, as values of a reason."""
    return {"topic": end.topic_partition.topic, "partition": end.topic_partition.partition}
