"""Chooses the base of each store: the first sound candidate, unless reading its whole changelog is less work."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from statecore.changelog.model import LogOffsets, TopicDescription
from statecore.changelog.soundness import BaseEnd, refusal
from statecore.errors import Reason
from statecore.formats.topic_partition import TopicPartition
from statecore.jobs.bases.base import Base, BaseCandidates, Key, Refused


class ChosenBases(NamedTuple):
    """The bases of a plan.

    Attributes:
        refused: in the order they were checked.
        costlier: sound bases that would take more work than reading the whole changelog.
    """

    bases: dict[Key, Base]
    refused: tuple[Refused, ...]
    costlier: tuple[Refused, ...] = ()


Cost = Callable[[Base | None, Mapping[TopicPartition, LogOffsets]], float]
"""Cost of continuing from a base, or from nothing.

The second argument is the store's changelog, with the end of the read as ``log_end``.
"""

NO_BASES = ChosenBases({}, ())
"""Every log is read whole."""


def choose(
    stores: Mapping[Key, frozenset[TopicPartition]],
    candidates: BaseCandidates,
    topics: Mapping[str, TopicDescription],
    logs: Mapping[TopicPartition, LogOffsets],
    ends: Mapping[TopicPartition, int],
    epoch_ends: Callable[[Mapping[TopicPartition, int]], Mapping[TopicPartition, int | None]],
    cost: Cost | None = None,
) -> ChosenBases:
    """Choose for each store the first sound base; with ``cost`` none, if reading the whole changelog is less work."""
    bases: dict[Key, Base] = {}
    refused: list[Refused] = []
    costlier: list[Refused] = []
    pending = {key: candidates.of(key) for key in stores}
    while pending:
        found_bases: dict[Key, Base] = {}
        for key, left in list(pending.items()):
            found = next(left, None)
            if found is None:
                del pending[key]
            elif isinstance(found, Refused):
                refused.append(found)
            else:
                found_bases[key] = found
        epoch_ends_now = epoch_ends_of((end for base in found_bases.values() for end in base.ends.values()), epoch_ends)
        for key, base in found_bases.items():
            why = _why_refused(base, stores[key], topics, logs, ends, epoch_ends_now)
            if why is not None:
                refused.append(Refused(*key, base.name, why))
                continue
            its_logs = {part: replace(logs[part], log_end=ends[part]) for part in stores[key]}
            if cost is None or cost(base, its_logs) <= cost(None, its_logs):
                bases[key] = base
            else:
                costlier.append(
                    Refused(*key, base.name, Reason("reading the whole changelog is less work", "not-cheapest"))
                )
            del pending[key]
    return ChosenBases(bases, tuple(refused), tuple(costlier))


def epoch_ends_of(
    ends: Iterable[BaseEnd], epoch_ends: Callable[[Mapping[TopicPartition, int]], Mapping[TopicPartition, int | None]]
) -> dict[tuple[TopicPartition, int], int | None]:
    """Where leader epochs end in the logs, by partition and epoch, as far as brokers know."""
    epoch_ends_now: dict[tuple[TopicPartition, int], int | None] = {}
    left = {(end.topic_partition, end.leader_epoch) for end in ends if end.leader_epoch >= 0}
    while left:  # a request has one epoch per partition, but stores that share a changelog may have several
        now = dict(left)
        epoch_ends_now |= {(part, now[part]): end for part, end in epoch_ends(now).items()}
        left -= now.items()
    return epoch_ends_now


def _why_refused(
    base: Base,
    partitions: frozenset[TopicPartition],
    topics: Mapping[str, TopicDescription],
    logs: Mapping[TopicPartition, LogOffsets],
    ends: Mapping[TopicPartition, int],
    epoch_ends: Mapping[tuple[TopicPartition, int], int | None],
) -> Reason | None:
    if base.ends.keys() != partitions:
        there, now = (", ".join(map(str, sorted(some))) or "no partition" for some in (base.ends, partitions))
        return Reason(
            f"it has offsets of {there}, but the store has offsets of {now}",
            "partitions-differ",
            found=sorted(map(str, base.ends)),
            expected=sorted(map(str, partitions)),
        )
    for part, end in sorted(base.ends.items()):
        found = refusal(end, topics[part.topic], logs[part], epoch_ends.get((part, end.leader_epoch)))
        if found is not None:
            return found
        if end.end > ends[part]:
            return Reason(
                f"it ends at {end.end} in {part}, but the read ends at {ends[part]} now: an open transaction, or the "
                "group's committed offset, is before the end of the earlier read",
                "end-beyond-read",
                topic=part.topic,
                partition=part.partition,
                end=end.end,
                read_end=ends[part],
            )
    return None
