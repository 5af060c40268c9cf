"""Builds runs: changelog batches in offset order go in, SST files with the last write of each key come out.

No record becomes a Python object on the way in. ``add`` interns keys in a hash table
(:mod:`statecore.images.kernels.kernel`) and holds the batches by reference; when the memory budget is reached, values
that were overwritten since are dropped, and if that does not halve what is held, all of it and every later record go to
the disk, divided by key range (:mod:`.spilled_table`). ``finish`` takes one key range after the other, orders the
surviving keys, gathers keys and values into contiguous buffers, turns values into rows of the store's kind, and writes
the SST. Where the store has segments, it writes one SST for each, and none for those that have expired by what was seen
so far.

So a builder makes one run for each database. Only one that cuts (:class:`Overflow`) makes several, which overlap:
applied in their order, the later one wins.
"""

from __future__ import annotations

import statecore.extras.pipeline

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statecore.errors import Invalid
from statecore.formats.kinds import StoreKind
from statecore.formats.registry import row_format
from statecore.formats.segments import first_live_segment
from statecore.formats.topic_partition import TopicPartition
from statecore.images.chunks import EvenChunks, chunks_of, columns_of, stamped, validity_of
from statecore.images.external_key_table import ExternalKeyTable
from statecore.images.kernels import kernel
from statecore.images.key_table import Chunk, Columns, KeyTable
from statecore.images.model import Below, RunFile, RunOrigin, Segmentation, segment_order
from statecore.images.records import checked_records, last_offset
from statecore.images.run_ranges import RunRanges
from statecore.images.run_writer import RunWriter

DEFAULT_MEMORY_BUDGET = 512 << 20
"""Bytes of batches and table that a builder holds before it drops what was overwritten, or puts all on the disk."""


