"""Builds runs: changelog batches in offset order go in, SST files with the last write of each key come out.

No record becomes a Python object on the way in. ``add`` interns keys in a hash table (:mod:`statecore.images.kernel`)
and holds the batches by reference; when the memory budget is reached, values that were overwritten since are dropped,
and if that does not halve what is held, the run is cut there and a new one begins. ``finish`` orders the surviving
keys, gathers keys and values into contiguous buffers, turns values into rows of the store's kind, and writes the SST.

Runs of one builder may overlap; applied in their order, the later one wins.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statecore.formats.key_value import row_prefix_bytes, to_rows
from statecore.formats.kinds import StoreKind
from statecore.images import kernel
from statecore.images.digest import Digest
from statecore.images.key_table import Chunk, KeyTable
from statecore.images.model import Run
from statecore.images.sst import ColumnarSstWriter
from statecore.images.sst_writer import RowSstWriter
from statecore.stores.files import sync_file

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
    """

    records: int = 0
    null_keys: int = 0
    peak_bytes: int = 0
    shrinks: int = 0


class RunBuilder:
    """Last write per key, in key order, within a memory budget.

    Args:
        kind: what the store is; decides the row format.
        directory: where the runs are written (``run-00000.sst``, ...); must exist.
        memory_budget: bytes to hold before overwritten values are dropped or a run is cut. One batch always fits.
        keep_tombstones: write deletes. Needed whenever something older lies below the run; the first run of a store
            built without a base needs none (later runs of this builder always have them).

    Raises:
        Invalid: no columnar row format for this kind.
    """

    def __init__(
        self,
        kind: StoreKind,
        directory: Path,
        *,
        memory_budget: int = DEFAULT_MEMORY_BUDGET,
        keep_tombstones: bool,
    ) -> None:
        self._timestamps = row_prefix_bytes(kind) > 0
        self._kind = kind
        self._directory = directory
        self._budget = memory_budget
        self._keep_tombstones = keep_tombstones
        self._runs: list[Run] = []
        self._records = self._null_keys = self._peak = self._shrinks = 0
        self._table = self._new_table()

    @property
    def statistics(self) -> RunStatistics:
        """What was seen so far."""
        return RunStatistics(self._records, self._null_keys + self._table.null_keys, self._peak, self._shrinks)

    def add(self, batch: pa.RecordBatch) -> None:
        """Apply a batch of the changelog's columns; batches come in offset order.

        The batch is held by reference for a while: its buffers must not be written to afterwards.

        Raises:
            Capacity: the directory has no room for a run that had to be cut.
        """
        if self._table.bytes > self._budget and self._table.keys:
            self._make_room()
        self._table.add(batch.column("key"), batch.column("value"), batch.column("timestamp"))
        self._records += batch.num_rows
        self._peak = max(self._peak, self._table.bytes)

    def finish(self) -> list[Run]:
        """Write what is left and return all runs, in the order they must be applied; none when no row survived.

        Raises:
            Capacity: the directory has no room.
        """
        self._cut()
        return list(self._runs)

    def _new_table(self) -> KeyTable:
        return KeyTable(timestamps=self._timestamps)

    def _make_room(self) -> None:
        self._table.shrink()
        self._shrinks += 1
        if self._table.bytes > self._budget // 2:
            self._cut()

    def _cut(self) -> None:
        table = self._table
        # A delete in a later run must reach the rows of the earlier ones.
        ids = table.survivors(tombstones=self._keep_tombstones or bool(self._runs))
        if len(ids):
            ids = table.in_key_order(ids)
            path = self._directory / f"run-{len(self._runs):05d}.sst"
            chunks = table.gather(ids, rows_at_once=_ROWS_AT_ONCE, bytes_at_once=_BYTES_AT_ONCE)
            self._runs.append(write_run(path, self._kind, chunks, longest_key=table.longest_key(ids)))
        self._null_keys += table.null_keys
        self._table = self._new_table()


def write_run(path: Path, kind: StoreKind, chunks: Iterable[Chunk], *, longest_key: int) -> Run:
    """Write chunks in key order as one SST file, durable when this returns.

    Args:
        path: the file.
        kind: what the store is; decides the row format.
        chunks: the rows.
        longest_key: bytes of the longest key; decides who writes the file.

    Raises:
        Capacity: no room for the file.
        Invalid: the directory cannot be written.
    """
    digest = Digest()
    columnar = longest_key <= ColumnarSstWriter.LONGEST_KEY
    first = last = b""
    with ColumnarSstWriter(path) if columnar else RowSstWriter(path) as writer:
        for chunk in chunks:
            values = _rows_of(kind, chunk)
            if not digest.rows and not digest.deletes:
                first = chunk.keys[: chunk.key_offsets[1]].tobytes()
            last = chunk.keys[chunk.key_offsets[-2] :].tobytes()
            mask = None if chunk.valid.all() else chunk.valid
            digest.add(chunk.key_offsets, chunk.keys, *values, mask)
            writer.add(chunk.key_offsets, chunk.keys, *values, mask)
        sha256 = writer.finish()
    sync_file(path)
    return Run(
        path=str(path),
        rows=digest.rows,
        deletes=digest.deletes,
        bytes=digest.bytes,
        file_bytes=path.stat().st_size,
        sha256=sha256,
        digest=digest.hexdigest(),
        min_key=first.hex(),
        max_key=last.hex(),
    )


def _rows_of(kind: StoreKind, chunk: Chunk) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    """Row values of a chunk as offsets and data."""
    if row_prefix_bytes(kind) == 0:
        return chunk.value_offsets, chunk.values
    nulls = int(len(chunk.valid) - np.count_nonzero(chunk.valid))
    validity = pa.py_buffer(np.packbits(chunk.valid, bitorder="little")) if nulls else None
    count = len(chunk.valid)
    values = pa.Array.from_buffers(
        pa.large_binary(), count, [validity, pa.py_buffer(chunk.value_offsets), pa.py_buffer(chunk.values)], nulls
    )
    timestamps = pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(chunk.timestamps)])
    keys = pa.Array.from_buffers(
        pa.large_binary(), count, [None, pa.py_buffer(chunk.key_offsets), pa.py_buffer(chunk.keys)]
    )
    rows = to_rows(kind, keys, values, timestamps)
    _, offsets, data = rows.buffers()
    return np.frombuffer(offsets, np.int64)[: count + 1], np.frombuffer(data, np.uint8)


def warm() -> None:
    """Load the kernels (compile them on the first use of an installation), so that a first batch does not wait."""
    kernel.warm()
