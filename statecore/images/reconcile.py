"""Reconciles a base that is too old for its tail with the whole log; only the difference is written.

Deletes after the base's end may have been compacted away, so that no tail contains them. The whole log shows them
nevertheless, where its policy is compaction alone: a key that it does not have was deleted. (Where segments are also
deleted by age, the key may be live.) One run above the base turns its content into the log's::

    base     [  0, 100)   a=1          c=3   d=4
    log      [  0, 900)   a=1   b=2    c=9
    run      [100, 900)         b=2    c=9   d deleted

Memory holds a block of each and a buffer (:mod:`statecore.images.kernels.reconcile_source`). The same runs give the
same file.
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
from statecore.images.mapped_runs import open_table
from statecore.images.merge_reader import LIMITS, MergeLimits, MergingRuns, Rows
from statecore.images.merge_writer import refuse_records
from statecore.images.model import RunFile
from statecore.images.run_order import check_order
from statecore.images.run_writer import write_run_of_any


def reconciled_run(
    path: Path, base: Sequence[RunFile], log: Sequence[RunFile], *, start: int, end: int, limits: MergeLimits = LIMITS
) -> RunFile | None:
    """Write the run that, above the base, gives the content of the whole log; ``None`` where both are the same."""
    runs = [*base, *log]
    if not runs:
        return None
    _check(base, log, start, end)
    made = write_run_of_any(path, _chunks(DifferingRuns(base, log, limits)))
    if made is None:
        return None
    stream_time = max(run.stream_time for run in runs)
    return runs[-1].origin.of(replace(made, segment=runs[-1].segment, start=start, end=end, stream_time=stream_time))


def _check(base: Sequence[RunFile], log: Sequence[RunFile], start: int, end: int) -> None:
    """Refuse runs that are not a base and the log of one database."""
    runs = [*base, *log]
    refuse_records(runs)
    if any(run.kind is not None and run.kind.is_versioned for run in runs):
        raise Invalid(
            "A versioned store cannot be reconciled by a run: its rows depend on every record.",
            code="kind-unsupported",
            action="Build the store from all records of its changelog.",
        )
    check_order(base)
    check_order(log)
    if len({(run.origin, run.segment, run.row_version) for run in runs}) > 1:
        raise Invalid(
            "The runs of the base and those of the log are of different databases or row versions.",
            code="run-mismatch",
            action="Use those of the same store, partition and segment, or build the store from its changelog.",
        )
    ends = max((run.end for run in base), default=0), max((run.end for run in log), default=0)
    if not ends[0] <= start < end or ends[1] > end:
        raise Invalid(
            f"A base with runs up to {ends[0]} and a log with runs up to {ends[1]} cannot be reconciled by a run of "
            f"the offsets [{start}, {end}).",
            code="runs-inseparable",
            action="Give the offsets from the end of the base to the end of the log.",
            start=start,
            end=end,
        )


class DifferingRuns(MergingRuns):
    """A base and a log that are read together."""

    def __init__(self, base: Sequence[RunFile], log: Sequence[RunFile], limits: MergeLimits = LIMITS) -> None:
        runs = [*base, *log]
        super().__init__(runs, [open_table(run, run.path) for run in runs], limits=limits)
        self._base_runs = len(base)
        self._pending = np.array(Pending(), np.int64)

    @property
    def pending_bytes(self) -> tuple[int, int]:
        """Bytes of key and value of the next row to be copied."""
        return max(0, int(self._state[STATE.last_length])), int(self._pending[PENDING.value_length])

    def differ(self, rows: Rows) -> bool:
        """Copy the next ``state.taken`` rows of the difference into buffers; returns whether there may be more."""
        self._state[STATE.taken] = 0
        return self._more and self._call_and_check_end(
            lambda: reconcile_kernel.run(
                "differ",
                cursors=self._cursors,
                heap=self._heap,
                state=self._state,
                pending=self._pending,
                parents=self._base_runs,
                most=self.limits.entries,
                **rows.arguments,
            )
        )


def _chunks(differing: DifferingRuns) -> Iterator[Chunk]:
    """Yield the rows of the difference."""
    rows, more = Rows.room(differing.limits), True
    while more:
        more = differing.differ(rows)
        if taken := differing.state.taken:
            yield rows.chunk(taken)
        elif more:
            rows = rows.with_room_for(*differing.pending_bytes)
