"""Which runs of a database in a repository are merged, so that they stay few: a fold's plan, of sizes alone.

Each checkpoint puts a run upon those that are there. A fold merges neighbours, and it pays for that by writing their
rows again. So what is merged should grow by it: of ten equal runs each row comes into a run of ten times the size, and
a large run with a small one above it is written for nothing. Two rules follow, over the runs of a database from the
oldest to the newest::

    1 GB              | 60 MB  25 MB  20 MB  18 MB  2 MB  2 MB  2 MB  2 MB  2 MB  2 MB  2 MB
    the old ones        those that came since
    stay                fold when they are many, by what grows most    ──▶   60 MB  25 MB  20 MB  18 MB  14 MB

**The old ones stay.** They are the first eight runs at most, up to the last of these that has a third of the largest
run's bytes, with none behind such a one that has not a ninth: what a restore has made, in one range or in eight, or an
earlier fold. Nothing of them is written before what came since has a third of their bytes. Then all runs become one. So
a reader does not have to bring much more than a third of the state besides the state, and the oldest rows are written
again whenever a third of the state has come.

**The others are folded when they are eleven**, until six are left, by merging, again and again, those neighbours whose
sum is the greatest multiple of the largest of them. Of equal runs that makes one of eleven, beside it one of ten, and
so on, and when there are six of these, one of all: a row of 300 changes is written three times and a half. Sizes may
differ as they like, because no limits of classes of size are there for them to cross.

A fold is a publication, which has its price whatever it moves. So there are two thresholds: a database with eleven new
runs makes a fold *due*, and so does one with twelve runs of which all are to become one. Where a fold is due, databases
with eight new runs are folded along, and those of which all runs are to become one. So three or four checkpoints at
least lie between two folds (``bench/folds.py`` simulates days of them).

On RocksDB's own files, which are never written again, the first run alone can be old, and all runs become one when what
came since has a third of the bytes of run and files.

Kafka Streams rewrites nothing of three sorted runs (:mod:`.merge_policy`), so a fetch merges what is left above the old
ones: a third of the state at most.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True)
class CompactionSettings:
    """When runs are merged.

    Attributes:
        due: so many new runs make a fold due.
        possible: so many are folded along where one is due.
        left: so many are left of them.
        runs: so many runs of all make a fold due that rewrites the old ones.
        old: so many runs, the first, may be old ones.
        share: of their bytes, what new ones must have for the old ones to be rewritten; and of the largest run's
            bytes, what an old one has.
    """

    due: int = 11
    possible: int = 8
    left: int = 6
    runs: int = 12
    old: int = 8
    share: float = 1 / 3


FOLD = CompactionSettings()
"""The settings that ``bench/folds.py`` has found to hold the goals that its tests state."""


def is_due(sizes: Sequence[int], *, base: int = 0, settings: CompactionSettings = FOLD) -> bool:
    """Whether a database alone is worth a fold.

    Args:
        sizes: bytes of its runs, in the order they are applied.
        base: bytes of RocksDB's own files below them.
        settings: when runs are merged.
    """
    if len(sizes) - _old(sizes, base, settings) >= settings.due:
        return True
    return len(sizes) >= settings.runs and _rewrites_all(sizes, base, settings)


def slices_to_compact(sizes: Sequence[int], *, base: int = 0, settings: CompactionSettings = FOLD) -> list[slice]:
    """Which runs of a database are merged, where a fold is made anyway.

    Args:
        sizes: bytes of its runs, in the order they are applied.
        base: bytes of RocksDB's own files below them.
        settings: when runs are merged.

    Returns:
        Slices of two or more neighbours, in order, that do not overlap; none where it is left as it is.
    """
    if _rewrites_all(sizes, base, settings):
        return [slice(0, len(sizes))]
    old = _old(sizes, base, settings)
    if len(sizes) - old < settings.possible:
        return []
    groups = [_Group(size, number, number + 1) for number, size in enumerate(sizes)][old:]
    while len(groups) > settings.left:
        start, end = _most_growing(groups)
        together = groups[start:end]
        groups[start:end] = [_Group(sum(one.bytes for one in together), together[0].start, together[-1].end)]
    return [slice(one.start, one.end) for one in groups if one.end - one.start > 1]


class _Group(NamedTuple):
    """Neighbours that are merged, or one run.

    Attributes:
        bytes: of all of them; what is merged has these at most.
        start: the first.
        end: behind the last.
    """

    bytes: int
    start: int
    end: int


def _old(sizes: Sequence[int], base: int, settings: CompactionSettings) -> int:
    """How many runs are old."""
    least = settings.share * max(sizes, default=0)
    found = 0
    for number, size in enumerate(sizes[: 1 if base else settings.old], 1):
        if size >= least:
            found = number
        elif found and size < settings.share * least:
            break
    return found


def _rewrites_all(sizes: Sequence[int], base: int, settings: CompactionSettings) -> bool:
    """Whether what came since the old ones has the share of their bytes for which they are rewritten."""
    old = _old(sizes, base, settings)
    return len(sizes) - old > 2 and old > 0 and sum(sizes[old:]) >= settings.share * (base + sum(sizes[:old]))


def _most_growing(groups: Sequence[_Group]) -> tuple[int, int]:
    """Start and end of the neighbours whose sum is the greatest multiple of the largest of them; of equal ones those of
    fewer bytes.
    """
    found = (0.0, 0, 0, 0)
    for end in range(len(groups), 1, -1):
        total = largest = 0
        for start in range(end - 1, -1, -1):
            total, largest = total + groups[start].bytes, max(largest, groups[start].bytes)
            if end - start > 1:
                found = max(found, (total / max(1, largest), -total, start, end))
    return found[2], found[3]
