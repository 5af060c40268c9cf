"""Writes runs: chunks of rows in key order to one SST file and its description."""

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
    """An SST file being written; a context manager that closes the file. Raises ``Invalid`` if it cannot be created."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._digest = Digest()
        self._writer = ColumnarSstWriter(path)
        self._first = self._last = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """Close the file, finished or not."""
        self._writer.__exit__(*error)

    def add(self, chunk: Chunk) -> None:
        """Append rows with stored values; keys ascend from chunk to chunk."""
        digest = self._digest
        if not digest.rows and not digest.deletes:
            self._first = chunk.keys[: chunk.key_offsets[1]].tobytes()
        self._last = chunk.keys[chunk.key_offsets[-2] :].tobytes()
        mask = None if chunk.valid.all() else chunk.valid
        digest.add(chunk.key_offsets, chunk.keys, chunk.value_offsets, chunk.values, mask)
        self._writer.add(chunk.key_offsets, chunk.keys, chunk.value_offsets, chunk.values, mask)

    def finish(self) -> RunFile:
        """Finish the file; the run is durable when this returns. Raises as :meth:`add`."""
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
    """Write rows in key order, with stored values, as one SST file, durable when this returns."""
    with RunWriter(path) as writer:
        for chunk in chunks:
            writer.add(chunk)
        return writer.finish()


def write_run_of_any(path: Path, chunks: Iterable[Chunk]) -> RunFile | None:
    """As :func:`write_run`; ``None`` and no file without rows. A partial file is removed on failure."""
    left = iter(chunks)
    first = next(left, None)
    if first is None:
        return None
    try:
        return write_run(path, chain([first], left))
    except BaseException:
        path.unlink(missing_ok=True)  # a partial file could be mistaken for a run
        raise
