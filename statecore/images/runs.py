"""Builds runs: changelog batches in offset order to SST files with the last write of each key.

No record becomes a Python object. ``add`` interns keys in a hash table (:mod:`statecore.images.kernels.kernel`) and
holds batches by reference; when the memory budget is reached, overwritten values are dropped, and if that does not
halve the memory in use, all records, and every later one, are written to disk, divided by key range
(:mod:`.external_key_table`). ``finish`` takes one key range after the other, orders the surviving keys, gathers keys
and values into contiguous buffers, converts values to rows of the store's kind, and writes the SST. Where the store has
segments, it writes one SST for each, and none for those that have expired by the stream time so far.

So a builder makes one run for each database. Of kinds with index rows, which are not written to disk, it makes several
that overlap: applied in order, the later one wins.
"""

from __future__ import annotations

import statecore.extras.pipeline

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statecore.errors import Invalid
from statecore.formats.kinds import StoreKind
from statecore.formats.registry import row_format
from statecore.formats.row_format import Records, RowFormat
from statecore.formats.segments import Segmentation
from statecore.formats.topic_partition import TopicPartition
from statecore.images.chunks import EvenChunks, chunks_of, columns_of, stamped, validity_of
from statecore.images.external_key_table import ExternalKeyTable
from statecore.images.kernels import kernel
from statecore.images.key_table import Chunk, Columns, KeyTable
from statecore.images.model import BaseDatabases, RunFile, RunOrigin, segment_order
from statecore.images.run_writer import RunWriter

DEFAULT_MEMORY_BUDGET = 512 << 20
"""Bytes of batches and table that a builder holds before it drops overwritten values, or writes all records to disk."""


@dataclass(frozen=True)
class RunStatistics:
    """Statistics of a builder."""

    records: int = 0
    null_keys: int = 0  # records skipped because their key is null
    stream_time: int = -1  # greatest time of a key in ms where the store has segments, tombstones included; else -1
    expired: int = 0  # rows that were not written because their segment had expired by that time


