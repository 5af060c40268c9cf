"""Splits partitions into offset ranges that keep workers busy and runs few. Pure functions.

The cost of a range follows from its records and their bytes, not from its offsets: compaction leaves few records in the
older part of a log. So partitions are split by their shapes (:mod:`statecore.changelog.record_density`), where these
are known.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping

from statecore.changelog.model import OffsetRange
from statecore.changelog.record_density import PartitionShape
from statecore.formats.topic_partition import TopicPartition

SMALLEST_WORK = 500_000  # Smallest work (PartitionShape.work) that is worth a task: 0.1 s of reading

MOST_RANGES = 8
"""Most ranges of one partition. Each becomes a run, which in the worst case has all keys; then three of eight runs stay
in the store and six are merged, which takes twice the store's disk space in addition to the store.
"""

MOST_SPILLED = 3
"""Most ranges of one partition where one exceeds the memory budget. Such a range takes three times the disk space of
its run until that is written, so three of them take at most twice the store's disk space in addition to the store.
Here keys and values count, without what a builder keeps for each record: small records may exceed the budget in more
ranges, which the estimate of the disk counts (:mod:`statecore.jobs.planning.estimate`).
"""


def split_range(whole: OffsetRange, parts: int, *, shape: PartitionShape | None = None) -> list[OffsetRange]:
    """Split a range into contiguous equal ones; one where it is empty or too small to split."""
    size = max(0, whole.end - whole.start)
    parts = max(1, min(parts, size))
    inner = [
        whole.start + size * part // parts if shape is None else shape.offset_at(part / parts)
        for part in range(1, parts)
    ]
    bounds = [whole.start, *inner, max(whole.start, whole.end)]
    ranges = [OffsetRange(whole.topic, whole.partition, start, end) for start, end in itertools.pairwise(bounds)]
    return [one for one in ranges if one.end > one.start] or [whole]


def plan_ranges(
    partitions: Iterable[OffsetRange],
    workers: int,
    shapes: Mapping[TopicPartition, PartitionShape] = {},
    *,
    memory_budget: int | None = None,
) -> list[OffsetRange]:
    """Split partitions into the ranges of a job.

    No range is much larger than an equal share of all work among the workers: with at least as many even partitions as
    workers nothing is split, one large partition is split for all workers.

    Returns:
        All ranges, largest first (so that the last tasks to start are short), equal ones in the given order.
    """
    counts = ranges_of(partitions, workers, shapes, memory_budget=memory_budget)
    planned: list[tuple[float, OffsetRange]] = []
    for whole, count in counts.items():
        shape = _known(whole, shapes)
        ranges = split_range(whole, count, shape=shape)
        planned += [(shape.work / len(ranges), one) for one in ranges]
    return [one for _, one in sorted(planned, key=lambda found: -found[0])]


def ranges_of(
    partitions: Iterable[OffsetRange],
    workers: int,
    shapes: Mapping[TopicPartition, PartitionShape] = {},
    *,
    memory_budget: int | None = None,
) -> dict[OffsetRange, int]:
    """Number of ranges of each partition; arguments as for :func:`plan_ranges`."""
    known = {whole: _known(whole, shapes) for whole in partitions}
    total = sum(shape.work for shape in known.values())
    share = max(1, SMALLEST_WORK, -(-total // max(1, workers)))
    counts: dict[OffsetRange, int] = {}
    for whole, shape in known.items():
        # Rounded: a partition slightly above the share is not worth a second range.
        wanted = min(MOST_RANGES, max(1, shape.work // SMALLEST_WORK), max(1, (2 * shape.work + share) // (2 * share)))
        fits = memory_budget is None or shape.bytes / wanted <= memory_budget
        counts[whole] = wanted if fits else min(wanted, MOST_SPILLED)
    return counts


def _known(whole: OffsetRange, shapes: Mapping[TopicPartition, PartitionShape]) -> PartitionShape:
    return shapes.get(whole.topic_partition) or PartitionShape.of_offsets(whole)
