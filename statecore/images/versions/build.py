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

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statecore.formats.kinds import StoreKind
from statecore.formats.registry import row_format
from statecore.formats.row_format import Records, int64_values, valid_mask
from statecore.formats.segments import Segmentation
from statecore.formats.topic_partition import TopicPartition
from statecore.images.chunks import EvenChunks
from statecore.images.kernels import kernel
from statecore.images.key_table import Chunk, KeyTable
from statecore.images.model import RunFile, RunOrigin
from statecore.images.run_writer import RunWriter
from statecore.images.runs import DEFAULT_MEMORY_BUDGET, RunRanges, RunStatistics, checked_records, last_offset
from statecore.images.sst import CHUNK_BYTES, CHUNK_ROWS
from statecore.images.versions import kernel as versions_kernel
from statecore.images.versions.replay import Rows, replay
from statecore.images.versions.sorted_records import SortedRecords, map_records, write_records
from statecore.kernels.library import address_of

SLICE_BYTES = 64 << 20
"""Bytes of finished rows held at once. Where files are divided by slices of keys, a slice has as many whatever the
memory budget, because another slice is another file."""

MOST_FILES = 64  # Most files open at once

# Of a record, besides the batches: its position, target, two times, value position, stream time.
_BYTES_PER_RECORD = 40
_BYTES_AT_ONCE = 1 << 20


