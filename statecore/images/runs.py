"""Builds runs: changelog batches in offset order go in, SST files with the last write of each key come out.

No record becomes a Python object on the way in. ``add`` interns keys in a hash table (:mod:`statecore.images.kernel`)
and holds the batches by reference; when the memory budget is reached, values that were overwritten since are dropped,
and if that does not halve what is held, the run is cut there and a new one begins. ``finish`` orders the surviving
keys, gathers keys and values into contiguous buffers, turns values into rows of the store's kind, and writes the SST.
Where the store has segments, it writes one SST for each, and none for those that have expired by what was seen so far.

Runs of one builder may overlap; applied in their order, the later one wins.
"""

from __future__ import annotations

import statecore.extras.pipeline

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statecore.errors import Invalid
from statecore.filesystem import sync_file
from statecore.formats.key_value import put_on_timestamps
from statecore.formats.kinds import StoreKind
from statecore.formats.registry import row_format
from statecore.formats.segments import first_live_segment
from statecore.formats.topic_partition import TopicPartition
from statecore.images import kernel
from statecore.images.cuts import Cuts
from statecore.images.digest import Digest
from statecore.images.key_table import Chunk, KeyTable
from statecore.images.model import Below, RunFile, RunFormat, RunOrigin, Segmentation
from statecore.images.records import checked_records, last_offset
from statecore.images.sst import ColumnarSstWriter

DEFAULT_MEMORY_BUDGET = 512 << 20
"""Bytes of batches and table that a builder holds before it drops what was overwritten, or cuts a run."""

# Small enough that a chunk, its rows and their Python objects stay in the cache between the steps.
_ROWS_AT_ONCE = 4096
_BYTES_AT_ONCE = 1 << 20


@dataclass(frozen=True)
class RunStatistics:
    """What a builder saw.

    Attributes:
        records: records added.
        null_keys: records skipped because their key is null.
        peak_bytes: most bytes of batches and table held at once (buffers of the chunk being written not included).
        shrinks: how often overwritten values were dropped because the budget was reached.
        stream_time: greatest time of a key in ms where the store has segments, tombstones included; else -1.
        expired: rows that were not written because their segment had expired by that time.
    """

    records: int = 0
    null_keys: int = 0
    peak_bytes: int = 0
    shrinks: int = 0
    stream_time: int = -1
    expired: int = 0


