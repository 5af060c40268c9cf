"""Mapped files of runs: their blocks and key ranges.

A file of our own layout (:mod:`statecore.images.sst`) has an index entry for each data block, with a key that is no
less than the last one of its block and less than the first one of the next. So a key range is found, and a file is
divided, without reading a row.
"""

from __future__ import annotations

import statecore.extras.pipeline

import struct
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from statecore.errors import Corrupted
from statecore.filesystem import file_sha256
from statecore.images.kernels import kernel
from statecore.images.model import RunFile
from statecore.images.sst import FORMAT_VERSION, MAGIC, XXH64

_FOOTER_BYTES = 53
_TRAILER_BYTES = 5


class Table(NamedTuple):
    """A run's mapped file: its bytes, and start and end of its index entries (data blocks come before)."""

    data: npt.NDArray[np.uint8]
    entries: int
    entries_end: int
    blocks: int  # Number of index entries


class KeyRange(NamedTuple):
    """Keys from ``low`` on, without ``high``; ``None``: without an upper bound."""

    low: bytes = b""
    high: bytes | None = None


class IndexEntry(NamedTuple):
    """An index entry: its position, that of the next one, and key, offset and size of its data block."""

    at: int
    following: int
    key: bytes
    offset: int
    size: int


def open_table(run: RunFile, path: Path) -> Table:
    """Map the file of a run and find its index."""
    if path.stat().st_size < _FOOTER_BYTES:
        raise damaged(run, "is too short for an SST file")
    data = np.memmap(path, np.uint8, "r")
    footer = data[-_FOOTER_BYTES:].tobytes()
    version, magic = struct.unpack_from("<IQ", footer, 41)
    if magic != MAGIC:
        raise damaged(run, "does not end as an SST file does")
    if (version, footer[0]) != (FORMAT_VERSION, XXH64):
        raise damaged(run, f"is in format version {version} with checksums of type {footer[0]}, unlike a run")
    _, _, offset, size = _numbers(run, footer[1:41])
    room = len(data) - _FOOTER_BYTES - _TRAILER_BYTES
    if size < 8 or offset > room or size > room - offset:
        raise damaged(run, "has an index outside of the file")
    whole = data[offset : offset + size + 1]
    (checksum,) = struct.unpack("<I", data[offset + size + 1 : offset + size + _TRAILER_BYTES].tobytes())
    if whole[-1] or kernel.run("xxh64", address=whole, length=len(whole), seed=0) & 0xFFFFFFFF != checksum:
        raise damaged(run, "has an index whose checksum differs")
    (blocks,) = struct.unpack("<I", whole[-5:-1].tobytes())
    if not 0 < blocks <= (size - 4) // 4:
        raise damaged(run, "has an index without entries or with too many")
    return Table(data, offset, offset + size - 4 - 4 * blocks, blocks)


def _numbers(run: RunFile, data: bytes) -> list[int]:
    """The four numbers of a footer's handles."""
    numbers, number, shift = [], 0, 0
    for byte in data:
        number |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            numbers.append(number)
            number = shift = 0
    if len(numbers) < 4:
        raise damaged(run, "has a footer without handles")
    return numbers[:4]


def damaged(run: RunFile, how: str) -> Corrupted:
    """Error for a run that was changed or is malformed."""
    return Corrupted(
        f"The run {run.path} {how}.",
        code="run-damaged",
        action="Build the run again; if it happens twice, check the disk and memory of this host.",
        path=str(run.path),
    )


def check_present(run: RunFile) -> None:
    """Refuse a run whose file is missing or truncated, without reading it."""
    if not run.path.is_file():
        raise damaged(run, "is missing")
    size = run.path.stat().st_size
    if size != run.file_bytes:
        raise damaged(run, f"has {size:,} bytes instead of {run.file_bytes:,}")


def check_unchanged(run: RunFile) -> None:
    """Refuse a run whose file has other bytes than when it was finished."""
    if file_sha256(run.path) != run.sha256:
        raise damaged(run, "has changed since it was finished (its SHA-256 differs)")


def index_entry(run: RunFile, table: Table, block: int) -> IndexEntry:
    """Index entry of a block. Raises ``Corrupted`` for a malformed index."""
    data = table.data.data
    start = table.entries_end + 4 * block
    at = table.entries + int.from_bytes(data[start : start + 4], "little")
    following = table.entries_end
    if block + 1 < table.blocks:
        following = table.entries + int.from_bytes(data[start + 4 : start + 8], "little")
    if not table.entries <= at < following <= table.entries_end or data[at]:
        raise damaged(run, "has an index whose entries do not ascend")
    length, begin = _varint(run, data, at + 1, following)
    offset, behind = _varint(run, data, begin + length, following)
    size, _ = _varint(run, data, behind, following)
    return IndexEntry(at, following, bytes(data[begin : begin + length]), offset, size)


def first_block(run: RunFile, table: Table, key: bytes) -> int | None:
    """First block that may have a key of at least ``key``; ``None`` where all keys are less."""
    low, high = 0, table.blocks
    while low < high:
        middle = (low + high) // 2
        if index_entry(run, table, middle).key < key:
            low = middle + 1
        else:
            high = middle
    return None if low == table.blocks else low


def _varint(run: RunFile, data: memoryview, at: int, end: int) -> tuple[int, int]:
    number = shift = 0
    while at < end and shift < 63:
        byte = data[at]
        at += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number, at
        shift += 7
    raise damaged(run, "has an index entry that does not fit into the index")
