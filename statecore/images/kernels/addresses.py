"""Addresses of Arrow buffers for kernels; the caller keeps the objects alive."""

from __future__ import annotations

import statecore.extras.pipeline

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa


class BinaryColumn(NamedTuple):
    """Buffers of a binary or large binary array."""

    offsets: int  # address of the first offset (of a slice: its own first offset)
    width: int  # bytes of an offset, 4 or 8
    data: int  # address of the data that the offsets refer to
    valid: npt.NDArray[np.uint8] | None  # one byte per element, 1 where it is not null; None without nulls


def binary_column(array: pa.Array) -> BinaryColumn:
    """Buffers of a binary or large binary array that is not empty."""
    width = 8 if pa.types.is_large_binary(array.type) else 4
    buffers = array.buffers()
    return BinaryColumn(
        offsets=buffers[1].address + array.offset * width,
        width=width,
        data=buffers[2].address if buffers[2] is not None else 0,
        valid=_validity_bytes(array),
    )


def _validity_bytes(array: pa.Array) -> npt.NDArray[np.uint8] | None:
    if not array.null_count:
        return None
    first = array.offset // 8
    bits = np.frombuffer(array.buffers()[0], np.uint8)[first : (array.offset + len(array) + 7) // 8]
    skip = array.offset - first * 8
    return np.unpackbits(bits, bitorder="little")[skip : skip + len(array)]
