"""Plan the reads of whole changelogs whose stores are compared, in batches that fit on the disk."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from statecore.changelog.model import OffsetRange
from statecore.changelog.ranges import plan_ranges
from statecore.changelog.size_estimate import SizeEstimate, estimate_sizes
from statecore.formats.topic_partition import TopicPartition
from statecore.jobs.bases.base import Refused
from statecore.jobs.checkpoint.plan import CheckpointPlan
from statecore.jobs.context import JobContext
from statecore.jobs.planning.plan import PartitionPlan


@dataclass(frozen=True)
class WholeLog:
    """The whole changelog of a store of one partition.

    Attributes:
        refused: the base whose tail is not enough.
        part: the partition, from the start of the log.
        base_bytes: bytes of the base.
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
    """The whole logs of stores that :func:`statecore.jobs.checkpoint.missed_deletes.divided` allows to compare."""
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


def batches(logs: Iterable[WholeLog], batch_bytes: int) -> Iterator[list[WholeLog]]:
    """Group logs into batches of at most so many bytes, or one log that has more."""
    batch: list[WholeLog] = []
    size = 0
    for log in logs:
        if batch and size + log.bytes > batch_bytes:
            yield batch
            batch, size = [], 0
        batch.append(log)
        size += log.bytes
    if batch:
        yield batch
