"""Check whether tails may be appended to their bases, once all of them have been read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from statecore.changelog.cluster import Cluster
from statecore.changelog.delete_retention import with_shorter_retention
from statecore.changelog.model import TopicDescription
from statecore.changelog.soundness import BaseEnd, missed_deletes, start_moved, truncation
from statecore.errors import Reason
from statecore.formats.integers import min_known
from statecore.formats.topic_partition import TopicPartition
from statecore.jobs.bases.base import Base, Key, Refused
from statecore.jobs.pipeline.ranges import RangeResult
from statecore.jobs.planning.plan import PartitionPlan, ReadPlan
from statecore.jobs.planning.planned_tails import PlannedTails

TailRuns = Mapping[Key, Sequence[RangeResult]]
"""What was read above the bases."""


class Unsound(NamedTuple):
    """Bases found unsound after their tails were read.

    Attributes:
        refused: bases to which nothing may be appended.
        permanent: those that must not be tried again, with the reason.
    """

    refused: tuple[Refused, ...]
    permanent: Mapping[tuple[Key, str], Reason]

    @staticmethod
    def of(refused: Iterable[Refused]) -> Unsound:
        found = tuple(refused)
        return Unsound(found, {(one.key, one.base): one.reason for one in found if not one.is_passing})


def unsound(
    plan: ReadPlan,
    bases: Mapping[Key, Base],
    runs: TailRuns,
    topics: Mapping[str, TopicDescription],
    epoch_ends: Callable[[Mapping[TopicPartition, int]], Mapping[TopicPartition, int | None]],
    finished_ms: int | None,
) -> Unsound:
    """The bases that turned out unsound, with the reason."""
    truncated = truncations(plan, bases, epoch_ends)
    refused: list[Refused] = []
    for key, base in bases.items():
        moved, missed = None, None
        for part in plan.stores[key]:
            seen = [
                result.statistics
                for result in runs.get(key, ())
                if result.offset_range.topic_partition == part.topic_partition
            ]
            end = base.ends[part.topic_partition]
            moved = moved or start_moved(end, seen)
            if base.segments and missed is None:  # without rows there is nothing to delete
                end = replace(end, delete_retention_ms=_delete_retention_of(end, part))
                missed = missed_deletes(end, topics[part.topic], seen, finished_ms)
        if moved is not None:
            refused.append(Refused(*key, base.name, moved))
        elif key in truncated:
            refused.append(Refused(*key, base.name, truncated[key], is_passing=True))
        elif missed is not None:
            refused.append(Refused(*key, base.name, missed, missed_deletes=True))
    return Unsound.of(refused)


def found_unsound(planned: PlannedTails, runs: TailRuns, cluster: Cluster) -> Unsound:
    """:func:`unsound`, with the current state of the brokers."""
    if not planned.bases:
        return Unsound.of(())
    finished_ms = cluster.time_ms()
    topics = with_shorter_retention(planned.topics, cluster.describe_topics(planned.topics))
    return unsound(planned.plan, planned.bases, runs, topics, cluster.epoch_ends, finished_ms)


def truncations(
    plan: ReadPlan,
    keys: Iterable[Key],
    epoch_ends: Callable[[Mapping[TopicPartition, int]], Mapping[TopicPartition, int | None]],
) -> dict[Key, Reason]:
    """The stores whose logs were truncated below the plan's ends since the plan was made, with the reason."""
    stores = plan.stores
    parts = [(key, part) for key in keys for part in stores[key]]
    planned = {part.topic_partition: part.leader_epoch for _, part in parts if part.leader_epoch >= 0}
    epoch_ends_now = epoch_ends(planned) if planned else {}
    found: dict[Key, Reason] = {}
    for key, part in parts:
        end = BaseEnd(part.topic_partition, part.topic_id, part.end, part.leader_epoch, None)
        why = truncation(end, epoch_ends_now.get(part.topic_partition), name="the plan's end")
        if why is not None:
            found.setdefault(key, why)
    return found


def _delete_retention_of(end: BaseEnd, part: PartitionPlan) -> int | None:
    """Shortest recorded delete retention beyond a base's end: when it was made, and when the plan was made."""
    seen = (
        (end.delete_retention_ms,)
        if part.delete_retention_ms is None
        else (end.delete_retention_ms, part.delete_retention_ms)
    )
    return min_known(seen)
