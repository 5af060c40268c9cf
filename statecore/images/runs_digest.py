"""Content of a database from the files of its runs: rows, bytes and digest, without a scan by RocksDB.

SHA-256 proves that the files in the database are the runs, so a kernel reads the mapped files, merges those with
overlapping key ranges as RocksDB would, and adds up the digest. Others keep the digest that they were written with::

    keys      a ──────────────────────────────────────────▶ z
    run 0     ├────────┤
    run 1           ├─────────┤                                 merged with run 0
    run 2                         ├───────┤                     unchanged
"""

from __future__ import annotations

import statecore.extras.pipeline

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from statecore.images.digest import combined
from statecore.images.kernels import kernel, merged_kernel
from statecore.images.mapped_runs import Table, open_table
from statecore.images.merge_reader import LIMITS, MergeLimits, MergingRuns
from statecore.images.model import Run, RunFile, StoreDigest


def known_digest(runs: Sequence[Run]) -> StoreDigest | None:
    """Content of a database of exactly these runs, from their descriptions; ``None`` where two runs overlap."""
    if any(len(group) > 1 for group in overlapping(runs)):
        return None
    return combined(*(run.content for run in runs))


def merged_digest(runs: Sequence[RunFile], files: Sequence[Path], limits: MergeLimits = LIMITS) -> StoreDigest:
    """Content of a database of exactly these runs."""
    groups = overlapping(runs)
    tables: dict[int, Table] = {}
    for number in (number for group in groups if len(group) > 1 for number in group):
        tables[number] = open_table(runs[number], files[number])
    contents = []
    for group in groups:
        if len(group) > 1:
            together, opened = [runs[number] for number in group], [tables.pop(number) for number in group]
            contents.append(digest_remaining(MergingRuns(together, opened, limits=limits)))
        else:
            contents.append(runs[group[0]].content)
    return combined(*contents)


def overlapping(runs: Sequence[Run]) -> list[list[int]]:
    """Group the indexes of runs, ascending in each group, so that runs of different groups have disjoint key ranges."""
    ranges = sorted((bytes.fromhex(run.min_key), bytes.fromhex(run.max_key), at) for at, run in enumerate(runs))
    groups: list[list[int]] = []
    end = b""
    for first, last, at in ranges:
        if groups and first <= end:
            groups[-1].append(at)
            end = max(end, last)
        else:
            groups.append([at])
            end = last
    return [sorted(group) for group in groups]


def digest_remaining(merging: MergingRuns) -> StoreDigest:
    """Content of all rows that remain to be read. Raises ``Corrupted`` for a malformed run."""
    while merging.add_up():
        pass
    found = merging.state
    sums = np.array([found.sum_a, found.sum_b]).view(np.uint64).tolist()
    return StoreDigest(found.rows, found.bytes, "".join(f"{total:016x}" for total in sums))


def warm() -> None:
    """Load the kernels (compiled on the first use of an installation), so that the first image does not wait."""
    kernel.warm()
    merged_kernel.warm()
