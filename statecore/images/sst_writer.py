"""Writes one SST file through rocksdict, from contiguous buffers: the way for any keys, and the measure of the other.

:mod:`statecore.images.sst` is several times faster, and used wherever its limit on key lengths allows.
``SstFileWriter`` takes one key and one value at a time, as ``bytes`` and nothing else. What can be chosen is how those
objects come to be: one ``struct.unpack`` over a chunk where all rows have one length, Arrow's conversion otherwise, and
``map`` over both lists, which keeps the loop in C.
"""

from __future__ import annotations

import statecore.extras.pipeline

import struct
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statecore.errors import StatecoreError
from statecore.filesystem import file_sha256
from statecore.stores.options import data_options
from statecore.system_errors import system_error


class RowSstWriter:
    """An SST file being written by RocksDB; keys must come in ascending order.

    Args:
        path: the file. If it exists it is unlinked, not written over: it may be a second name of a file that was
            ingested into a database, and writing into it would destroy that.
    """

    def __init__(self, path: Path) -> None:
        from rocksdict import SstFileWriter

        self._path = path
        self._writer = SstFileWriter(data_options())
        try:
            path.unlink(missing_ok=True)
            self._writer.open(str(path))
        except Exception as error:
            raise write_error(path, error) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing: RocksDB lets go of the file with the object."""

    def add(
        self,
        key_offsets: npt.NDArray[np.int64],
        keys: npt.NDArray[np.uint8],
        value_offsets: npt.NDArray[np.int64],
        values: npt.NDArray[np.uint8],
        valid: npt.NDArray[np.uint8] | None,
    ) -> None:
        """Append rows; a zero in ``valid`` is a delete.

        Raises:
            Capacity: no room for the file.
            Invalid: keys out of order, or the file cannot be written.
        """
        writer = self._writer
        key_list, value_list = _objects(key_offsets, keys), _objects(value_offsets, values)
        try:
            at = 0
            for delete in () if valid is None else np.flatnonzero(valid == 0).tolist():
                deque(map(writer.__setitem__, key_list[at:delete], value_list[at:delete]), 0)
                del writer[key_list[delete]]
                at = delete + 1
            deque(map(writer.__setitem__, key_list[at:], value_list[at:]), 0)
        except Exception as error:
            raise write_error(self._path, error) from error

    def finish(self) -> str:
        """Complete the file and return its SHA-256, hex. At least one row must have been added.

        Raises:
            Capacity: no room for the file.
            Invalid: the file cannot be written.
        """
        try:
            self._writer.finish()
        except Exception as error:
            raise write_error(self._path, error) from error
        return file_sha256(self._path)


def _objects(offsets: npt.NDArray[np.int64], data: npt.NDArray[np.uint8]) -> Sequence[bytes]:
    count = len(offsets) - 1
    lengths = np.diff(offsets)
    if count and lengths[0] and (lengths == lengths[0]).all():
        return struct.unpack(f"{lengths[0]}s" * count, data.data)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    array: Any = pa.Array.from_buffers(pa.large_binary(), count, buffers)
    objects: list[bytes] = array.to_numpy(zero_copy_only=False).tolist()
    return objects


def write_error(path: Path, error: Exception) -> StatecoreError:
    """The error kind for what RocksDB or the file system said while a file was written."""
    return system_error(
        error, f"{path} cannot be written", action="Check that the directory exists and is writable.", path=str(path)
    )
