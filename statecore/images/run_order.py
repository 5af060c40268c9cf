"""Order in which runs are applied: by offset, in each database, and in a global store in each partition."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TypeVar

from statecore.errors import Invalid
from statecore.images.model import Run, segment_order

R = TypeVar("R", bound=Run)


def check_order(runs: Sequence[Run]) -> None:
    """Refuse runs of different databases, or out of order by offset (see :class:`Run`). Raises ``Invalid``."""
    if len({(run.origin, run.segment) for run in runs}) > 1:
        raise Invalid(
            "The runs are of different databases.",
            code="run-mismatch",
            action="Group runs by store, partition and segment.",
            stores=sorted({run.store for run in runs}),
            topic_partitions=sorted({f"{run.topic}-{run.partition}" for run in runs}),
            segments=sorted({run.segment for run in runs}, key=segment_order),
        )
    for one, following in pairwise(runs):
        if following.start < one.end:
            raise Invalid(
                f"A run that ends at {one.end} and one that begins at {following.start} cannot follow one another.",
                code="runs-out-of-order",
                action="Give runs in the order of their offsets, each once.",
                end=one.end,
                next_start=following.start,
            )


def runs_of_one_partition(runs: Sequence[R], *, several: bool) -> list[list[R]]:
    """Runs of each database and, in a global store, of each partition, as far as the runs name theirs."""
    groups: dict[object, list[R]] = {}
    for run in runs:
        if not several:
            groups.setdefault(run.segment, []).append(run)
        elif run.origin.changelog is not None:
            groups.setdefault((run.segment, run.origin), []).append(run)
    return list(groups.values())
