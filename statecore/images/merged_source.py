"""Kernels that merge SST files key by key and digest what RocksDB would show of them. Imported only to compile.

A run is described by the words of ``CURSOR`` (:mod:`statecore.images.merged_kernel`); `statecore.images.sst` draws the
blocks they go through. Runs that have rows left lie in a heap, the one with the smallest key on top; of equal keys that
of the later run, whose row counts. Every length is held against the end of what it lies in before anything is read
there: whatever the bytes are, nothing outside the file is touched.
"""

# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, disable-error-code="no-untyped-def"

from __future__ import annotations

import statecore.extras.pipeline

import numpy as np
from numba import njit

from statecore.images.merged_kernel import (
    BAD_BLOCK,
    BAD_CHECKSUM,
    BAD_COMPRESSION,
    BAD_ENTRY,
    BAD_INDEX,
    BAD_ORDER,
    BAD_TYPE,
    CURSOR,
    DAMAGED,
    DONE,
    LONGEST_KEY,
    MORE,
    STATE,
)
from statecore.images.sst_source import _xxh64
from statecore.kernels.memory import compare, get, le32, put, put_word, u8, word

_FILE, _LIMIT, _INDEX, _INDEX_END = CURSOR["file"], CURSOR["limit"], CURSOR["index"], CURSOR["index_end"]
_NEXT_BLOCK, _AT, _END = CURSOR["next_block"], CURSOR["at"], CURSOR["end"]
_KEY, _KEY_LENGTH, _ENTRIES = CURSOR["key"], CURSOR["key_length"], CURSOR["entries"]
_VALUE, _VALUE_LENGTH, _IS_VALUE = CURSOR["value"], CURSOR["value_length"], CURSOR["is_value"]
_CURSOR_BYTES = 8 * len(CURSOR)
_SUM_A, _SUM_B, _ROWS, _BYTES = STATE["sum_a"], STATE["sum_b"], STATE["rows"], STATE["bytes"]
_HEAP_SIZE, _LAST_LENGTH = STATE["heap_size"], STATE["last_length"]
_DAMAGED_RUN, _DAMAGE = STATE["damaged"], STATE["damage"]
_0, _1, _LOW = np.uint64(0), np.uint64(1), np.uint64(0xFFFFFFFF)
_TRAILER = 5
_READY, _EXHAUSTED = 0, 1


@njit(error_model="numpy")
def _varint(at, end):
    """A number and the address behind it; 0 and `end` where it has no end or more than 63 bits."""
    number, shift = 0, 0
    while at < end and shift < 63:
        byte = u8(at)
        at += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number, at
        shift += 7
    return 0, end


@njit(error_model="numpy")
def _next_block(cursor):
    """Step into the next data block, after a look at its checksum."""
    index, end = get(cursor, _INDEX), get(cursor, _INDEX_END)
    if index == end:
        return _EXHAUSTED
    if u8(index) != 0:
        return BAD_INDEX
    length, index = _varint(index + 1, end)
    if length > end - index:
        return BAD_INDEX
    offset, index = _varint(index + length, end)
    size, index = _varint(index, end)
    # Blocks lie one behind the other. A number that could not be read is 0, and no block has that size.
    if offset != get(cursor, _NEXT_BLOCK) or size < 8 or size > get(cursor, _LIMIT) - offset - _TRAILER:
        return BAD_INDEX
    block = get(cursor, _FILE) + offset
    if u8(block + size) != 0:
        return BAD_COMPRESSION
    if _xxh64(block, size + 1, _0) & _LOW != np.uint64(le32(block + size + 1)):
        return BAD_CHECKSUM
    restarts = le32(block + size - 4)
    if restarts < 1 or restarts > (size - 5) >> 2:
        return BAD_BLOCK
    put(cursor, _INDEX, index)
    put(cursor, _NEXT_BLOCK, offset + size + _TRAILER)
    put(cursor, _AT, block)
    put(cursor, _END, block + size - 4 - 4 * restarts)
    return _READY


