"""Decide which stores are compared with their whole changelogs, because their tails may lack deletes.

If compaction may have removed deletes from a tail, the whole log still shows them: a key that it does not have was
deleted, provided that nothing but compaction removes its records. A store for which that is not sure is rebuilt.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from statecore.changelog.delete_retention import is_purely_compacted
from statecore.changelog.model import TopicDescription
from statecore.jobs.bases.base import Base, Refused
from statecore.jobs.checkpoint.plan import CheckpointPlan
from statecore.jobs.planning.plan import PartitionPlan


def divided(planned: CheckpointPlan, found: Iterable[Refused]) -> tuple[list[Refused], list[Refused]]:
    """Divide refused bases into those that can be compared with the whole log, and the others, with the reason."""
    comparable, refused = [], []
    for one in found:
        parts, base = planned.frozen.plan.stores[one.key], planned.bases[one.key]
        why = None
        if one.missed_deletes:
            is_newest = one.base == planned.frozen.newest_snapshot
            why = _why_not_comparable(base, parts, planned.topics[parts[0].topic], is_newest=is_newest)
        if one.missed_deletes and why is None:
            comparable.append(one)
        else:
            refused.append(one if why is None else not_comparable(one, why))
    return comparable, refused


def _why_not_comparable(
    base: Base, parts: Sequence[PartitionPlan], topic: TopicDescription, *, is_newest: bool
) -> str | None:
    if not is_newest or base.snapshot is None:
        return "it is not in the newest snapshot"
    if parts[0].kind.is_versioned:
        return "rows of a versioned store depend on every record"
    if not is_purely_compacted(topic):
        policy = topic.configs.get("cleanup.policy") or "unknown"
        return f"the cleanup.policy of {topic.name} is {policy}, so rows without a record may be live"
    if len(parts) != 1:
        return f"it is built from {len(parts)} partitions of {topic.name}"
    if any(database.base for database in base.snapshot.databases):
        return "its runs are based on RocksDB files"
    return None


def not_comparable(one: Refused, why: str) -> Refused:
    """A refused base with the reason why it is not compared with the whole log either."""
    return replace(one, why=f"{one.why}; it cannot be compared with the whole log, because {why}")
