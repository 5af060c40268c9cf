"""Writes finished rows of a versioned store as SST files: one for the latest rows, one for each segment.

Rows come in key order, which is the order of each file; the segment id before the key separates the files. All files
are open at once. Where a store has more live segments than files may be open, a file takes several neighbouring
segments, and its rows of one slice of keys are sorted by segment; the next slice then needs a file of its own.

Rows come in parts that depend on the memory; chunks and slices do not depend on it.
"""

from __future__ import annotations

import statecore.extras.pipeline

from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt

from statecore.images.chunks import EvenChunks
from statecore.images.key_table import Chunk
from statecore.images.model import RunFile
from statecore.images.run_writer import RunWriter
from statecore.images.sst import CHUNK_BYTES, CHUNK_ROWS
from statecore.images.versions import kernel
from statecore.images.versions.replay import Rows

MOST_FILES = 64  # Most files open at once


class RowFiles:
    """The SST files of one store being written; a context manager that closes the files."""

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
    kernel.run(
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
