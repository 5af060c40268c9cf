"""Cutting partitions into offset ranges, so that workers are busy and runs are few. Pure functions."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from statecore.changelog.model import OffsetRange

SMALLEST_RANGE = 250_000
"""Offsets below which a range is not worth a task of its own (about 0.1 s of reading)."""

MOST_RANGES = 4
"""Ranges of one partition at most: each becomes a run, and overlapping runs cost the application's first start."""


def split_range(whole: OffsetRange, parts: int, *, smallest: int = 1) -> list[OffsetRange]:
    """Cut a range into contiguous ranges of equal size (in offsets; compaction may leave fewer records).

    Args:
        whole: the range to cut.
        parts: how many ranges at most.
        smallest: offsets that each range has at least; fewer parts come out where this does not fit.

    Returns:
        Ranges in offset order that cover `whole` exactly; one range where it is empty or too small to cut.
    """
    size = max(0, whole.end - whole.start)
    parts = max(1, min(parts, size // max(1, smallest)))
    cuts = [whole.start + size * part // parts for part in range(parts)] + [max(whole.start, whole.end)]
    return [OffsetRange(whole.topic, whole.partition, start, end) for start, end in itertools.pairwise(cuts)]


def plan_ranges(
    partitions: Iterable[OffsetRange],
    workers: int,
    *,
    most: int = MOST_RANGES,
    smallest: int = SMALLEST_RANGE,
) -> list[OffsetRange]:
    """Cut whole partitions into the ranges of a job.

    A partition is cut so that no range is much larger than an equal share of all offsets among the workers: with at
    least as many even partitions as workers nothing is cut, one large partition is cut for all of them.

    Args:
        partitions: one range a partition, as far as it is to be read; empty ones are kept (they become empty runs).
        workers: tasks that run at the same time.
        most: ranges of one partition at most.
        smallest: offsets of a range at least.

    Returns:
        All ranges, largest first (so that the last tasks to start are short), ranges of equal size in the given order.
    """
    wholes = list(partitions)
    total = sum(max(0, whole.end - whole.start) for whole in wholes)
    share = max(1, smallest, -(-total // max(1, workers)))
    ranges: list[OffsetRange] = []
    for whole in wholes:
        size = max(0, whole.end - whole.start)
        # Rounded: a partition that is a little above the share is not worth a second range.
        parts = min(most, max(1, (2 * size + share) // (2 * share)))
        ranges += split_range(whole, parts, smallest=smallest)
    return sorted(ranges, key=lambda cut: cut.start - cut.end)