class RunBuilder:
    """Last write per key, in key order, within a memory budget."""

    def __init__(
        self,
        kind: StoreKind,
        directory: Path,
        *,
        memory_budget: int = DEFAULT_MEMORY_BUDGET,
        base: BaseDatabases,
        segmentation: Segmentation | None = None,
        changelog: TopicPartition | None = None,
        store: str = "",
        start: int = 0,
        stream_time: int = -1,
    ) -> None:
        self._format = row_format(kind)
        if kind.is_versioned:
            raise Invalid(
                f"Runs of a {kind.value} store contain all its records, not the last write of each key.",
                code="kind-unsupported",
                action="Read them with a VersionRunBuilder; such a store is rebuilt, never advanced by a run.",
                kind=kind.value,
            )
        if (self._format.time_at is not None) and segmentation is None:
            raise ValueError(f"a run of a {kind.value} store needs its segmentation")
        self._segmentation = segmentation
        self._changelog = changelog
        self._directory = directory
        self._budget = memory_budget
        self._base = base
        # Whether it writes a run and begins another when the keys exceed the budget, instead of writing them to disk.
        self._cuts = self._format.indexed
        self._ranges = RunRanges(start, RunOrigin(store, kind, changelog))
        self._files = 0
        self._records = self._null_keys = self._expired = 0
        self._stream_time = stream_time
        self._table = self._new_table()
        self._spilled: ExternalKeyTable | None = None
        self._failed = False

    @property
    def statistics(self) -> RunStatistics:
        """Statistics so far."""
        return RunStatistics(self._records, self._null_keys + self._table.null_keys, self._stream_time, self._expired)

    def add(self, batch: pa.RecordBatch) -> None:
        """Apply a batch in offset order; its buffers, referenced for a while, must not be written to afterwards."""
        with self._fail_once():
            self._add(batch)

    def _add(self, batch: pa.RecordBatch) -> None:
        if self._table.bytes > self._budget and self._table.keys:
            self._make_room()
        form = self._format
        records = checked_records(batch, form, self._changelog)
        if form.time_at is not None and batch.num_rows:
            self._stream_time = max(self._stream_time, int(form.times(records.keys).max()))
        columns = Columns(form.row_keys(records.keys), form.row_values(records), records.timestamps)
        if self._spilled is None:
            self._table.add(*columns)
        else:
            self._null_keys += records.keys.null_count
            self._spilled.add(columns)
        self._records += batch.num_rows
        if batch.num_rows:
            self._ranges.next_offset = last_offset(batch) + 1

    def finish(self, end: int | None = None, written: Callable[[float], None] | None = None) -> list[RunFile]:
        """Write the remaining rows; return all runs, in the order they must be applied; none when no row survived."""
        with self._fail_once():
            self._ranges.next_offset = self._ranges.next_offset if end is None else end
            self._write_runs(written)
        return list(self._ranges.runs)

    @contextmanager
    def _fail_once(self) -> Iterator[None]:
        """Mark the builder as failed unless the block completes, and refuse a failed one: records may be lost."""
        if self._failed:
            raise RuntimeError("this builder failed before, and may have lost records: create a new one")
        self._failed = True
        yield
        self._failed = False

    def _new_table(self) -> KeyTable:
        return KeyTable(timestamps=self._format.stamped)

    def _make_room(self) -> None:
        self._table.shrink()
        if self._table.bytes <= self._budget // 2:
            return
        if self._cuts:
            self._write_runs()
        else:
            self._null_keys += self._table.null_keys
            table, self._table = self._table, self._new_table()
            self._spilled = ExternalKeyTable(self._directory, self._budget, table, self._new_table)

    def _write_runs(self, written: Callable[[float], None] | None = None) -> None:
        """Write all records held, one run for each database."""
        on_disk = 0 if self._spilled is None else self._spilled.written
        with ExitStack() as stack:
            writers: dict[int | None, RunWriter] = {}
            chunks: dict[int | None, EvenChunks] = defaultdict(EvenChunks)
            for table in self._tables():
                for segment, ids in self._by_segment(table):
                    if segment not in writers:
                        suffix = "" if segment is None else f".{segment}"
                        path = self._directory / f"run-{self._files:05d}{suffix}.sst"
                        writers[segment] = stack.enter_context(RunWriter(path))
                    for found in self._rows(table, ids):
                        for chunk in chunks[segment].add(found):
                            writers[segment].add(chunk)
                del table  # before the next one is loaded
                if written is not None and self._spilled is not None:
                    written(1 - self._spilled.written / max(1, on_disk))
            for segment, writer in writers.items():
                for chunk in chunks[segment].rest():
                    writer.add(chunk)
            made = [
                replace(writers[segment].finish(), segment=segment) for segment in sorted(writers, key=segment_order)
            ]
        for run in made:
            self._ranges.add(run, self._stream_time)
        self._files += 1

    def _tables(self) -> Iterator[KeyTable]:
        """Tables of all keys held, one after the other in key order."""
        table, self._table = self._table, self._new_table()
        self._null_keys += table.null_keys
        if self._spilled is None:
            yield table
            return
        yield from self._spilled.tables()
        self._spilled.close()
        self._spilled = None

    def _by_segment(self, table: KeyTable) -> Iterator[tuple[int | None, npt.NDArray[np.uint32]]]:
        """Keys to write for each live segment, oldest first; all keys for a store without segments."""
        if self._format.time_at is None or self._segmentation is None:
            ids = table.survivors(tombstones=self._keeps_deletes(None))
            if len(ids):
                yield None, ids
            return
        of, time_at = self._segmentation, self._format.time_at
        first = of.first_live(self._stream_time)
        ids, live = table.survivors(tombstones=True), table.survivors(tombstones=False)
        has_value = np.zeros(table.keys, np.bool_)
        has_value[live] = True
        segments = table.times(ids, time_at) // of.interval_ms
        for segment in np.unique(segments).tolist():
            part = ids[segments == segment]
            if not self._keeps_deletes(segment):
                part = part[has_value[part]]
            if segment < first:
                self._expired += len(part)
            elif len(part):
                yield segment, part

    def _keeps_deletes(self, segment: int | None) -> bool:
        """Whether deletes must hide older rows of this database, in a base or in an earlier run."""
        return self._base.may_have_rows(segment) or self._ranges.has_run(segment)

    def _rows(self, table: KeyTable, ids: npt.NDArray[np.uint32]) -> Iterator[Chunk]:
        ids = table.in_key_order(ids)
        index = self._index(table, ids)
        for chunk in chunks_of(table, ids):
            yield stamped(chunk) if self._format.stamped else chunk
        if index is not None:
            yield from chunks_of(index, index.in_key_order(index.survivors(tombstones=True)))

    def _index(self, table: KeyTable, ids: npt.NDArray[np.uint32]) -> KeyTable | None:
        """Index rows of some keys, with empty values or deletes; ``None`` where the kind has none."""
        if not self._format.indexed:
            return None
        index = KeyTable(timestamps=False)
        for chunk in chunks_of(table, ids):
            columns = columns_of(chunk)
            keys = self._format.index_keys(columns.keys)
            assert keys is not None
            validity, nulls = validity_of(chunk)
            nothing = [validity, pa.py_buffer(np.zeros(len(keys) + 1, np.int32)), pa.py_buffer(b"")]
            index.add(keys, pa.Array.from_buffers(pa.binary(), len(keys), nothing, nulls), pa.nulls(0, pa.int64()))
        return index


