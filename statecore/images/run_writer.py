"""Writes a run: chunks of rows in key order go in, one SST file comes out, with what it says of itself."""

from __future__ import annotations

import statecore.extras.pipeline

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statecore.filesystem import sync_file
from statecore.formats.key_value import put_on_timestamps
from statecore.images.digest import Digest
from statecore.images.key_table import Chunk, Columns, KeyTable
from statecore.images.model import RunFile, RunFormat
from statecore.images.sst import ColumnarSstWriter

# Small enough that a chunk, its rows and their Python objects stay in the cache between the steps.
_ROWS_AT_ONCE = 4096
_BYTES_AT_ONCE = 1 << 20


class RunWriter:
    """An SST file that is being written. A context manager: leaving it lets go of the file, finished or not.

    Args:
        path: the file.

    Raises:
        Invalid: the file cannot be made.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._digest = Digest()
        self._writer = ColumnarSstWriter(path)
        self._first = self._last = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """Let go of the file, finished or not."""
        self._writer.__exit__(*error)

    def add(self, chunk: Chunk) -> None:
        """Append rows, values as they lie in the database; keys ascend from chunk to chunk.

        Raises:
            Capacity: no room for the file.
            Invalid: the directory cannot be written, or the keys are too many and too long for one file.
        """
        digest = self._digest
        if not digest.rows and not digest.deletes:
            self._first = chunk.keys[: chunk.key_offsets[1]].tobytes()
        self._last = chunk.keys[chunk.key_offsets[-2] :].tobytes()
        mask = None if chunk.valid.all() else chunk.valid
        digest.add(chunk.key_offsets, chunk.keys, chunk.value_offsets, chunk.values, mask)
        self._writer.add(chunk.key_offsets, chunk.keys, chunk.value_offsets, chunk.values, mask)

    def finish(self) -> RunFile:
        """The run, durable when this returns.

        Raises:
            Capacity, Invalid: as :meth:`add`.
        """
        sha256 = self._writer.finish()
        sync_file(self._path)
        digest = self._digest
        return RunFile(
            path=self._path,
            format=RunFormat.SST,
            rows=digest.rows,
            deletes=digest.deletes,
            bytes=digest.bytes,
            file_bytes=self._path.stat().st_size,
            sha256=sha256,
            digest=digest.hexdigest(),
            min_key=self._first.hex(),
            max_key=self._last.hex(),
        )


def write_run(path: Path, chunks: Iterable[Chunk]) -> RunFile:
    """Write rows in key order as one SST file, durable when this returns.

    Args:
        path: the file.
        chunks: the rows, values as they lie in the database.

    Raises:
        Capacity: no room for the file.
        Invalid: the directory cannot be written, or the keys are too many and too long for one file.
    """
    with RunWriter(path) as writer:
        for chunk in chunks:
            writer.add(chunk)
        return writer.finish()


def columns_of(chunk: Chunk) -> Columns:
    """A chunk as Arrow columns, over the same buffers."""
    validity, nulls = validity_of(chunk)
    count = len(chunk.valid)
    binary = pa.large_binary()
    return Columns(
        pa.Array.from_buffers(binary, count, [None, pa.py_buffer(chunk.key_offsets), pa.py_buffer(chunk.keys)]),
        pa.Array.from_buffers(
            binary, count, [validity, pa.py_buffer(chunk.value_offsets), pa.py_buffer(chunk.values)], nulls
        ),
        pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(chunk.timestamps)]),
    )


def stamped(chunk: Chunk) -> Chunk:
    """The chunk with each record's timestamp in front of its value."""
    columns, count = columns_of(chunk), len(chunk.valid)
    _, offsets, data = put_on_timestamps(columns.values, columns.timestamps).buffers()
    return chunk._replace(
        value_offsets=np.frombuffer(offsets, np.int64)[: count + 1], values=np.frombuffer(data, np.uint8)
    )


def validity_of(chunk: Chunk) -> tuple[pa.Buffer | None, int]:
    """Arrow's validity bitmap of a chunk, if it has deletes, and their number."""
    nulls = int(len(chunk.valid) - np.count_nonzero(chunk.valid))
    return (pa.py_buffer(np.packbits(chunk.valid, bitorder="little")) if nulls else None), nulls


def chunks_of(table: KeyTable, ids: npt.NDArray[np.uint32]) -> Iterator[Chunk]:
    """Keys and last values of a table in the order of ids, as chunks."""
    return table.gather(ids, rows_at_once=_ROWS_AT_ONCE, bytes_at_once=_BYTES_AT_ONCE)