@dataclass(frozen=True)
class RunStatistics:
    """What a builder saw.

    Attributes:
        records: records added.
        null_keys: records skipped because their key is null.
        peak_bytes: most bytes held between batches: of batches and table, or of the buffers of what is on the disk.
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


class Overflow(StrEnum):
    """What a builder does when its budget does not hold the keys."""

    SPILL = "spill"
    """Keep all records on disk from then on, divided by key range, and write one run of them when all have come."""

    CUT = "cut"
    """Write what is held as a run, and begin another, which overlaps it. Kinds with index rows always do this."""


class RunBuilder:
    """Last write per key, in key order, within a memory budget.

    Args:
        kind: what the store is; decides the row format.
        directory: where the runs are written (``run-00000.sst``, ...); must exist.
        memory_budget: bytes to hold before overwritten values are dropped, and then before something has to go to the
            disk. One batch always fits.
        below: which databases may have rows below. There deletes are written; elsewhere only after an earlier run of
            this builder in the same database.
        segmentation: how the rows are divided by time; required where the kind has segments.
        changelog: where the batches come from, for messages and for what the runs say.
        store: the store's name, for what the runs say.
        start: the offset that the first runs begin at; see :class:`Run`.
        stream_time: greatest time in ms that was seen before that offset; -1 without one.
        overflow: what is done when the budget does not hold the keys.

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
        overflow: Overflow = Overflow.SPILL,
    ) -> None:
        self._format = row_format(kind)
        if kind.is_versioned:
            raise Invalid(
                f"Runs of a {kind.value} store hold all its records, not the last write of each key.",
                code="kind-unsupported",
                action="Read them with a VersionRunBuilder; such a store is rebuilt, and never advanced by a run.",
                kind=kind.value,
            )
        if (self._format.time_at is not None) and segmentation is None:
            raise ValueError(f"a run of a {kind.value} store needs its segmentation")
        self._segmentation = segmentation
        self._changelog = changelog
        self._directory = directory
        self._budget = memory_budget
        self._below = below
        self._overflow = overflow
        self._cuts = RunRanges(start, RunOrigin(store, kind, changelog))
        self._files = 0
        self._records = self._null_keys = self._peak = self._shrinks = self._expired = 0
        self._stream_time = stream_time
        self._table = self._new_table()
        self._spilled: ExternalKeyTable | None = None
        self._failed = False

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
            Invalid: a record cannot be one of this kind of store, or the directory cannot be written.
            Capacity: the directory has no room for what the budget does not hold.
            Retryable: what lay on the disk is not what was written.
        """
        with self._whole():
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
            self._cuts.next = last_offset(batch) + 1
        self._peak = max(self._peak, self._table.bytes if self._spilled is None else self._spilled.memory)

    def finish(self, end: int | None = None, written: Callable[[float], None] | None = None) -> list[RunFile]:
        """Write what is left and return all runs, in the order they must be applied; none when no row survived.

        Args:
            end: where the last run ends, if that is not just after the last record.
            written: told now and then which share of what is left has been written, 0 to 1. What it raises stops this.

        Raises:
            Capacity: the directory has no room.
            Invalid: the directory cannot be written, or the keys are too many and too long for one file.
            Retryable: what lay on the disk is not what was written.
        """
        with self._whole():
            self._cuts.next = self._cuts.next if end is None else end
            self._cut(written)
        return list(self._cuts.runs)

    @contextmanager
    def _whole(self) -> Iterator[None]:
        """Refuse whoever goes on with a builder that failed: some of its records may be gone."""
        if self._failed:
            raise RuntimeError("this builder failed before, and may have lost records: make another one")
        self._failed = True
        yield
        self._failed = False

    def _new_table(self) -> KeyTable:
        return KeyTable(timestamps=self._format.stamped)

    def _make_room(self) -> None:
        self._table.shrink()
        self._shrinks += 1
        if self._table.bytes <= self._budget // 2:
            return
        if self._overflow is Overflow.CUT or self._format.indexed:
            self._cut()
        else:
            self._null_keys += self._table.null_keys
            table, self._table = self._table, self._new_table()
            self._spilled = ExternalKeyTable(self._directory, self._budget, table, self._new_table)

    def _cut(self, written: Callable[[float], None] | None = None) -> None:
        """Write all that is held, a run for each database."""
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
            self._cuts.add(run, self._stream_time)
        self._files += 1

    def _tables(self) -> Iterator[KeyTable]:
        """All keys that are held, in tables that follow one another in key order."""
        table, self._table = self._table, self._new_table()
        self._null_keys += table.null_keys
        if self._spilled is None:
            yield table
            return
        yield from self._spilled.tables()
        self._spilled.close()
        self._spilled = None

    def _by_segment(self, table: KeyTable) -> Iterator[tuple[int | None, npt.NDArray[np.uint32]]]:
        """The keys to write of each live segment, oldest first; all of them where the store has none."""
        if self._format.time_at is None or self._segmentation is None:
            ids = table.survivors(tombstones=self._keeps_deletes(None))
            if len(ids):
                yield None, ids
            return
        of, time_at = self._segmentation, self._format.time_at
        first = first_live_segment(self._stream_time, of.retention_ms, of.interval_ms)
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
        """Whether a delete must reach rows of this database that lie below, or are in a run that was cut before."""
        return self._below.reaches(segment) or self._cuts.wrote(segment)

    def _rows(self, table: KeyTable, ids: npt.NDArray[np.uint32]) -> Iterator[Chunk]:
        ids = table.in_key_order(ids)
        index = self._index(table, ids)
        for chunk in chunks_of(table, ids):
            yield stamped(chunk) if self._format.stamped else chunk
        if index is not None:
            yield from chunks_of(index, index.in_key_order(index.survivors(tombstones=True)))

    def _index(self, table: KeyTable, ids: npt.NDArray[np.uint32]) -> KeyTable | None:
        """The rows that index these, empty values or deletes as theirs; ``None`` where the kind has no index."""
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
    """Load the kernels (compile them on the first use of an installation), so that a first batch does not wait."""
    kernel.warm()
