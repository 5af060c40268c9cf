"""What universal compaction rewrites, and which runs are merged so that it rewrites nothing.

Kafka Streams opens every database with universal compaction and RocksDB's defaults (``compaction_picker_universal.cc``,
RocksDB 10.1). When it opens a database, RocksDB examines its sorted runs, here from the oldest to the newest:

- fewer than 4 (``level0_file_num_compaction_trigger``): it rewrites nothing;
- all but the oldest have twice the bytes of the oldest (``max_size_amplification_percent`` 200): it rewrites all;
- a sorted run is not larger than the sum of the newer ones it is merged with, plus 1 % (``size_ratio``): it rewrites
  these;
- more than 4: it rewrites the newest, so that 4 are left.

So three sorted runs stay whatever their sizes, four equal ones are rewritten, and of a large one with three small ones
above only the small ones are. Runs that are merged before Kafka Streams opens the database need not be rewritten then.

Consecutive runs without a common key range are one sorted run where there is no base: RocksDB puts them into one level.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from statecore.images.model import Run

MOST_UNMERGED = 3  # Sorted runs that RocksDB never rewrites, whatever their sizes
_TRIGGER = MOST_UNMERGED + 1
_AMPLIFICATION_PERCENT = 200
_SIZE_RATIO_PERCENT = 1


def groups_to_merge(sizes: Sequence[int], base: Sequence[int] = ()) -> list[slice]:
    """Sorted runs to merge before the database is opened.

    Only neighbours are merged. The base is never rewritten; where it alone has three sorted runs or more, the runs
    become one. The merge has as few bytes as possible, and the older of equal choices, because deletes can be dropped
    where the oldest run is included.

    Returns:
        Disjoint groups of two or more, in order; none where nothing has to be merged.
    """
    if not sizes or not rewrites([*base, *sizes]):
        return []
    groups = min(len(sizes), max(1, MOST_UNMERGED - len(base)))
    ends = _cheapest_ends(sizes, groups)
    starts = [0, *ends[:-1]]
    return [slice(start, end) for start, end in zip(starts, ends, strict=True) if end - start > 1]


def runs_to_merge(runs: Sequence[Run], base: Sequence[int] | None = None) -> list[slice]:
    """Runs of a database to merge before it is opened, as by :func:`groups_to_merge`."""
    layers = sorted_runs(runs, on_base=base is not None)
    sizes = [sum(run.file_bytes for run in runs[layer]) for layer in layers]
    return [slice(layers[group][0].start, layers[group][-1].stop) for group in groups_to_merge(sizes, base or ())]


def rewrites(sizes: Sequence[int]) -> bool:
    """Whether RocksDB, as Kafka Streams opens it, rewrites a file of sorted runs of these bytes, oldest first."""
    if len(sizes) < _TRIGGER:
        return False
    oldest, *newer = sizes
    if 100 * sum(newer) >= _AMPLIFICATION_PERCENT * oldest or len(sizes) > _TRIGGER:
        return True
    return any(new * (100 + _SIZE_RATIO_PERCENT) >= 100 * old for old, new in zip(sizes, newer, strict=False))


def sorted_runs(runs: Sequence[Run], *, on_base: bool = False) -> list[slice]:
    """Group runs, in the order they are applied, into RocksDB's sorted runs."""
    if on_base:
        return [slice(number, number + 1) for number in range(len(runs))]
    found: list[slice] = []
    ranges: list[tuple[bytes, bytes]] = []
    for number, run in enumerate(runs):
        first, last = bytes.fromhex(run.min_key), bytes.fromhex(run.max_key)
        if found and all(last < other[0] or other[1] < first for other in ranges):
            ranges.append((first, last))
            found[-1] = slice(found[-1].start, number + 1)
        else:
            ranges = [(first, last)]
            found.append(slice(number, number + 1))
    return found


def _cheapest_ends(sizes: Sequence[int], groups: int) -> list[int]:
    """Ends of ``groups`` groups of neighbours whose groups of two and more have the fewest bytes."""
    sums = [0, *accumulate(sizes)]

    def cost(start: int, end: int) -> int:
        return sums[end] - sums[start] if end - start > 1 else 0

    # best[e]: bytes, and the ends, of the first e runs as the groups made so far; a later end of the first ones wins.
    best = {end: (cost(0, end), [end]) for end in range(1, len(sizes) + 1)}
    for made in range(2, groups + 1):
        best = {
            end: min(
                ((best[start][0] + cost(start, end), [*best[start][1], end]) for start in range(made - 1, end)),
                key=lambda found: (found[0], [-one for one in found[1]]),
            )
            for end in range(made, len(sizes) + 1)
        }
    return best[len(sizes)][1]
