"""XXH64 of ranges of memory, and the sums of row hashes that make a digest, for Numba kernels.

XXH64 is computed as its specification has it (the tests hold it against published vectors), so that a digest can be
recomputed with any implementation of it. Imported late.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from statecore.formats.memory import load8, load32, load64

_OPTIONS: dict[str, Any] = {"nogil": True, "cache": True}
_P1 = np.uint64(0x9E3779B185EBCA87)
_P2 = np.uint64(0xC2B2AE3D27D4EB4F)
_P3 = np.uint64(0x165667B19E3779F9)
_P4 = np.uint64(0x85EBCA77C2B2AE63)
_P5 = np.uint64(0x27D4EB2F165667C5)
_ONE, _FOUR, _EIGHT, _STRIPE = np.uint64(1), np.uint64(4), np.uint64(8), np.uint64(32)


@njit("uint64(uint64, uint64)", inline="always", **_OPTIONS)
def _rotate(word: int, bits: int) -> Any:
    return (word << bits) | (word >> (np.uint64(64) - bits))


@njit("uint64(uint64, uint64)", inline="always", **_OPTIONS)
def _round(accumulator: int, word: int) -> Any:
    return _rotate(accumulator + word * _P2, np.uint64(31)) * _P1


@njit("uint64(uint64, uint64)", inline="always", **_OPTIONS)
def _merge(accumulator: int, lane: int) -> Any:
    return (accumulator ^ _round(np.uint64(0), lane)) * _P1 + _P4


@njit("uint64(uint64, uint64, uint64)", **_OPTIONS)
def xxh64(address: Any, length: Any, seed: Any) -> Any:
    """XXH64 of ``length`` bytes at an address."""
    at, end = address, address + length
    if length >= _STRIPE:
        a, b, c, d = seed + _P1 + _P2, seed + _P2, seed, seed - _P1
        while at + _STRIPE <= end:
            a = _round(a, load64(at))
            b = _round(b, load64(at + np.uint64(8)))
            c = _round(c, load64(at + np.uint64(16)))
            d = _round(d, load64(at + np.uint64(24)))
            at += _STRIPE
        result = _rotate(a, np.uint64(1)) + _rotate(b, np.uint64(7))
        result += _rotate(c, np.uint64(12)) + _rotate(d, np.uint64(18))
        result = _merge(_merge(_merge(_merge(result, a), b), c), d)
    else:
        result = seed + _P5
    result += length
    while at + _EIGHT <= end:
        result = _rotate(result ^ _round(np.uint64(0), load64(at)), np.uint64(27)) * _P1 + _P4
        at += _EIGHT
    if at + _FOUR <= end:
        result = _rotate(result ^ (load32(at) * _P1), np.uint64(23)) * _P2 + _P3
        at += _FOUR
    while at < end:
        result = _rotate(result ^ (load8(at) * _P5), np.uint64(11)) * _P1
        at += _ONE
    result = (result ^ (result >> np.uint64(33))) * _P2
    result = (result ^ (result >> np.uint64(29))) * _P3
    return result ^ (result >> np.uint64(32))


@njit("void(int64[::1], uint64, int64[::1], uint64, uint8[::1], uint64, uint64, uint64[::1])", **_OPTIONS)
def add_rows(
    key_offsets: Any, keys: int, value_offsets: Any, values: int, valid: Any, seed_a: int, seed_b: int, sums: Any
) -> None:
    """Add the hashes of rows to ``sums[0]`` and ``sums[1]``; a zero in ``valid`` marks a delete, which is left out."""
    for i in range(len(key_offsets) - 1):
        if len(valid) and not valid[i]:
            continue
        key, key_length = keys + np.uint64(key_offsets[i]), np.uint64(key_offsets[i + 1] - key_offsets[i])
        value, length = values + np.uint64(value_offsets[i]), np.uint64(value_offsets[i + 1] - value_offsets[i])
        sums[0] += xxh64(value, length, xxh64(key, key_length, seed_a))
        sums[1] += xxh64(value, length, xxh64(key, key_length, seed_b))
