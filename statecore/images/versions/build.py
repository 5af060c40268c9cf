"""Builds versioned stores: all records of each key, replayed in offset order as ``RocksDBVersionedStore.put`` has it.

The rows of a versioned store depend on every record of a key and on when, in the stream time of the whole partition,
each one came. So there are two steps. A range task keeps all its records, sorted by key (:class:`VersionRunBuilder`);
one task for each partition merges the ranges key by key and replays them (:func:`build_version_runs`)::

    range 0 ── sorted records ──┐                       ┌── latest rows            one SST file
    range 1 ── sorted records ──┼── merge ── replay ────┼── rows of segment n      one SST file
    range 2 ── sorted records ──┘   by key   per key    └── rows of segment n+1    one SST file

Stream time is the greatest timestamp of all records before, of this range (kept with each record) and of the ranges
before it. What comes out is, byte for byte, what a Kafka Streams instance holds that processed the same records and was
never restarted. That is deliberately not always what Kafka Streams itself restores:

- Its restore (``restoreBatch``) decides what is kept by the stream time at the end of each poll, so that rows depend on
  how records fell into polls. It forgets deletes older than the history retention while it still accepts older values
  that came late: a value put at 1, when the key was deleted at 2, is valid again from 1 to the next put, even within
  the history retention. Here it ends at 2.
- A restarted instance begins without a stream time, accepts records that an instance which kept running drops, and no
  longer expires the segments of its former life (``LogicalKeyValueSegments.openExisting`` registers none). Nothing in a
  changelog says when its writer was restarted.

Rows of segments that have expired by the final stream time are left out; ``put`` removes them before it does anything
else, so an instance that kept running has none either.
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
from statecore.formats.segments import first_live_segment
from statecore.formats.topic_partition import TopicPartition
from statecore.images.kernels import kernel
from statecore.images.model import RunFile, RunOrigin
from statecore.images.records import checked_records, last_offset
from statecore.images.run_ranges import RunRanges
from statecore.images.runs import DEFAULT_MEMORY_BUDGET, RunStatistics
from statecore.images.versions import kernel as versions_kernel
from statecore.images.versions.replay import replay
from statecore.images.versions.rows import RowFiles
from statecore.images.versions.sorted_records import map_records
from statecore.images.versions.table import RecordTable


class VersionRunBuilder:
    """All records of an offset range, sorted by key and then by offset, within a memory budget.

    Args:
        directory: where the runs are written (``records-00000.run``, ...); must exist.
        memory_budget: bytes to hold before a run is cut. One batch always fits.
        changelog: where the batches come from, for messages and for what the runs say.
        store: the store's name, for what the runs say.
        start: the offset that the first run begins at; see :class:`Run`.
    """

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
        self._cuts = RunRanges(start, RunOrigin(store, StoreKind.VERSIONED_KEY_VALUE, changelog))
        self._records = self._null_keys = self._peak = 0
        self._stream_time = -1
        self._table = RecordTable()

    @property
    def statistics(self) -> RunStatistics:
        """What was seen so far; ``stream_time`` is the greatest timestamp of a record with a key."""
        return RunStatistics(
            self._records, self._null_keys + self._table.null_keys, self._peak, 0, self._stream_time, 0
        )

    def add(self, batch: pa.RecordBatch) -> None:
        """Take a batch of the changelog's columns; batches come in offset order.

        The batch is held by reference for a while: its buffers must not be written to afterwards.

        Raises:
            Invalid: a record cannot be one of a versioned store.
            Capacity: the directory has no room for a run that had to be cut.
        """
        if not batch.num_rows:
            return
        if self._table.bytes_to_sort > self._budget:
            self._cut()
        records = checked_records(batch, self._format, self._changelog)
        times = int64_values(records.timestamps)
        if records.keys.null_count:  # a store never sees them
            times = np.where(valid_mask(records.keys), times, -1)
        stream_times = np.maximum(np.maximum.accumulate(times), self._stream_time)
        self._stream_time = int(stream_times[-1])
        self._table.add_records(records, stream_times)
        self._records += batch.num_rows
        self._cuts.next = last_offset(batch) + 1
        self._peak = max(self._peak, self._table.bytes_to_sort)

    def finish(self, end: int | None = None, written: Callable[[float], None] | None = None) -> list[RunFile]:
        """Write what is left and return all runs, in offset order; none when no record has a key.

        Args:
            end: where the last run ends, if that is not just after the last record.
            written: told now and then which share of what is left has been written, 0 to 1. What it raises stops this.

        Raises:
            Capacity: the directory has no room.
        """
        self._cuts.next = self._cuts.next if end is None else end
        self._cut()
        if written is not None:
            written(1.0)
        return list(self._cuts.runs)

    def _cut(self) -> None:
        if self._table.keys:
            path = self._directory / f"records-{len(self._cuts.runs):05d}.run"
            self._cuts.add(self._table.write(path), self._stream_time)
        self._null_keys += self._table.null_keys
        self._table = RecordTable()


def build_version_runs(
    directory: Path,
    runs_by_range: Sequence[tuple[int, Sequence[RunFile]]],
    history_retention_ms: int,
    segment_interval_ms: int,
    memory_budget: int = DEFAULT_MEMORY_BUDGET,
) -> list[RunFile]:
    """Replay the records of one partition and write its rows as SST files that share no key.

    Args:
        directory: where the files are written; must exist.
        runs_by_range: for each offset range, in offset order: its stream time (``RunStatistics.stream_time``) and its
            runs. Ranges without runs count too.
        history_retention_ms: the store's history retention, which is its grace period too.
        segment_interval_ms: the store's segment interval (:func:`statecore.formats.segments.default_segment_interval`).
        memory_budget: bytes to use; the rows of one key always fit.

    Returns:
        The files: rows of older segments first, the latest rows last; none when no row is left.

    Raises:
        Corrupted: a file of records is missing, or not what it was when it was finished.
        Capacity: no room.
        Invalid: the directory cannot be written.
    """
    mapped, stream_time = [], -1
    for of_range, runs in runs_by_range:
        for run in runs:
            mapped.append((stream_time, map_records(run)))
        stream_time = max(stream_time, of_range)
    rows = replay(
        mapped,
        stream_time=stream_time,
        history_retention_ms=history_retention_ms,
        segment_interval_ms=segment_interval_ms,
        memory_budget=memory_budget,
    )
    first = first_live_segment(stream_time, history_retention_ms, segment_interval_ms)
    with RowFiles(directory, first_live=first, last=max(0, stream_time) // segment_interval_ms) as files:
        for part in rows:
            files.add(part)
        return files.finish()


def warm() -> None:
    """Load the kernels (compile them on the first use of an installation), so that a first batch does not wait."""
    kernel.warm()
    versions_kernel.warm()
