"""Whole changelogs of stores whose tails may lack deletes: which stores are compared with them, and their reads.

If compaction may have removed deletes from a tail, the whole log still shows them: a key that it does not have was
deleted, provided that nothing but compaction removes its records. A store for which that is not sure is rebuilt.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from statecore.changelog.delete_retention import is_purely_compacted
from statecore.changelog.model import OffsetRange, TopicDescription
from statecore.changelog.ranges import plan_ranges
from statecore.changelog.size_estimate import SizeEstimate, estimate_sizes
from statecore.formats.topic_partition import TopicPartition
from statecore.jobs.bases.base import Base, Refused
from statecore.jobs.checkpoint.plan import CheckpointPlan
from statecore.jobs.context import JobContext
from statecore.jobs.planning.plan import PartitionPlan


def split_eligible(planned: CheckpointPlan, found: Iterable[Refused]) -> tuple[list[Refused], list[Refused]]:
    """Split refused bases into those that can be compared with the whole log, and the others, with the reason."""
    eligible, refused = [], []
    for one in found:
        parts, base = planned.frozen.plan.stores[one.key], planned.bases[one.key]
        why = None
        if one.missed_deletes:
            is_newest = one.base == planned.frozen.newest_snapshot
            why = _why_not_eligible(base, parts, planned.topics[parts[0].topic], is_newest=is_newest)
        if one.missed_deletes and why is None:
            eligible.append(one)
        else:
            refused.append(one if why is None else not_eligible(one, why))
    return eligible, refused


def _why_not_eligible(
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


def not_eligible(one: Refused, why: str) -> Refused:
    """A refused base with the reason why it is not compared with the whole log either."""
    return replace(one, why=f"{one.why}; it cannot be compared with the whole log, because {why}")


@dataclass(frozen=True)
class WholeLog:
    """The whole changelog of a store of one partition.

    Attributes:
        refused: the base whose tail is not enough.
        part: the partition, from the start of the log.
        base_bytes: bytes of the base's runs.
        bytes: most bytes that log and base take on the disk.
    """

    refused: Refused
    part: PartitionPlan
    base_bytes: int
    bytes: int


def plan_whole_logs(
    context: JobContext[Any],
    planned: CheckpointPlan,
    found: Sequence[Refused],
    workers: int,
    *,
    estimate: Callable[..., SizeEstimate] = estimate_sizes,
) -> list[WholeLog]:
    """The whole logs of stores that :func:`split_eligible` allows to compare."""
    budget = context.request.memory_budget
    parts = [planned.frozen.plan.stores[one.key][0] for one in found]
    spans = [OffsetRange(part.topic, part.partition, part.log_start, part.end) for part in parts]
    with context.cluster() as cluster:
        shapes = estimate(cluster, set(spans), workers, budget).shapes
    ranges: dict[TopicPartition, list[tuple[int, int]]] = defaultdict(list)
    for one in plan_ranges(set(spans), workers, shapes, memory_budget=budget):
        ranges[one.topic_partition].append((one.start, one.end))
    logs = []
    for refused, part, span in zip(found, parts, spans, strict=True):
        whole = replace(part, start=span.start, ranges=tuple(sorted(ranges[span.topic_partition])))
        snapshot = planned.bases[refused.key].snapshot
        runs = [] if snapshot is None else [stored for database in snapshot.databases for stored in database.runs]
        base_bytes = sum(stored.run.file_bytes for stored in runs)
        logs.append(WholeLog(refused, whole, base_bytes, int(shapes[span.topic_partition].bytes) + base_bytes))
    return logs
