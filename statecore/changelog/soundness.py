"""Whether the tail of a changelog may be put above a parent: a store of a snapshot, or of a local state directory.

A parent holds what the changelog said up to its end. Its tail begins there, and both together are what a rebuild would
read only if they are of the same log and nothing of the tail is missing that would have removed a row of the parent.

**The same log.** A topic that was deleted and created again has another id. A log that was truncated below the parent's
end and has grown since has other records there: the epoch that the parent's end was told under ends before it
(``OffsetForLeaderEpoch``).

**Nothing is missing.** Retention and DeleteRecords move the log's start; past the parent's end they take of the tail.
Compaction takes records that later ones replace, which harms nobody, and deletes (tombstones), which does: the row that
one deleted would live on. It keeps a delete for ``delete.retention.ms`` at least after it was written. So one of two
things is shown of the tail of a compacted topic:

- **It was read in time.** When the parent's end was read nothing lay behind it, so every delete of the tail is younger
  than that, and the read was over before ``delete.retention.ms`` had passed.
- **It is whole.** Every offset of it lay in a record batch that was read, so compaction has removed nothing of it.

The first needs the parent's age. Both moments are told by the cluster (:meth:`Cluster.time_ms`) and never by the
machines that read, whose clocks nobody has compared. Each broker compacts by a clock of its own, and the controller
that tells the time may be another one later; ``CLOCK_MARGIN_MS`` is kept for what these clocks differ by. Where more
than that shows (a read that was over before the parent's end was read), or the cluster tells no time, age proves
nothing, and the tail must be whole.

How long deletes are kept is the least of what was in force when the parent's end was read, which the parent records,
and of what the topic says now. Where nobody recorded it, age proves nothing either. What was in force in between, and
at neither moment, nobody can tell.

These are pure functions: who calls them asks the brokers. `refusal` is asked before the tail is read; `start_moved`,
`missed_deletes` and `truncation` (of the ends up to which was read) after it: a log may be truncated between the two.
Deletes that may be missing are told apart from the rest, because the whole log still tells of them.
What the three come to for a whole plan is said by :mod:`statecore.jobs.bases.tail_check`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from statecore.changelog.horizon import CLOCK_MARGIN_MS, ENDLESS_MS, horizon_seen, least_horizon_ms
from statecore.changelog.model import LogOffsets, ReadStatistics, TopicDescription
from statecore.errors import Reason
from statecore.formats.topic_partition import TopicPartition
from statecore.spec.duration import format_duration

NO_TIME = "the cluster does not tell its time (KRaft does, from Kafka 3.3 on, to users with Describe on the cluster)"
"""Why no age is known."""


@dataclass(frozen=True)
class BaseEnd:
    """How far a parent has come in one changelog partition.

    Attributes:
        topic_partition: the partition.
        topic_id: the topic's id, 32 hex digits; empty where it is not known.
        end: the first offset that it has not.
        leader_epoch: the epoch of the leader that the end was read from; -1 where it is not known.
        read_at_ms: a moment at which nothing lay behind the end, in ms since the epoch; ``None`` where none is known.
        horizon_ms: how long deletes were kept then at least; :data:`statecore.changelog.horizon.ENDLESS_MS` where the
            topic was not compacted, ``None`` where nobody knows it. It is known only where ``read_at_ms`` is by the
            cluster's clock.
    """

    topic_partition: TopicPartition
    topic_id: str
    end: int
    leader_epoch: int
    read_at_ms: int | None
    horizon_ms: int | None = None


def refusal(end: BaseEnd, topic: TopicDescription, log: LogOffsets, epoch_end: int | None) -> Reason | None:
    """Why nothing that is read now could be put above a parent, or ``None`` while something could.

    Args:
        end: of the parent.
        topic: its topic as it is now.
        log: its partition as it is now.
        epoch_end: where its leader epoch ends in the log now; ``None`` where the brokers do not tell it.
    """
    name = str(end.topic_partition)
    known = [topic_id for topic_id in (end.topic_id, topic.topic_id) if topic_id.strip("0")]
    if len(set(known)) > 1:
        return Reason(
            f"{name} was deleted and created again: its topic's id was {end.topic_id} and is {topic.topic_id} now",
            "topic-recreated",
            **_of(end),
            expected=end.topic_id,
            found=topic.topic_id,
        )
    if log.log_start > end.end:
        return Reason(
            f"{name} begins at {log.log_start} now, after the parent's end {end.end}: what lay between is gone",
            "records-deleted",
            **_of(end),
            log_start=log.log_start,
            end=end.end,
        )
    if end.end > log.log_end:
        return Reason(
            f"{name} ends at {log.log_end} now, before the parent's end {end.end}: the log was truncated, or this is "
            "another cluster",
            "log-ends-before-parent",
            **_of(end),
            log_end=log.log_end,
            end=end.end,
        )
    if end.leader_epoch > log.leader_epoch >= 0:
        return Reason(
            f"{name} is in leader epoch {log.leader_epoch}, before that of the parent's end {end.end}, which is "
            f"{end.leader_epoch}: the cluster was set back to an older state, or this is another one",
            "leader-epoch-decreased",
            **_of(end),
            expected=end.leader_epoch,
            found=log.leader_epoch,
            end=end.end,
        )
    return truncation(end, epoch_end)


def truncation(end: BaseEnd, epoch_end: int | None, *, called: str = "the parent's end") -> Reason | None:
    """Why an end is not one of the log any more that it was read from, or ``None`` where nothing says so.

    Asked of the ends of a plan, after everything up to them was read, it tells whether a log was truncated between the
    plan and the read: what was read is then of another log than the parent, although each by itself is whole.

    Args:
        end: of a parent, or of a plan.
        epoch_end: where its leader epoch ends in the log now; ``None`` where the brokers do not tell it.
        called: what the end is.
    """
    if epoch_end is None or epoch_end >= end.end:
        return None
    return Reason(
        f"{end.topic_partition} was truncated at {epoch_end}, below {called} {end.end}, and has other records since: "
        f"leader epoch {end.leader_epoch}, which {called} was read under, ends there",
        "log-truncated",
        **_of(end),
        truncated_at=epoch_end,
        end=end.end,
        leader_epoch=end.leader_epoch,
    )


def start_moved(end: BaseEnd, statistics: Sequence[ReadStatistics]) -> Reason | None:
    """Why a log of which some was removed while it was read tells nothing, or ``None`` where it stayed.

    Args:
        end: of the parent.
        statistics: of all ranges, each read to its end.
    """
    moved = [one.log_start_moved_to for one in statistics if one.log_start_moved_to is not None]
    if not moved:
        return None
    return Reason(
        f"{end.topic_partition} began at {max(moved)}, after the parent's end {end.end}, before all that lies behind "
        "it had been read: retention or DeleteRecords removed what lay between",
        "records-deleted",
        **_of(end),
        log_start=max(moved),
        end=end.end,
    )


def missed_deletes(
    end: BaseEnd, topic: TopicDescription, statistics: Sequence[ReadStatistics], finished_ms: int | None
) -> Reason | None:
    """Why deletes may be missing in a tail, or ``None`` where none can be.

    Args:
        end: of the parent.
        topic: its topic as it is, or was before the tail was read, whichever kept deletes for a shorter time.
        statistics: of all ranges of the tail, each read to its end; none where the tail is empty.
        finished_ms: when the last of them had been read, in ms since the epoch; ``None`` where the cluster did not tell
            the time.
    """
    name = str(end.topic_partition)
    removed = sum(one.removed for one in statistics)
    horizon = least_horizon_ms((end.horizon_ms, horizon_seen(topic)))
    if horizon == ENDLESS_MS or not removed:
        return None
    gone = f"compaction has removed {removed:,} offsets of {name} from {end.end} on, which may have been deletes"
    values: dict[str, Any] = {**_of(end), "removed": removed, "end": end.end}
    if end.read_at_ms is None:
        return Reason(
            f"{gone}: nobody knows since when something has lain behind the parent's end",
            "parent-age-unknown",
            **values,
        )
    if horizon is None:
        return Reason(
            f"{gone}: nobody knows for how long deletes were kept when the parent's end was read",
            "retention-unknown",
            **values,
        )
    if finished_ms is None:
        return Reason(f"{gone}: {NO_TIME}", "cluster-time-unknown", **values)
    age = finished_ms - end.read_at_ms
    if age < -CLOCK_MARGIN_MS:
        return Reason(
            f"{gone}: by the clocks the parent's end was read {-age / 1000:,.0f} s after the tail, so they are wrong",
            "clocks-disagree",
            **values,
            age_ms=age,
        )
    if age + CLOCK_MARGIN_MS < horizon:
        return None
    margin, kept = f"{CLOCK_MARGIN_MS / 60_000:.0f} min", format_duration(horizon)
    what = f"{gone}: the tail had been read {age / 1000:,.0f} s after the parent's end"
    values |= {"age_ms": age, "retention_ms": horizon}
    now = horizon_seen(topic)
    if horizon < now:
        today = "not compacted" if now == ENDLESS_MS else format_duration(now)
        return Reason(
            f"{what}, and delete.retention.ms ({kept}) was in force then or since, as snapshots recorded it; what the "
            f"topic says now ({today}) brings no delete back",
            "retention-was-shorter",
            **values,
            retention_ms_now=None if now == ENDLESS_MS else now,
        )
    if horizon <= CLOCK_MARGIN_MS:
        return Reason(
            f"{what}, and no tail is read in time where delete.retention.ms ({kept}) is {margin} or less, because "
            f"clocks may differ by that: set it to more than {margin} and the interval between two checkpoints",
            "retention-too-short",
            **values,
        )
    return Reason(
        f"{what}, and it must be read within delete.retention.ms ({kept}) less {margin} for clocks that differ: make "
        "checkpoints more often, or set delete.retention.ms higher",
        "tail-read-too-late",
        **values,
    )


def _of(end: BaseEnd) -> dict[str, Any]:
    """The partition of an end, as values of a reason."""
    return {"topic": end.topic_partition.topic, "partition": end.topic_partition.partition}
