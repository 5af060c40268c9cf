"""Kernels that order keys bytewise, as RocksDB's comparator does, eight bytes at a time. Imported only to compile.

Keys are radix-sorted by the eight bytes after their common prefix. Ties are usually few and are ordered here by
comparing keys; a large group of ties is sorted again with its own, longer prefix. So the cost depends on the bytes that
distinguish keys, not on those they share.
"""

# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, disable-error-code="no-untyped-def"

from __future__ import annotations

import statecore.extras.pipeline

import numpy as np

from statecore.images.kernels.kernel import ENTRY_WORDS, SMALL_GROUP
from statecore.images.kernels.table_source import key_address, key_length
from statecore.kernels.memory import (
    compare,
    copy,
    get,
    le32,
    prefetch,
    put,
    put32,
    put_word,
    shared,
    short_word,
    swap,
    word,
)

_ENTRY = ENTRY_WORDS * 8
_AHEAD = 24


def common_prefix(entries, arena, ids, count, depth):
    """Length of the longest common prefix of all keys, of which they share at least ``depth`` bytes."""
    pivot = key_address(entries, arena, le32(ids)) + depth
    common = key_length(entries, le32(ids)) - depth
    for i in range(1, count):
        key = le32(ids + i * 4)
        length = min(common, key_length(entries, key) - depth)
        common = shared(pivot, key_address(entries, arena, key) + depth, length)
        if common == 0:
            break
    return depth + common


def words_at(entries, arena, ids, count, depth, out):
    """Eight bytes of each key from ``depth`` on as a number in the same order, padded with zeros."""
    for i in range(count):
        if i + _AHEAD < count:
            prefetch(entries + le32(ids + (i + _AHEAD) * 4) * _ENTRY)
        key = le32(ids + i * 4)
        length = key_length(entries, key) - depth
        put_word(out + i * 8, swap(short_word(key_address(entries, arena, key) + depth, length)))
    return 0


def key_lengths(entries, ids, count, out):
    for i in range(count):
        put(out, i, key_length(entries, le32(ids + i * 4)))
    return 0


def order_ties(entries, arena, ids, count, words, depth, large):
    """Order small groups of words that are equal up to ``depth`` by key; report large groups, return their number."""
    groups, low = 0, 0
    while low < count:
        high = low + 1
        while high < count and word(words + high * 8) == word(words + low * 8):
            high += 1
        if high - low > SMALL_GROUP:
            put(large, 2 * groups, low)
            put(large, 2 * groups + 1, high)
            groups += 1
        elif high - low > 1:
            for i in range(low + 1, high):
                moving = le32(ids + i * 4)
                address = key_address(entries, arena, moving) + depth
                length = key_length(entries, moving) - depth
                j = i
                while j > low:
                    other = le32(ids + (j - 1) * 4)
                    other_address = key_address(entries, arena, other) + depth
                    if compare(other_address, key_length(entries, other) - depth, address, length) <= 0:
                        break
                    put32(ids, j, other)
                    j -= 1
                put32(ids, j, moving)
        low = high
    return groups


def sort_words(words, ids, count, to_words, to_ids, counts):
    """Radix-sort words and their ids, from the last byte; spare arrays are overwritten, ``counts`` is 2048 zeros."""
    mask = np.uint64(255)
    for i in range(count):
        value = word(words + i * 8)
        for place in range(8):
            digit = place * 256 + np.int64((value >> np.uint64(8 * place)) & mask)
            put(counts, digit, get(counts, digit) + 1)
    from_words, from_ids = words, ids
    for place in range(8):
        shift = np.uint64(8 * place)
        places = counts + place * 2048
        if get(places, np.int64((word(words) >> shift) & mask)) == count:
            continue
        at = 0
        for number in range(256):
            size = get(places, number)
            put(places, number, at)
            at += size
        for i in range(count):
            value = word(from_words + i * 8)
            digit = np.int64((value >> shift) & mask)
            to = get(places, digit)
            put(places, digit, to + 1)
            put_word(to_words + to * 8, value)
            put32(to_ids, to, le32(from_ids + i * 4))
        from_words, to_words = to_words, from_words
        from_ids, to_ids = to_ids, from_ids
    if from_words != words:
        copy(words, from_words, count * 8)
        copy(ids, from_ids, count * 4)
    return 0
