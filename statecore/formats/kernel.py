"""Numba kernels of the row formats. Imported late, compiled once and cached beside the module."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from statecore.formats.memory import copy, load64, offset_at, store64, swap64

_OPTIONS: dict[str, Any] = {"nogil": True, "cache": True}
_EIGHT = np.uint64(8)


@njit("void(uint64, uint64, uint64, uint8[::1], uint64, int64[::1], uint64)", **_OPTIONS)
def add_timestamps(offsets: int, width: int, data: int, valid: Any, stamps: int, row_offsets: Any, rows: int) -> None:
    """Write ``int64 BE timestamp o value`` for every value, and the offsets of the rows; ``valid`` may be empty."""
    at = np.uint64(0)
    count = len(row_offsets) - 1
    for i in range(count):
        row_offsets[i] = np.int64(at)
        if len(valid) and not valid[i]:
            continue
        start = offset_at(offsets, width, np.uint64(i))
        length = offset_at(offsets, width, np.uint64(i + 1)) - start
        store64(rows + at, swap64(load64(stamps + np.uint64(i) * _EIGHT)))
        copy(rows + at + _EIGHT, data + start, length)
        at += _EIGHT + length
    row_offsets[count] = np.int64(at)


@njit("int64(uint64, uint64, uint64, uint8[::1], int64[::1], int64[::1], uint64)", **_OPTIONS)
def take_timestamps(offsets: int, width: int, data: int, valid: Any, stamps: Any, value_offsets: Any, out: int) -> int:
    """The inverse of :func:`add_timestamps`. Returns the index of the first row that is too short, or -1."""
    at = np.uint64(0)
    for i in range(len(stamps)):
        value_offsets[i] = np.int64(at)
        if len(valid) and not valid[i]:
            continue
        start = offset_at(offsets, width, np.uint64(i))
        length = offset_at(offsets, width, np.uint64(i + 1)) - start
        if length < _EIGHT:
            return i
        stamps[i] = np.int64(swap64(load64(data + start)))
        copy(out + at, data + start + _EIGHT, length - _EIGHT)
        at += length - _EIGHT
    value_offsets[len(stamps)] = np.int64(at)
    return -1


def warm() -> None:
    """Load (or compile) the kernels; they have explicit signatures, so importing this module already did."""
