"""Merges sorted runs into one run.

Adjacent runs of a database become one run, in columns: a kernel copies the rows that no later run replaces into buffers
of a megabyte, and the columnar writer writes them. It replaces RocksDB's own compaction, whose files cannot be ingested
again. The same runs give the same file, byte for byte::

    run 0  [100, 200)     a=1   b=2   c=3
    run 1  [200, 300)     a=4   b deleted
    merged [100, 300)     a=4   b deleted  c=3       without deletes, where nothing older is below:  a=4   c=3
"""

from __future__ import annotations

import statecore.extras.pipeline

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from statecore.errors import Invalid
from statecore.images.key_table import Chunk
from statecore.images.mapped_runs import open_table
from statecore.images.merge_reader import LIMITS, MergeLimits, MergingRuns, Rows
from statecore.images.model import Run, RunFile, RunFormat
from statecore.images.run_order import check_order
from statecore.images.run_writer import write_run_of_any


def merge_runs(
    path: Path, runs: Sequence[RunFile], *, keep_tombstones: bool, limits: MergeLimits = LIMITS
) -> RunFile | None:
    """Merge runs of one database into one run, with the offsets of all; ``None`` when no row is left."""
    if not runs:
        raise Invalid("A merge needs at least one run.", code="runs-missing", action="Name the runs of a database.")
    check_order(runs)
    made = merged_file(path, runs, keep_tombstones=keep_tombstones, limits=limits)
    return made and runs[0].origin.of(replace(made, start=runs[0].start, end=runs[-1].end))


def merged_file(
    path: Path, runs: Sequence[RunFile], *, keep_tombstones: bool, limits: MergeLimits = LIMITS
) -> RunFile | None:
    """As :func:`merge_runs`, without a check of the order: a file of an image, whose run has no offsets."""
    refuse_records(runs)
    merging = MergingRuns(runs, [open_table(run, run.path) for run in runs], limits=limits)
    return write_merged(path, runs, merging, keep_tombstones=keep_tombstones)


def refuse_records(runs: Sequence[Run]) -> None:
    """Refuse runs that contain records instead of rows. Raises ``Invalid``."""
    if any(run.format is not RunFormat.SST for run in runs):
        raise Invalid(
            "Records of a versioned store are not rows, and cannot be merged.",
            code="kind-unsupported",
            action="Build the store from all of them.",
        )


def write_merged(path: Path, runs: Sequence[RunFile], merging: MergingRuns, *, keep_tombstones: bool) -> RunFile | None:
    """As :func:`merged_file`, for the rows that ``merging`` reads."""
    made = write_run_of_any(path, _chunks(merging, keep_tombstones))
    if made is None:
        return None
    stream_time = max(run.stream_time for run in runs)
    return replace(made, segment=runs[0].segment, stream_time=stream_time)


def _chunks(merging: MergingRuns, keep_tombstones: bool) -> Iterator[Chunk]:
    """Yield the remaining rows."""
    rows, more = Rows.room(merging.limits), True
    while more:
        more = merging.take(rows, keep_deletes=keep_tombstones)
        taken = merging.state.taken
        if taken:
            yield rows.chunk(taken)
        elif more:
            rows = rows.with_room_for(*merging.next_row_bytes)
