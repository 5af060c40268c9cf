"""Cutting partitions into offset ranges, so that workers are busy and runs are few. Pure functions.

What a range costs follows from its records and their bytes, and not from its offsets: compaction leaves few records in
the older part of a log and all of them in the newer one. So partitions are weighed and cut by their shapes
(:mod:`statecore.changelog.shapes`), as far as these are known.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping

from statecore.changelog.model import OffsetRange
from statecore.changelog.shapes import PartitionShape
from statecore.formats.topic_partition import TopicPartition

SMALLEST_WORK = 500_000
"""Work (:attr:`PartitionShape.work`) below which a range is not worth a task of its own: 0.1 s of reading."""

MOST_RANGES = 8
"""Ranges of one partition at most. Each becomes a run, and in the worst case each run has all the keys; then three of
eight runs are left in the store and six are merged, which takes twice the disk of the store besides the store."""

MOST_SPILLED = 3
"""Ranges of one partition at most where one is more than memory holds. Such a range takes three times the disk of its
run until that is written, so in the worst case three of them take twice the disk of the store besides the store."""


def split_range(
    whole: OffsetRange, parts: int, *, smallest: int = 1, shape: PartitionShape | None = None
) -> list[OffsetRange]:
    """Cut a range into contiguous ranges of equal size.

    Args:
        whole: the range to cut.
        parts: how many ranges at most.
        smallest: offsets that each range has at least; fewer parts come out where this does not fit.
        shape: where its records lie; without it the ranges have equally many offsets.

    Returns:
        Ranges in offset order that cover `whole` exactly; one range where it is empty or too small to cut.
    """
    size = max(0, whole.end - whole.start)
    parts = max(1, min(parts, size // max(1, smallest)))
    inner = [
        whole.start + size * part // parts if shape is None else shape.offset_at(part / parts)
        for part in range(1, parts)
    ]
    cuts = [whole.start, *inner, max(whole.start, whole.end)]
    ranges = [OffsetRange(whole.topic, whole.partition, start, end) for start, end in itertools.pairwise(cuts)]
    return [one for one in ranges if one.end > one.start] or [whole]


def plan_ranges(
    partitions: Iterable[OffsetRange],
    workers: int,
    shapes: Mapping[TopicPartition, PartitionShape] = {},
    *,
    memory_budget: int | None = None,
    most: int = MOST_RANGES,
    smallest: int = SMALLEST_WORK,
) -> list[OffsetRange]:
    """Cut whole partitions into the ranges of a job.

    A partition is cut so that no range is much larger than an equal share of all work among the workers: with at
    least as many even partitions as workers nothing is cut, one large partition is cut for all of them.

    Args:
        partitions: one range a partition, as far as it is to be read; empty ones are kept (they become empty runs).
        workers: tasks that run at the same time.
        shapes: what is known of the partitions; of others nothing but their offsets is.
        memory_budget: bytes of records that a task may hold; ``None`` for any number.
        most: ranges of one partition at most.
        smallest: work of a range at least.

    Returns:
        All ranges, the largest first (so that the last tasks to start are short), those of equal size in the given
        order.
    """
    counts = ranges_of(partitions, workers, shapes, memory_budget=memory_budget, most=most, smallest=smallest)
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
    most: int = MOST_RANGES,
    smallest: int = SMALLEST_WORK,
) -> dict[OffsetRange, int]:
    """Into how many ranges each partition is cut; arguments as of :func:`plan_ranges`."""
    known = {whole: _known(whole, shapes) for whole in partitions}
    total = sum(shape.work for shape in known.values())
    share = max(1, smallest, -(-total // max(1, workers)))
    counts: dict[OffsetRange, int] = {}
    for whole, shape in known.items():
        # Rounded: a partition that is a little above the share is not worth a second range.
        wanted = min(most, max(1, shape.work // smallest), max(1, (2 * shape.work + share) // (2 * share)))
        fits = memory_budget is None or shape.bytes / wanted <= memory_budget
        counts[whole] = wanted if fits else min(wanted, MOST_SPILLED)
    return counts


def _known(whole: OffsetRange, shapes: Mapping[TopicPartition, PartitionShape]) -> PartitionShape:
    return shapes.get(whole.topic_partition) or PartitionShape.of_offsets(whole)