class RunBuilder:
    """Last write per key, in key order, within a memory budget.

    Args:
        kind: what the store is; decides the row format.
        directory: where the runs are written (``run-00000.sst``, ...); must exist.
        memory_budget: bytes to hold before overwritten values are dropped or a run is cut. One batch always fits.
        below: which databases may have rows below. There deletes are written; elsewhere only after an earlier run of
            this builder in the same database.
        segmentation: how the rows are divided by time; required where the kind has segments.
        changelog: where the batches come from, for messages and for what the runs say.
        store: the store's name, for what the runs say.
        start: the offset that the first runs begin at; see :class:`Run`.
        stream_time: greatest time in ms that was seen before that offset; -1 without one.

    Raises:
        Invalid: no row format for this kind, or its rows depend on more than the last write (versioned stores).
    """

    def __init__(
        self,
        kind: StoreKind,
        directory: Path,
        *,
        memory_budget: int = DEFAULT_MEMORY_BUDGET,
        below: Below,
        segmentation: Segmentation | None = None,
        changelog: TopicPartition | None = None,
        store: str = "",
        start: int = 0,
        stream_time: int = -1,
    ) -> None:
        self._format = row_format(kind)
        if kind.is_versioned:
            raise Invalid(
                f"Runs of a {kind.value} store hold all its records, not the last write of each key.",
                action="Read them with a VersionRunBuilder; such a store is rebuilt, and never advanced by a run.",
            )
        if (self._format.time_at is not None) and segmentation is None:
            raise ValueError(f"a run of a {kind.value} store needs its segmentation")
        self._segmentation = segmentation
        self._changelog = changelog
        self._directory = directory
        self._budget = memory_budget
        self._below = below
        self._cuts = Cuts(start, RunOrigin(store, kind, changelog))
        self._files = 0
        self._records = self._null_keys = self._peak = self._shrinks = self._expired = 0
        self._stream_time = stream_time
        self._table = self._new_table()

    @property
    def statistics(self) -> RunStatistics:
        """What was seen so far."""
        return RunStatistics(
            self._records,
            self._null_keys + self._table.null_keys,
            self._peak,
            self._shrinks,
            self._stream_time,
            self._expired,
        )

    def add(self, batch: pa.RecordBatch) -> None:
        """Apply a batch of the changelog's columns; batches come in offset order.

        The batch is held by reference for a while: its buffers must not be written to afterwards.

        Raises:
            Invalid: a record cannot be one of this kind of store.
            Capacity: the directory has no room for a run that had to be cut.
        """
        if self._table.bytes > self._budget and self._table.keys:
            self._make_room()
        form = self._format
        records = checked_records(batch, form, self._changelog)
        if form.time_at is not None and batch.num_rows:
            self._stream_time = max(self._stream_time, int(form.times(records.keys).max()))
        self._table.add(form.row_keys(records.keys), form.row_values(records), records.timestamps)
        self._records += batch.num_rows
        if batch.num_rows:
            self._cuts.next = last_offset(batch) + 1
        self._peak = max(self._peak, self._table.bytes)

    def finish(self, end: int | None = None) -> list[RunFile]:
        """Write what is left and return all runs, in the order they must be applied; none when no row survived.

        Args:
            end: where the last run ends, if that is not just after the last record.

        Raises:
            Capacity: the directory has no room.
        """
        self._cuts.next = self._cuts.next if end is None else end
        self._cut()
        return list(self._cuts.runs)

    def _new_table(self) -> KeyTable:
        return KeyTable(timestamps=self._format.stamped)

    def _make_room(self) -> None:
        self._table.shrink()
        self._shrinks += 1
        if self._table.bytes > self._budget // 2:
            self._cut()

    def _cut(self) -> None:
        for segment, part in self._by_segment():
            suffix = "" if segment is None else f".{segment}"
            path = self._directory / f"run-{self._files:05d}{suffix}.sst"
            self._cuts.add(self._write(path, part, segment), self._stream_time)
        self._files += 1
        self._null_keys += self._table.null_keys
        self._table = self._new_table()

    def _by_segment(self) -> Iterator[tuple[int | None, npt.NDArray[np.uint32]]]:
        """The keys to write of each live segment, oldest first; all of them where the store has none."""
        if self._format.time_at is None or self._segmentation is None:
            ids = self._table.survivors(tombstones=self._keeps_deletes(None))
            if len(ids):
                yield None, ids
            return
        of, time_at = self._segmentation, self._format.time_at
        first = first_live_segment(self._stream_time, of.retention_ms, of.interval_ms)
        ids, live = self._table.survivors(tombstones=True), self._table.survivors(tombstones=False)
        has_value = np.zeros(self._table.keys, np.bool_)
        has_value[live] = True
        segments = self._table.times(ids, time_at) // of.interval_ms
        for segment in np.unique(segments).tolist():
            part = ids[segments == segment]
            if not self._keeps_deletes(segment):
                part = part[has_value[part]]
            if segment < first:
                self._expired += len(part)
            elif len(part):
                yield segment, part

    def _keeps_deletes(self, segment: int | None) -> bool:
        """Whether a delete must reach rows of this database that lie below, or were written by an earlier cut."""
        return self._below.reaches(segment) or self._cuts.wrote(segment)

    def _write(self, path: Path, ids: npt.NDArray[np.uint32], segment: int | None) -> RunFile:
        table = self._table
        ids = table.in_key_order(ids)
        index = self._index(table, ids)
        chunks = _chunks(table, ids)
        rows = (_stamped(chunk) for chunk in chunks) if self._format.stamped else chunks
        if index is not None:
            every = index.in_key_order(index.survivors(tombstones=True))
            rows = chain(rows, _chunks(index, every))
        run = write_run(path, rows)
        return run if segment is None else replace(run, segment=segment)

    def _index(self, table: KeyTable, ids: npt.NDArray[np.uint32]) -> KeyTable | None:
        """The rows that index these, empty values or deletes as theirs; ``None`` where the kind has no index."""
        if not self._format.indexed:
            return None
        index = KeyTable(timestamps=False)
        for chunk in _chunks(table, ids):
            buffers = [None, pa.py_buffer(chunk.key_offsets), pa.py_buffer(chunk.keys)]
            keys = self._format.index_keys(pa.Array.from_buffers(pa.large_binary(), len(chunk.valid), buffers))
            assert keys is not None
            validity, nulls = _validity(chunk)
            nothing = [validity, pa.py_buffer(np.zeros(len(keys) + 1, np.int32)), pa.py_buffer(b"")]
            index.add(keys, pa.Array.from_buffers(pa.binary(), len(keys), nothing, nulls), pa.nulls(0, pa.int64()))
        return index


