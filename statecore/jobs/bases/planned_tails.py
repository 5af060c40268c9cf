"""Plans that append tails to bases, and whether the frozen plan of an earlier attempt is still valid."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from statecore.changelog.cluster import Cluster
from statecore.changelog.model import TopicDescription
from statecore.jobs.bases.base import Base, Key, Refused
from statecore.jobs.bases.tail_check import Unsound, found_unsound
from statecore.jobs.pipeline.range_tasks import RangeResult
from statecore.jobs.planning.frozen_plan import FrozenPlan
from statecore.jobs.planning.plan import RestorePlan
from statecore.jobs.planning.planner import why_stale

RESUMED_NOTE = "The plan of an earlier attempt of this request was resumed."


@dataclass(frozen=True, kw_only=True)
class PlannedTails:
    """A plan with its bases.

    Attributes:
        frozen: the offsets.
        bases: base of each store that has one.
        refused: bases that are not used, and why.
        is_resumed: whether an earlier attempt had frozen it.
    """

    frozen: FrozenPlan
    bases: Mapping[Key, Base]
    refused: tuple[Refused, ...]
    topics: Mapping[str, TopicDescription]
    notes: tuple[str, ...]
    is_resumed: bool = False

    @property
    def plan(self) -> RestorePlan:
        return self.frozen.plan

    @property
    def not_newest(self) -> frozenset[Key]:
        """Stores for which the newest snapshot was refused, so that its ends are not valid."""
        return frozenset(one.key for one in self.refused if one.base == self.frozen.newest_snapshot)

    def unsound(self, runs: Mapping[Key, Sequence[RangeResult]], cluster: Cluster) -> Unsound:
        """The bases that turn out unsound now that their tails have been read."""
        return found_unsound(self.plan, self.bases, runs, self.topics, cluster)


class NamedBases(Protocol):
    """Finds the bases that a frozen plan names."""

    def named(self, key: Key, name: str) -> Base | None:
        """The base of a store; ``None`` if it is not available any more."""


def topics_of(cluster: Cluster, plan: RestorePlan) -> dict[str, TopicDescription]:
    """The changelogs of a plan as they are now. Raises as :meth:`Cluster.describe_topics`."""
    return cluster.describe_topics(sorted({part.topic for part in plan.partitions}))


def valid_bases(
    cluster: Cluster, frozen: FrozenPlan, topics: Mapping[str, TopicDescription], candidates: NamedBases
) -> dict[Key, Base] | str:
    """The bases of a frozen plan; or why it must be recreated."""
    plan = frozen.plan
    offsets = cluster.log_offsets({part.topic_partition for part in plan.partitions})
    if (stale := why_stale(frozen, topics, offsets, cluster.time_ms())) is not None:
        return stale
    bases: dict[Key, Base] = {}
    for key, parts in plan.stores.items():
        name = parts[0].base
        if not name:
            continue
        base = candidates.named(key, name)
        ends = {} if base is None else {part: end.end for part, end in base.ends.items()}
        if base is None or any(ends.get(part.topic_partition) != part.start for part in parts):
            return f"{name}, the base of store {key[1]} of task {key[0]}, has changed"
        bases[key] = base
    return bases
