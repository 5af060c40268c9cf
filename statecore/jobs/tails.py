"""Whether the tails that were read may be put upon their parents: known when all of them have been read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from statecore.changelog.model import TopicDescription
from statecore.formats.topic_partition import TopicPartition
from statecore.jobs.parents import Key, Parent, Refused
from statecore.jobs.plan import RestorePlan
from statecore.jobs.range_tasks import RangeResult
from statecore.jobs.soundness import ParentEnd, refusal_of_tail, truncation


class Unsound(NamedTuple):
    """What was found out of parents when their tails had been read.

    Attributes:
        refused: those upon which nothing of what was read may be put.
        for_good: those of them that are not to be tried again. What was truncated behind a parent while its tail was
            read speaks against the plan alone: the next one tells which parents the log still has.
    """

    refused: tuple[Refused, ...]
    for_good: Mapping[tuple[Key, str], str]


def unsound(
    plan: RestorePlan,
    parents: Mapping[Key, Parent],
    runs: Mapping[Key, Sequence[RangeResult]],
    topics: Mapping[str, TopicDescription],
    epoch_ends: Callable[[Mapping[TopicPartition, int]], Mapping[TopicPartition, int | None]],
    finished_ms: int,
) -> Unsound:
    """The parents that turned out not to be sound, with the reason.

    Args:
        plan: what was read.
        parents: what it was to be put upon.
        runs: what came of it.
        topics: the changelogs.
        epoch_ends: asks where leader epochs end in the logs as they are now: one that was truncated below the plan's
            end since may have other records there.
        finished_ms: when the last of it had been read, in ms since the epoch.
    """
    stores = plan.stores
    planned = {
        part.topic_partition: part.leader_epoch for key in parents for part in stores[key] if part.leader_epoch >= 0
    }
    told = epoch_ends(planned) if planned else {}
    refused: list[Refused] = []
    for_good: dict[tuple[Key, str], str] = {}
    for key, parent in parents.items():
        for part in stores[key]:
            seen = [
                result.statistics
                for result in runs.get(key, ())
                if result.offset_range.topic_partition == part.topic_partition
            ]
            why = refusal_of_tail(parent.ends[part.topic_partition], topics[part.topic], seen, finished_ms)
            if why is not None:
                refused.append(Refused(*key, parent.name, why))
                for_good[key, parent.name] = why
                break
            end = ParentEnd(part.topic_partition, part.topic_id, part.end, part.leader_epoch, None)
            why = truncation(end, told.get(part.topic_partition), called="the plan's end")
            if why is not None:
                refused.append(Refused(*key, parent.name, why))
                break
    return Unsound(tuple(refused), for_good)