@njit(error_model="numpy")
def _advance(cursor):
    """Step to the next row of a run."""
    at, held = get(cursor, _AT), get(cursor, _KEY_LENGTH)
    shareable = held
    if at == get(cursor, _END):
        found = _next_block(cursor)
        if found != _READY:
            return found
        at, shareable = get(cursor, _AT), 0
    end, key = get(cursor, _END), get(cursor, _KEY)
    common, at = _varint(at, end)
    rest, at = _varint(at, end)
    length, at = _varint(at, end)
    # A number that could not be read is 0 and leaves nothing for the eight bytes behind the key.
    if common > shareable or rest < 8 or rest > end - at or length > end - at - rest:
        return BAD_ENTRY
    rest -= 8
    if common + rest > LONGEST_KEY:
        return BAD_ENTRY
    entries = get(cursor, _ENTRIES)
    if entries and compare(key + common, held - common, at, rest) >= 0:
        return BAD_ORDER
    kind = word(at + rest)
    if kind > _1:
        return BAD_TYPE
    for i in range(0, rest, 8):  # by words: the last one may take bytes of what follows the key
        put_word(key + common + i, word(at + i))
    value = at + rest + 8
    put(cursor, _AT, value + length)
    put(cursor, _KEY_LENGTH, common + rest)
    put(cursor, _VALUE, value)
    put(cursor, _VALUE_LENGTH, length)
    put(cursor, _IS_VALUE, np.int64(kind))
    put(cursor, _ENTRIES, entries + 1)
    return _READY


@njit(error_model="numpy")
def _is_first(cursors, left, right):
    """Whether the row of the left run comes before that of the right one."""
    one, other = cursors + left * _CURSOR_BYTES, cursors + right * _CURSOR_BYTES
    order = compare(get(one, _KEY), get(one, _KEY_LENGTH), get(other, _KEY), get(other, _KEY_LENGTH))
    return order < 0 or (order == 0 and left > right)


@njit(error_model="numpy")
def _sink(cursors, heap, size, place):
    """Let the run at a place of the heap sink to where it belongs."""
    run = get(heap, place)
    child = 2 * place + 1
    while child < size:
        smaller = get(heap, child)
        if child + 1 < size:
            right = get(heap, child + 1)
            if _is_first(cursors, right, smaller):
                child, smaller = child + 1, right
        if _is_first(cursors, run, smaller):
            break
        put(heap, place, smaller)
        place, child = child, 2 * child + 1
    put(heap, place, run)


@njit(error_model="numpy")
def _refuse(state, run, damage):
    put(state, _DAMAGED_RUN, run)
    put(state, _DAMAGE, damage)
    return DAMAGED


def begin(block):
    """Step to the first row of each run and put the runs into the heap."""
    cursors, count, heap, state = get(block, 0), get(block, 1), get(block, 2), get(block, 3)
    size = 0
    for run in range(count):
        found = _advance(cursors + run * _CURSOR_BYTES)
        if found == _READY:
            put(heap, size, run)
            size += 1
        elif found != _EXHAUSTED:
            return _refuse(state, run, found)
    for place in range((size >> 1) - 1, -1, -1):
        _sink(cursors, heap, size, place)
    put(state, _HEAP_SIZE, size)
    return MORE


@njit(error_model="numpy")
def _add(cursor, state, seed_a, seed_b):
    """Add a row to the digest."""
    key, size = get(cursor, _KEY), get(cursor, _KEY_LENGTH)
    value, length = get(cursor, _VALUE), get(cursor, _VALUE_LENGTH)
    sum_a = np.uint64(get(state, _SUM_A)) + _xxh64(value, length, _xxh64(key, size, seed_a))
    sum_b = np.uint64(get(state, _SUM_B)) + _xxh64(value, length, _xxh64(key, size, seed_b))
    put(state, _SUM_A, np.int64(sum_a))
    put(state, _SUM_B, np.int64(sum_b))
    put(state, _ROWS, get(state, _ROWS) + 1)
    put(state, _BYTES, get(state, _BYTES) + size + length)


def merge(block):
    """Read at most so many rows more of all runs, and digest those that no later run replaces."""
    cursors, heap, state, last = get(block, 0), get(block, 1), get(block, 2), get(block, 3)
    limit, seed_a, seed_b = get(block, 4), np.uint64(get(block, 5)), np.uint64(get(block, 6))
    size, last_length, previous = get(state, _HEAP_SIZE), get(state, _LAST_LENGTH), -1
    for _ in range(limit):
        if size == 0:
            break
        run = get(heap, 0)
        cursor = cursors + run * _CURSOR_BYTES
        key, length = get(cursor, _KEY), get(cursor, _KEY_LENGTH)
        # Keys of one run differ; the first of equal keys is that of the latest run.
        if run == previous or last_length < 0 or compare(last, last_length, key, length) != 0:
            if size > 1:
                for i in range(0, length, 8):
                    put_word(last + i, word(key + i))
                last_length = length
            if get(cursor, _IS_VALUE):
                _add(cursor, state, seed_a, seed_b)
        previous = run
        found = _advance(cursor)
        if found == _EXHAUSTED:
            size -= 1
            put(heap, 0, get(heap, size))
        elif found != _READY:
            return _refuse(state, run, found)
        if size > 1:
            _sink(cursors, heap, size, 0)
    put(state, _HEAP_SIZE, size)
    put(state, _LAST_LENGTH, last_length)
    return MORE if size else DONE
