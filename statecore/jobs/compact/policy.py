"""Which runs of a repository's database are merged to keep them few: compaction planned from sizes alone.

Each checkpoint adds a run. Compaction merges neighbours, at the price of writing their rows again. So a merge should
grow what it merges: of ten equal runs each row moves into a run of ten times the size, while a large run with a small
one above it is rewritten for nothing. Two rules follow, over the runs of a database from the oldest to the newest::

    1 GB              | 60 MB  25 MB  20 MB  18 MB  2 MB  2 MB  2 MB  2 MB  2 MB  2 MB  2 MB
    old runs            new runs
    stay                compacted when they are many, by the largest growth    ──▶   60 MB  25 MB  20 MB  18 MB  14 MB

**Old runs stay.** They are at most the first eight runs, up to the last of these that has a third of the largest run's
bytes, and end before a run that, after such a run, has less than a ninth: the result of a restore, in one range or in
eight, or of an earlier compaction. They are not rewritten before the new runs have a third of their bytes. Then all
runs become one. So a reader fetches at most about a third of the state in addition to the state, and the oldest rows
are rewritten whenever a third of the state has been added.

**New runs are compacted when they are eleven**, until six are left, by repeatedly merging those neighbours whose sum is
the greatest multiple of the largest of them. Of equal runs that makes one of eleven, then one of ten, and so on, and
when there are six of these, one of all: a row of 300 changes is written three and a half times. Sizes may vary
arbitrarily, because there are no size classes whose limits they could cross.

A compaction is a publication, which has a fixed price. So there are two thresholds: a compaction is *due* for a
database with eleven new runs, and for one with twelve runs all of which are to become one. Where it is due, databases
with eight new runs are compacted too, and those all of whose runs are to become one. So at least three or four
checkpoints are between two compactions (``bench/compactions.py`` simulates days of them).

Above RocksDB's own files, which are never rewritten, only the first run can be old, and all runs become one when the
new ones have a third of the bytes of that run and the files.

Kafka Streams rewrites nothing of three sorted runs (:mod:`statecore.images.universal_compaction`), so a fetch merges
the runs above the old ones: at most a third of the state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True)
class CompactionSettings:
    """Thresholds of compaction.

    Attributes:
        new_due: number of new runs that makes a compaction due.
        eligible: number of new runs that is compacted where a compaction is due.
        remaining: number of new runs that remain.
        all_due: number of all runs that makes a compaction due that rewrites the old ones.
        max_old: most runs, from the first, that may be old.
        share: share of the old runs' bytes that new runs must have for the old ones to be rewritten; also the share of
            the largest run's bytes that an old run has.
    """

    new_due: int = 11
    eligible: int = 8
    remaining: int = 6
    all_due: int = 12
    max_old: int = 8
    share: float = 1 / 3


DEFAULT_SETTINGS = CompactionSettings()
"""Settings that meet the goals stated in the tests of ``bench/compactions.py``."""


def is_due(sizes: Sequence[int], *, base: int = 0, settings: CompactionSettings = DEFAULT_SETTINGS) -> bool:
    """Whether a database alone makes a compaction due."""
    if len(sizes) - _old(sizes, base, settings) >= settings.new_due:
        return True
    return len(sizes) >= settings.all_due and _rewrites_all(sizes, base, settings)


def slices_to_compact(
    sizes: Sequence[int], *, base: int = 0, settings: CompactionSettings = DEFAULT_SETTINGS
) -> list[slice]:
    """Runs of a database to merge, where a compaction runs anyway: disjoint slices of neighbours, in order."""
    if _rewrites_all(sizes, base, settings):
        return [slice(0, len(sizes))]
    old = _old(sizes, base, settings)
    if len(sizes) - old < settings.eligible:
        return []
    groups = [_Group(size, number, number + 1) for number, size in enumerate(sizes)][old:]
    while len(groups) > settings.remaining:
        start, end = _most_growing(groups)
        together = groups[start:end]
        groups[start:end] = [_Group(sum(one.bytes for one in together), together[0].start, together[-1].end)]
    return [slice(one.start, one.end) for one in groups if one.end - one.start > 1]


class _Group(NamedTuple):
    """Neighbours that are merged, or one run.

    Attributes:
        bytes: sum of their bytes, an upper bound of the merged run's.
    """

    bytes: int
    start: int
    end: int


def _old(sizes: Sequence[int], base: int, settings: CompactionSettings) -> int:
    least = settings.share * max(sizes, default=0)
    found = 0
    for number, size in enumerate(sizes[: 1 if base else settings.max_old], 1):
        if size >= least:
            found = number
        elif found and size < settings.share * least:
            break
    return found


def _rewrites_all(sizes: Sequence[int], base: int, settings: CompactionSettings) -> bool:
    """Whether the new runs have the share of the old ones' bytes for which those are rewritten."""
    old = _old(sizes, base, settings)
    return len(sizes) - old > 2 and old > 0 and sum(sizes[old:]) >= settings.share * (base + sum(sizes[:old]))


def _most_growing(groups: Sequence[_Group]) -> tuple[int, int]:
    """Start and end of the neighbours whose sum is the greatest multiple of the largest of them."""
    found = (0.0, 0, 0, 0)
    for end in range(len(groups), 1, -1):
        total = largest = 0
        for start in range(end - 1, -1, -1):
            total, largest = total + groups[start].bytes, max(largest, groups[start].bytes)
            if end - start > 1:
                found = max(found, (total / max(1, largest), -total, start, end))
    return found[2], found[3]