def warm() -> None:
    """Load the kernels (compiled on the first use of an installation), so that the first batch does not wait."""
    kernel.warm()


class RunRanges:
    """Tracks how far a builder has read, and the end of its last run in each database; :class:`Run` explains ranges."""

    def __init__(self, start: int, origin: RunOrigin) -> None:
        self.next_offset = start  # offset after the last record read
        self.runs: list[RunFile] = []  # runs written so far, in the order they are applied
        self._start = start
        self._origin = origin
        self._ends: dict[int | None, int] = {}

    def has_run(self, segment: int | None) -> bool:
        """Whether a run of this database was written."""
        return segment in self._ends

    def add(self, run: RunFile, stream_time: int) -> None:
        """Add a run with everything read since the previous run of its database."""
        start = self._ends.get(run.segment, self._start)
        ranged = replace(run, start=start, end=self.next_offset, stream_time=stream_time)
        self.runs.append(self._origin.of(ranged))
        self._ends[run.segment] = self.next_offset


def checked_records(batch: pa.RecordBatch, form: RowFormat, changelog: TopicPartition | None) -> Records:
    """Records of a batch, after checking that they can belong to a store of the format."""
    records = Records(
        batch.column("key"),
        batch.column("value"),
        batch.column("timestamp"),
        batch.column("headers") if form.needs_headers else None,
    )
    misfit = form.check(records)
    if misfit is None:
        return records
    offset = int(batch.column("offset")[misfit.row].as_py())
    place = f"offset {offset}" if changelog is None else f"{changelog} offset {offset}"
    where = {} if changelog is None else {"topic": changelog.topic, "partition": changelog.partition}
    raise Invalid(
        f"The record at {place} {misfit.why}: it is not a record of a {form.kind.value} store.",
        code="record-kind-mismatch",
        action="Check the store's kind and changelog in the spec; nothing was changed.",
        **where,
        offset=offset,
        kind=form.kind.value,
    )


def last_offset(batch: pa.RecordBatch) -> int:
    """Offset of the last record of a batch that is not empty."""
    return int(batch.column("offset")[batch.num_rows - 1].as_py())
