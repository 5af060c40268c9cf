"""Numba kernels that order keys bytewise, as RocksDB's comparator has it, eight bytes at a time.

Keys are sorted by the eight bytes after the prefix they all share, as numbers, digit by digit. What ties is small as a
rule and is ordered here by comparing keys; a large group of ties goes around again with its own, longer prefix. So keys
of any length with any prefixes in common cost what distinguishes them, not what they share.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from statecore.formats.memory import compare, load8, load64, load_short, prefetch, swap64
from statecore.images.kernel import key_address, key_length

SMALL_GROUP = 48
"""Groups of ties up to this size are ordered by comparing keys."""

_OPTIONS: dict[str, Any] = {"nogil": True, "cache": True}
_1, _8 = np.uint64(1), np.uint64(8)
_AHEAD = 24


@njit("int64(uint64, uint64, uint32[::1], int64)", **_OPTIONS)
def common_prefix(entries: int, arena: int, ids: Any, depth: int) -> Any:
    """Length of the longest prefix that all keys share, knowing they share ``depth`` bytes."""
    pivot = key_address(entries, arena, np.uint64(ids[0]))
    common = key_length(entries, np.uint64(ids[0]))
    for i in range(1, len(ids)):
        key = key_address(entries, arena, np.uint64(ids[i]))
        length = min(common, key_length(entries, np.uint64(ids[i])))
        at = np.uint64(depth)
        while at + _8 <= length and load64(pivot + at) == load64(key + at):
            at += _8
        while at < length and load8(pivot + at) == load8(key + at):
            at += _1
        common = min(at, length)
        if common <= np.uint64(depth):
            return depth
    return np.int64(common)


@njit("void(uint64, uint64, uint32[::1], int64, uint64[::1])", **_OPTIONS)
def words_at(entries: int, arena: int, ids: Any, depth: int, out: Any) -> None:
    """Eight bytes of each key from ``depth`` on as a number that orders like them, padded with zeros."""
    skip = np.uint64(depth)
    for i in range(len(ids)):
        if i + _AHEAD < len(ids):
            prefetch(key_address(entries, arena, np.uint64(ids[i + _AHEAD])))
        length = key_length(entries, np.uint64(ids[i]))
        if length > skip:
            out[i] = swap64(load_short(key_address(entries, arena, np.uint64(ids[i])) + skip, min(length - skip, _8)))
        else:
            out[i] = 0


@njit("void(uint64, uint32[::1], int64[::1])", **_OPTIONS)
def key_lengths(entries: int, ids: Any, out: Any) -> None:
    """The length of each key."""
    for i in range(len(ids)):
        out[i] = np.int64(key_length(entries, np.uint64(ids[i])))


@njit("int64(uint64, uint64, uint32[::1], uint64[::1], int64, int64[:, ::1])", **_OPTIONS)
def order_ties(entries: int, arena: int, ids: Any, words: Any, depth: int, large: Any) -> int:
    """Order small groups of equal words by their keys; report the bounds of large ones, and how many there are.

    All keys share their first ``depth`` bytes, so none is shorter.
    """
    groups, low, skip = 0, 0, np.uint64(depth)
    while low < len(ids):
        high = low + 1
        while high < len(ids) and words[high] == words[low]:
            high += 1
        if high - low > SMALL_GROUP:
            large[groups, 0], large[groups, 1] = low, high
            groups += 1
        elif high - low > 1:
            for i in range(low + 1, high):
                moving = ids[i]
                address = key_address(entries, arena, np.uint64(moving)) + skip
                length = key_length(entries, np.uint64(moving)) - skip
                j = i
                while j > low:
                    other = np.uint64(ids[j - 1])
                    other_address = key_address(entries, arena, other) + skip
                    if compare(other_address, key_length(entries, other) - skip, address, length) <= 0:
                        break
                    ids[j] = ids[j - 1]
                    j -= 1
                ids[j] = moving
        low = high
    return groups


@njit("void(uint64[::1], uint32[::1], uint64[::1], uint32[::1])", **_OPTIONS)
def sort_words(words: Any, ids: Any, spare_words: Any, spare_ids: Any) -> None:
    """Sort words, and their ids with them, by one byte after the other, last to first; equal bytes cost nothing.

    The two spare arrays are as long as the others and are written over.
    """
    count = len(words)
    counts = np.zeros((8, 256), np.int64)
    for word in words:
        for place in range(8):
            counts[place, (word >> np.uint64(8 * place)) & np.uint64(255)] += 1
    from_words, from_ids, to_words, to_ids = words, ids, spare_words, spare_ids
    moved = False
    for place in range(8):
        shift = np.uint64(8 * place)
        if count and counts[place, (words[0] >> shift) & np.uint64(255)] == count:
            continue
        at = 0
        for digit in range(256):
            size = counts[place, digit]
            counts[place, digit] = at
            at += size
        for i in range(count):
            digit = (from_words[i] >> shift) & np.uint64(255)
            to = counts[place, digit]
            counts[place, digit] = to + 1
            to_words[to] = from_words[i]
            to_ids[to] = from_ids[i]
        from_words, from_ids, to_words, to_ids = to_words, to_ids, from_words, from_ids
        moved = not moved
    if moved:
        words[:] = from_words
        ids[:] = from_ids
