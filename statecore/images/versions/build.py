"""Builds versioned stores: replays all records of each key in offset order, as ``RocksDBVersionedStore.put`` does.

The rows of a versioned store depend on every record of a key and on the stream time of the whole partition at each one.
So there are two steps. A range task keeps all its records, sorted by key (:class:`VersionRunBuilder`); one task for
each partition merges the ranges key by key and replays them (:func:`build_version_runs`)::

    range 0 ── sorted records ──┐                       ┌── latest rows            one SST file
    range 1 ── sorted records ──┼── merge ── replay ────┼── rows of segment n      one SST file
    range 2 ── sorted records ──┘   by key   per key    └── rows of segment n+1    one SST file

Stream time is the greatest timestamp of all earlier records, of this range (stored with each record) and of the ranges
before it. The result equals, byte for byte, the store of a Kafka Streams instance that processed the same records and
was never restarted. That deliberately differs from Kafka Streams' restore in two cases:

- Its restore (``restoreBatch``) decides what is kept by the stream time at the end of each poll, so that rows depend on
  how records were polled. It drops deletes older than the history retention while it still accepts older values that
  came late: a value put at 1, when the key was deleted at 2, is valid again from 1 to the next put, even within the
  history retention. Here it ends at 2.
- A restarted instance begins without a stream time, accepts records that an instance which kept running drops, and no
  longer expires the segments from before the restart (``LogicalKeyValueSegments.openExisting`` registers none). A
  changelog does not show when its writer was restarted.

Rows of segments that have expired by the final stream time are left out; ``put`` removes them before anything else, so
an instance that kept running has none either.
"""

from __future__ import annotations

import statecore.extras.pipeline

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from statecore.formats.kinds import StoreKind
from statecore.formats.registry import row_format
from statecore.formats.row_format import int64_values, valid_mask
from statecore.formats.segments import Segmentation
from statecore.formats.topic_partition import TopicPartition
from statecore.images.kernels import kernel
from statecore.images.model import RunFile, RunOrigin
from statecore.images.runs import DEFAULT_MEMORY_BUDGET, RunRanges, RunStatistics, checked_records, last_offset
from statecore.images.versions import kernel as versions_kernel
from statecore.images.versions.replay import replay
from statecore.images.versions.rows import RowFiles
from statecore.images.versions.sorted_records import map_records
from statecore.images.versions.table import RecordTable

SLICE_BYTES = 64 << 20
"""Bytes of finished rows held at once. Where files are divided by slices of keys, a slice has as many whatever the
memory budget, because another slice is another file."""


class VersionRunBuilder:
    """All records of an offset range, sorted by key and then by offset, within a memory budget."""

    def __init__(
        self,
        directory: Path,
        *,
        memory_budget: int = DEFAULT_MEMORY_BUDGET,
        changelog: TopicPartition | None = None,
        store: str = "",
        start: int = 0,
    ) -> None:
        self._format = row_format(StoreKind.VERSIONED_KEY_VALUE)
        self._directory = directory
        self._budget = memory_budget
        self._changelog = changelog
        self._ranges = RunRanges(start, RunOrigin(store, StoreKind.VERSIONED_KEY_VALUE, changelog))
        self._records = self._null_keys = 0
        self._stream_time = -1
        self._table = RecordTable()

    @property
    def statistics(self) -> RunStatistics:
        """Statistics so far; ``stream_time`` is the greatest timestamp of a record with a key."""
        return RunStatistics(self._records, self._null_keys + self._table.null_keys, self._stream_time, 0)

    def add(self, batch: pa.RecordBatch) -> None:
        """Add a batch in offset order; its buffers, referenced for a while, must not be written to afterwards."""
        if not batch.num_rows:
            return
        if self._table.bytes_to_sort > self._budget:
            self._write_run()
        records = checked_records(batch, self._format, self._changelog)
        times = int64_values(records.timestamps)
        if records.keys.null_count:  # a store skips them
            times = np.where(valid_mask(records.keys), times, -1)
        stream_times = np.maximum(np.maximum.accumulate(times), self._stream_time)
        self._stream_time = int(stream_times[-1])
        self._table.add_records(records, stream_times)
        self._records += batch.num_rows
        self._ranges.next_offset = last_offset(batch) + 1

    def finish(self, end: int | None = None, written: Callable[[float], None] | None = None) -> list[RunFile]:
        """Write the remaining records and return all runs, in offset order; none when no record has a key."""
        self._ranges.next_offset = self._ranges.next_offset if end is None else end
        self._write_run()
        if written is not None:
            written(1.0)
        return list(self._ranges.runs)

    def _write_run(self) -> None:
        if self._table.keys:
            path = self._directory / f"records-{len(self._ranges.runs):05d}.run"
            self._ranges.add(self._table.write(path), self._stream_time)
        self._null_keys += self._table.null_keys
        self._table = RecordTable()


def build_version_runs(
    directory: Path,
    runs_by_range: Sequence[tuple[int, Sequence[RunFile]]],
    segmentation: Segmentation,
    memory_budget: int = DEFAULT_MEMORY_BUDGET,
    *,
    slice_bytes: int = SLICE_BYTES,
) -> list[RunFile]:
    """Replay a partition; write its rows as files without common keys: segments in order, latest rows last.

    The same rows give the same files, whatever the budget.
    """
    mapped, stream_time = [], -1
    for of_range, runs in runs_by_range:
        for run in runs:
            mapped.append((stream_time, map_records(run)))
        stream_time = max(stream_time, of_range)
    first = segmentation.first_live(stream_time)
    with RowFiles(directory, first_live=first, last=max(0, stream_time) // segmentation.interval_ms) as files:
        arena_bytes = slice_bytes if files.sliced else min(slice_bytes, memory_budget // 2)
        for part in replay(mapped, segmentation, first_live=first, arena_bytes=arena_bytes):
            files.add(part)
        return files.finish()


def warm() -> None:
    """Load the kernels (compiled on the first use of an installation), so that the first batch does not wait."""
    kernel.warm()
    versions_kernel.warm()
