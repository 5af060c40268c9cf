"""An unnamed file of blocks that disappears with the process.

All blocks have the same size, and freed ones are reused, so the file is as large as its greatest content, whatever the
number of its users. The CRC-32C of each block stays in memory, so that zeros or another block that the disk returns are
detected.
"""

from __future__ import annotations

import statecore.extras.pipeline

import os
import tempfile
import weakref
from array import array
from collections.abc import Sequence
from pathlib import Path

from crc32c import crc32c

from statecore.errors import Retryable
from statecore.system_errors import write_error

_BLOCKS_AT_ONCE = 256


class ScratchFile:
    """Blocks on disk."""

    def __init__(self, directory: Path, block: int) -> None:
        self._directory = directory
        self._block = block
        self._free = array("q")
        self._checksums = array("I")
        try:
            self._file = _unnamed(directory)
        except OSError as error:
            raise write_error(directory, error) from error
        self._finalizer = weakref.finalize(self, os.close, self._file)

    @property
    def size(self) -> int:
        """Size of the file in bytes."""
        return len(self._checksums) * self._block

    def write(self, blocks: Sequence[memoryview]) -> list[int]:
        """Write blocks; returns their numbers."""
        reused = min(len(self._free), len(blocks))
        numbers = [self._free.pop() for _ in range(reused)]
        for number, data in zip(numbers, blocks, strict=False):
            self._checksums[number] = crc32c(data)
            self._write([data], number)
        for first in range(reused, len(blocks), _BLOCKS_AT_ONCE):
            some, at = blocks[first : first + _BLOCKS_AT_ONCE], len(self._checksums)
            self._checksums.extend(map(crc32c, some))
            numbers += range(at, at + len(some))
            self._write(some, at)
        return numbers

    def _write(self, parts: Sequence[memoryview], number: int) -> None:
        at, size = number * self._block, len(parts) * self._block
        try:
            written = os.pwritev(self._file, parts, at)
            if written < size:  # a second write reports the reason
                rest = memoryview(b"".join(parts))
                while written < size:
                    written += os.pwrite(self._file, rest[written:], at + written)
        except OSError as error:
            raise write_error(self._directory, error) from error

    def take(self, numbers: Sequence[int], into: memoryview) -> None:
        """Read blocks into a buffer, one after the other, and free them."""
        block, at = self._block, 0
        for number in numbers:
            data = into[at : at + block]
            try:
                got = os.preadv(self._file, [data], number * block)
            except OSError as error:
                raise self._lost(f"cannot be read ({error.strerror})") from error
            if got < block or crc32c(data) != self._checksums[number]:
                raise self._lost("differ from what was written")
            at += block
        self._free.extend(numbers)

    def _lost(self, why: str) -> Retryable:
        return Retryable(
            f"Records spilled to a scratch file in {self._directory} {why}.",
            code="scratch-file-damaged",
            action="Check the disk and memory of this host, then run the job again.",
            path=str(self._directory),
        )

    def close(self) -> None:
        """Close the file; idempotent. It is also closed with this object."""
        self._finalizer()


def _unnamed(directory: Path) -> int:
    try:
        return os.open(directory, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except (AttributeError, OSError):  # not supported by the system or the file system
        made, name = tempfile.mkstemp(dir=directory)
        Path(name).unlink()
        return made