def write_run(path: Path, chunks: Iterable[Chunk]) -> RunFile:
    """Write rows in key order as one SST file, durable when this returns.

    Args:
        path: the file.
        chunks: the rows, values as they lie in the database.

    Raises:
        Capacity: no room for the file.
        Invalid: the directory cannot be written, or the keys are too many and too long for one file.
    """
    digest = Digest()
    first = last = b""
    with ColumnarSstWriter(path) as writer:
        for chunk in chunks:
            if not digest.rows and not digest.deletes:
                first = chunk.keys[: chunk.key_offsets[1]].tobytes()
            last = chunk.keys[chunk.key_offsets[-2] :].tobytes()
            mask = None if chunk.valid.all() else chunk.valid
            digest.add(chunk.key_offsets, chunk.keys, chunk.value_offsets, chunk.values, mask)
            writer.add(chunk.key_offsets, chunk.keys, chunk.value_offsets, chunk.values, mask)
        sha256 = writer.finish()
    sync_file(path)
    return RunFile(
        path=path,
        format=RunFormat.SST,
        rows=digest.rows,
        deletes=digest.deletes,
        bytes=digest.bytes,
        file_bytes=path.stat().st_size,
        sha256=sha256,
        digest=digest.hexdigest(),
        min_key=first.hex(),
        max_key=last.hex(),
    )


def _stamped(chunk: Chunk) -> Chunk:
    """The chunk with each record's timestamp in front of its value."""
    validity, nulls = _validity(chunk)
    count = len(chunk.valid)
    values = pa.Array.from_buffers(
        pa.large_binary(), count, [validity, pa.py_buffer(chunk.value_offsets), pa.py_buffer(chunk.values)], nulls
    )
    timestamps = pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(chunk.timestamps)])
    _, offsets, data = put_on_timestamps(values, timestamps).buffers()
    return chunk._replace(
        value_offsets=np.frombuffer(offsets, np.int64)[: count + 1], values=np.frombuffer(data, np.uint8)
    )


def _validity(chunk: Chunk) -> tuple[pa.Buffer | None, int]:
    """Arrow's validity bitmap of a chunk, if it has deletes, and their number."""
    nulls = int(len(chunk.valid) - np.count_nonzero(chunk.valid))
    return (pa.py_buffer(np.packbits(chunk.valid, bitorder="little")) if nulls else None), nulls


def _chunks(table: KeyTable, ids: npt.NDArray[np.uint32]) -> Iterator[Chunk]:
    return table.gather(ids, rows_at_once=_ROWS_AT_ONCE, bytes_at_once=_BYTES_AT_ONCE)


def warm() -> None:
    """Load the kernels (compile them on the first use of an installation), so that a first batch does not wait."""
    kernel.warm()
