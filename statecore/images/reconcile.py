"""A parent that is too old to be advanced by its tail, made right against the whole log; only the difference is kept.

Deletes that came after the parent's end may have been compacted away, so that no tail tells of them. What the whole log
still says tells of them all the same, where its policy is compaction alone: a key that it has not was deleted. (Where
segments are deleted by age too, it may have been live.) One run above the parent takes what it shows to what the log
shows::

    parent   [  0, 100)   a=1          c=3   d=4
    log      [  0, 900)   a=1   b=2    c=9
    made     [100, 900)         b=2    c=9   d deleted

Both are read once, block by block, and merged by a kernel (:mod:`statecore.images.kernels.reconcile_source`); no more
is held than a block of each and a buffer. The same runs give the same file.

A parent with a database of RocksDB below its runs is not made right. Its rows come one by one through an iterator,
which alone takes several times as long as an image of the runs of the log, and these are there already.
"""

from __future__ import annotations

import statecore.extras.pipeline

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from statecore.errors import Invalid
from statecore.images.kernels import reconcile_kernel
from statecore.images.kernels.merged_kernel import STATE
from statecore.images.kernels.reconcile_kernel import PENDING, Pending
from statecore.images.key_table import Chunk
from statecore.images.merge import refuse_records
from statecore.images.merging import LIMITS, MergeLimits, MergingRuns, Rows
from statecore.images.model import RunFile
from statecore.images.run_order import check_order
from statecore.images.run_writer import write_run_of_any
from statecore.images.tables import open_table


def reconciled_run(
    path: Path,
    parent: Sequence[RunFile],
    log: Sequence[RunFile],
    *,
    start: int,
    end: int,
    limits: MergeLimits = LIMITS,
) -> RunFile | None:
    """Write the run that, applied above the parent, shows what the whole log shows.

    Args:
        path: the file to write.
        parent: all runs of the database in the parent, in the order they are applied, with no base below.
        log: all runs of the same database that the whole log left, from its start to ``end``, likewise. The files of
            both have been compared with their hashes.
        start: where the parent ends.
        end: where the log was read to.
        limits: how much is held and read at once.

    Returns:
        The run, of the offsets from ``start`` to ``end``; ``None`` where both show the same.

    Raises:
        Invalid: the runs are not in order, not of one database, beyond the offsets, or of a versioned store; or the
            keys are too many and too long for one file.
        Corrupted: a run is not what it says.
        Capacity: no room for the file.
    """
    runs = [*parent, *log]
    if not runs:
        return None
    _check(parent, log, start, end)
    made = write_run_of_any(path, _chunks(DifferingRuns(parent, log, limits)))
    if made is None:
        return None
    stream_time = max(run.stream_time for run in runs)
    return runs[-1].origin.of(replace(made, segment=runs[-1].segment, start=start, end=end, stream_time=stream_time))


def _check(parent: Sequence[RunFile], log: Sequence[RunFile], start: int, end: int) -> None:
    """Refuse what is not a parent and the log of one database."""
    runs = [*parent, *log]
    refuse_records(runs)
    if any(run.kind is not None and run.kind.is_versioned for run in runs):
        raise Invalid(
            "A versioned store is not made right by a run: its rows depend on every record.",
            code="kind-unsupported",
            action="Build the store from all records of its changelog.",
        )
    check_order(parent)
    check_order(log)
    if len({(run.origin, run.segment, run.row_version) for run in runs}) > 1:
        raise Invalid(
            "The runs of the parent and those of the log are not of one database, or not in one version of its rows.",
            code="run-mismatch",
            action="Take those of the same store, partition and segment, or build the store from its changelog.",
        )
    ends = max((run.end for run in parent), default=0), max((run.end for run in log), default=0)
    if not ends[0] <= start < end or ends[1] > end:
        raise Invalid(
            f"A parent with runs up to {ends[0]} and a log with runs up to {ends[1]} cannot be told apart by a run of "
            f"the offsets [{start}, {end}).",
            code="runs-inseparable",
            action="Give the offsets from the end of the parent to the end of the log.",
            start=start,
            end=end,
        )


class DifferingRuns(MergingRuns):
    """A parent and a log that are read together."""

    def __init__(self, parent: Sequence[RunFile], log: Sequence[RunFile], limits: MergeLimits = LIMITS) -> None:
        runs = [*parent, *log]
        super().__init__(runs, [open_table(run, run.path) for run in runs], limits=limits)
        self._parents = len(parent)
        self._pending = np.array(Pending(), np.int64)

    @property
    def pending_bytes(self) -> tuple[int, int]:
        """Bytes of key and value of the row that is next to be copied."""
        return max(0, int(self._state[STATE.last_length])), int(self._pending[PENDING.value_length])

    def differ(self, rows: Rows) -> bool:
        """Copy rows that the parent needs above it into buffers, ``state.taken`` of them; whether there may be more.

        Raises:
            Corrupted: a run is not in the format that its footer says, or has not as many entries as it should.
        """
        self._state[STATE.taken] = 0
        return self._more and self._call_and_check_end(
            lambda: reconcile_kernel.run(
                "differ",
                cursors=self._cursors,
                heap=self._heap,
                state=self._state,
                pending=self._pending,
                parents=self._parents,
                most=self.limits.entries,
                **rows.arguments,
            )
        )


def _chunks(differing: DifferingRuns) -> Iterator[Chunk]:
    """The rows of the difference."""
    rows, more = Rows.room(differing.limits), True
    while more:
        more = differing.differ(rows)
        if taken := differing.state.taken:
            yield rows.chunk(taken)
        elif more:
            rows = rows.with_room_for(*differing.pending_bytes)
