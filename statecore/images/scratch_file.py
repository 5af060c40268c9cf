"""A file of blocks that has no name and goes with the process: memory on disk for who has too little of it.

All blocks have the same size, and one that is freed is written over, so the file is as large as what it held at most,
whatever the number of its users. A block::

    uint32 bytes of the data   uint32 CRC-32C of them   data                                  (little-endian)

The CRC begins with the block's number: zeros, or a block in another's place, are not taken for what was written.
"""

from __future__ import annotations

import statecore.extras.pipeline

import os
import struct
import tempfile
import weakref
from array import array
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from crc32c import crc32c

from statecore.errors import Retryable
from statecore.system_errors import write_error

_HEADER = struct.Struct("<II")
_BLOCKS_AT_ONCE = 256


class ScratchFile:
    """Blocks on disk.

    Args:
        directory: where the file is made; must exist.
        block: bytes of a block.

    Attributes:
        capacity: bytes of data that a block holds at most.

    Raises:
        Capacity: the directory has no room.
        Invalid: the file cannot be made.
    """

    def __init__(self, directory: Path, block: int) -> None:
        self.capacity = block - _HEADER.size
        self._directory = directory
        self._block = block
        self._free = array("q")
        self._blocks = 0
        try:
            self._file = _unnamed(directory)
        except OSError as error:
            raise write_error(directory, error) from error
        self._finalizer = weakref.finalize(self, os.close, self._file)

    @property
    def size(self) -> int:
        """The size of the file."""
        return self._blocks * self._block

    def write(self, blocks: Sequence[memoryview]) -> list[int]:
        """Write blocks; returns their numbers.

        Args:
            blocks: the data of each; all but the last are full.

        Raises:
            Capacity: no room.
            Invalid: the file cannot be written.
        """
        reused = min(len(self._free), len(blocks))
        numbers = [self._free.pop() for _ in range(reused)]
        for number, data in zip(numbers, blocks, strict=False):
            self._write([_header(number, data), data], number)
        for first in range(reused, len(blocks), _BLOCKS_AT_ONCE):
            some = blocks[first : first + _BLOCKS_AT_ONCE]
            at, self._blocks = self._blocks, self._blocks + len(some)
            numbers += range(at, self._blocks)
            self._write([part for number, data in enumerate(some, at) for part in (_header(number, data), data)], at)
        return numbers

    def _write(self, parts: list[bytes | memoryview], number: int) -> None:
        at, size = number * self._block, sum(map(len, parts))
        try:
            written = os.pwritev(self._file, parts, at)
            if written < size:  # the system says why, if it is asked once more
                rest = memoryview(b"".join(parts))
                while written < size:
                    written += os.pwrite(self._file, rest[written:], at + written)
        except OSError as error:
            raise write_error(self._directory, error) from error

    def take(self, number: int, into: npt.NDArray[np.uint8]) -> int:
        """Read a block and free it.

        Args:
            number: the block.
            into: room for as much as a block holds.

        Returns:
            How many bytes it has.

        Raises:
            Retryable: it cannot be read, or is not what was written.
        """
        header, failure = bytearray(_HEADER.size), None
        try:
            got = os.preadv(self._file, [header, into[: self.capacity].data], number * self._block)
        except OSError as error:
            got, failure = 0, error
        size, _ = _HEADER.unpack(header)
        if got < _HEADER.size + size or size > self.capacity or _header(number, into[:size].data) != header:
            why = "are not what was written" if failure is None else f"cannot be read ({failure.strerror})"
            raise Retryable(
                f"Records that did not fit into memory and were kept in {self._directory} meanwhile {why}.",
                action="Check the disk and memory of this host, then run the job again.",
                path=str(self._directory),
            ) from failure
        self._free.append(number)
        return size

    def close(self) -> None:
        """Let go of the file; again is fine. It goes with this object, too."""
        self._finalizer()


def _header(number: int, data: memoryview) -> bytes:
    return _HEADER.pack(len(data), crc32c(data, (number + 1) & 0xFFFFFFFF))


def _unnamed(directory: Path) -> int:
    try:
        return os.open(directory, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except (AttributeError, OSError):  # not on this system, or not on this file system
        made, name = tempfile.mkstemp(dir=directory)
        Path(name).unlink()
        return made
