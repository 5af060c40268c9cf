"""Writes a run: chunks of rows in key order go in, one SST file comes out, with what it says of itself."""

from __future__ import annotations

import statecore.extras.pipeline

from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import Self

from statecore.filesystem import sync_file
from statecore.images.digest import Digest
from statecore.images.key_table import Chunk
from statecore.images.model import RunFile, RunFormat
from statecore.images.sst import ColumnarSstWriter


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


def write_run_of_any(path: Path, chunks: Iterable[Chunk]) -> RunFile | None:
    """As :func:`write_run`; ``None``, and no file, where there are no rows, and no half of one where it fails."""
    left = iter(chunks)
    first = next(left, None)
    if first is None:
        return None
    try:
        return write_run(path, chain([first], left))
    except BaseException:
        path.unlink(missing_ok=True)  # half a run is of no use, and looks like one
        raise