class RecordTable(KeyTable):
    """A key table that keeps every record, not only the last of each key, with its stream time."""

    def __init__(self) -> None:
        super().__init__(timestamps=True)
        self._stream_times: list[npt.NDArray[np.int64]] = []
        self._records = 0

    @property
    def bytes_to_sort(self) -> int:
        """Memory in use, plus the memory that sorting needs."""
        return self.bytes + self._records * _BYTES_PER_RECORD

    def add_records(self, records: Records, stream_times: npt.NDArray[np.int64]) -> None:
        """Hold the records of a batch that is not empty, by reference, with their stream times (ms)."""
        self._stream_times.append(np.ascontiguousarray(stream_times))
        self._records += len(stream_times)
        self.add(records.keys, records.values, records.timestamps)

    def write(self, path: Path) -> RunFile:
        """Write the records with a key, of which there must be at least one, as a file of sorted records."""
        ids = self.in_key_order(np.arange(self.keys, dtype=np.uint32))
        first_records, where = self._sorted(ids)
        count, batches = len(where), self._batches()
        streams = np.array([address_of(one) for one in self._stream_times], np.int64)
        times, stream_times, places = (
            np.empty(count, np.int64),
            np.empty(count, np.int64),
            np.empty(count + 1, np.int64),
        )
        versions_kernel.run(
            "describe_records",
            batches=batches,
            where=where,
            count=count,
            stream=streams,
            times=times,
            stream_times=stream_times,
            places=places,
        )
        key_offsets = np.zeros(len(ids) + 1, np.int64)
        keys = np.empty(int(self._lengths(ids).sum()), np.uint8)
        versions_kernel.run(
            "gather_keys",
            entries=self._entries,
            arena=self._arena,
            ids=ids,
            count=len(ids),
            offsets=key_offsets,
            keys=keys,
        )
        records = SortedRecords(key_offsets, keys, first_records, times, stream_times, places)
        return write_records(path, records, _values(batches, where, places))

    def _sorted(self, ids: npt.NDArray[np.uint32]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Index of the first record of each key, in the order of the ids, and the position of each record."""
        batches = [held.ids for held in self._held if held is not None]  # a table that never shrinks has all of them
        counts = np.zeros(self.keys, np.int64)
        for batch in batches:
            versions_kernel.run("count_records", ids=batch, rows=len(batch), counts=counts)
        first_records = np.zeros(len(ids) + 1, np.int64)
        np.cumsum(counts[ids], out=first_records[1:])
        counts[ids] = first_records[:-1]
        where = np.empty(int(first_records[-1]), np.int64)
        for number, batch in enumerate(batches):
            versions_kernel.run("place_records", ids=batch, rows=len(batch), batch=number, places=counts, out=where)
        return first_records, where


def _values(
    batches: npt.NDArray[np.int64], where: npt.NDArray[np.int64], places: npt.NDArray[np.int64]
) -> Iterator[npt.NDArray[np.uint8]]:
    """Yield the values in the order of the records, about a megabyte at a time."""
    starts = places >> 1
    low = 0
    while low < len(where):
        high = max(low + 1, int(np.searchsorted(starts, starts[low] + _BYTES_AT_ONCE, side="right")) - 1)
        values = np.empty(int(starts[high] - starts[low]), np.uint8)
        versions_kernel.run(
            "gather_values", batches=batches, where=where, places=places, low=low, high=high, values=values
        )
        yield values
        low = high


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


class RowFiles:
    """The SST files of one store being written: one for the latest rows, one for each segment.

    Rows come in key order, which is the order of each file; the segment id before the key separates the files. All
    files are open at once. Where a store has more live segments than files may be open, a file takes several
    neighbouring segments, and its rows of one slice of keys are sorted by segment; the next slice then needs a file of
    its own. Rows come in parts that depend on the memory; chunks and slices do not depend on it.

    A context manager that closes the files.
    """

    def __init__(self, directory: Path, *, first_live: int, last: int) -> None:
        self._directory = directory
        self._first = first_live
        self._width = max(1, -(-(last - first_live + 1) // MOST_FILES))
        self._open: dict[int, RunWriter] = {}
        self._chunks: dict[int, EvenChunks] = defaultdict(EvenChunks)
        self._done: list[RunFile] = []
        self._slices = 0

    @property
    def sliced(self) -> bool:
        """Whether the rows of each call get files of their own, besides the latest rows."""
        return self._width > 1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Close the files."""
        for file in self._open.values():
            file.__exit__()

    def add(self, rows: Rows) -> None:
        """Append rows, a slice of keys where :attr:`sliced`; keys ascend, within a call and between calls."""
        segments = rows.described[:, 0]
        lanes = np.where(segments < 0, -1, (segments - self._first) // self._width)
        if not self.sliced:
            order = np.argsort(lanes.astype(np.int16), kind="stable")
        else:
            self._finish([lane for lane in self._open if lane >= 0])
            order = np.argsort(segments, kind="stable")
        found, starts = np.unique(lanes[order], return_index=True)
        for lane, low, high in zip(found.tolist(), starts, [*starts[1:], len(order)], strict=True):
            file = self._open.get(lane)
            if file is None:
                file = self._open[lane] = RunWriter(self._path(lane))
            for part in _parts(rows, order[low:high]):
                for chunk in self._chunks[lane].add(_gathered(rows, part)):
                    file.add(chunk)
        self._slices += 1

    def finish(self) -> list[RunFile]:
        """Finish all files and return them as runs, those of older segments first and the latest rows last."""
        self._finish(list(self._open))
        return sorted(self._done, key=lambda run: run.min_key)

    def _finish(self, lanes: Sequence[int]) -> None:
        for lane in lanes:
            with self._open.pop(lane) as file:
                for chunk in self._chunks.pop(lane).rest():
                    file.add(chunk)
                self._done.append(file.finish())

    def _path(self, lane: int) -> Path:
        if lane < 0:
            return self._directory / "latest.sst"
        suffix = f"-{self._slices:05d}" if self.sliced else ""
        return self._directory / f"segment-{self._first + lane * self._width}{suffix}.sst"


def _parts(rows: Rows, order: npt.NDArray[np.int64]) -> Iterator[npt.NDArray[np.int64]]:
    """Split rows into parts that stay in the cache while they are written."""
    ends = np.cumsum(rows.described[order, 2] + rows.described[order, 3])
    low = 0
    while low < len(order):
        before = int(ends[low - 1]) if low else 0
        high = min(low + CHUNK_ROWS, int(np.searchsorted(ends, before + CHUNK_BYTES, side="right")))
        high = max(high, low + 1)
        yield order[low:high]
        low = high


def _gathered(rows: Rows, part: npt.NDArray[np.int64]) -> Chunk:
    key_bytes, value_bytes = rows.described[part, 2:].sum(axis=0).tolist()
    key_offsets, value_offsets = np.zeros(len(part) + 1, np.int64), np.zeros(len(part) + 1, np.int64)
    keys, values = np.empty(key_bytes, np.uint8), np.empty(value_bytes, np.uint8)
    part = np.ascontiguousarray(part)
    versions_kernel.run(
        "gather_rows",
        out=rows.described,
        arena=rows.arena,
        order=part,
        count=len(part),
        key_offsets=key_offsets,
        keys=keys,
        value_offsets=value_offsets,
        values=values,
    )
    valid, timestamps = np.ones(len(part), np.uint8), np.zeros(len(part), np.int64)  # no deletes and no timestamps here
    return Chunk(key_offsets, keys, value_offsets, values, valid, timestamps)


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
