"""Kernels that merge SST files key by key, to digest or write the visible rows. Imported only to compile.

A ``Cursor`` describes each run (:mod:`statecore.images.kernels.merged_kernel`); `statecore.images.sst` describes the
blocks. Runs with remaining rows are in a heap, the one with the smallest key on top; of equal keys the later run's,
whose row counts. Every length is checked against the end of its container before anything is read there: whatever the
bytes are, nothing outside the file is accessed. A key that does not fit into its run's buffer stops a kernel before
anything of it is written; with a larger buffer the next call continues there.
"""

# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, disable-error-code="no-untyped-def"

from __future__ import annotations

import statecore.extras.pipeline

import numpy as np
from numba import njit

from statecore.images.kernels.hash_source import _xxh64
from statecore.images.kernels.merged_kernel import (
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
    MORE,
    NEEDS_ROOM,
    SMALL_ROOM,
    STATE,
)
from statecore.kernels.memory import compare, copy, get, le32, put, put8, put_word, u8, word

_CURSOR_BYTES = 8 * len(CURSOR)
_0, _1, _LOW = np.uint64(0), np.uint64(1), np.uint64(0xFFFFFFFF)
__all__ = ["begin", "merge", "take"]
_TRAILER = 5
_READY, _EXHAUSTED = 0, 1


@njit(error_model="numpy")
def _varint(at, end):
    """Decode a number; returns it and the address after it; 0 and `end` if it has no end or more than 63 bits."""
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
    """Move to the next data block, after verifying its checksum."""
    index, end = get(cursor, CURSOR.index_at), get(cursor, CURSOR.index_end)
    if index == end:
        return _EXHAUSTED
    if u8(index) != 0:
        return BAD_INDEX
    length, index = _varint(index + 1, end)
    if length > end - index:
        return BAD_INDEX
    offset, index = _varint(index + length, end)
    size, index = _varint(index, end)
    # Blocks are contiguous. A malformed number is 0, and no block has that size.
    if offset != get(cursor, CURSOR.next_block) or size < 8 or size > get(cursor, CURSOR.limit) - offset - _TRAILER:
        return BAD_INDEX
    block = get(cursor, CURSOR.file) + offset
    if u8(block + size) != 0:
        return BAD_COMPRESSION
    if _xxh64(block, size + 1, _0) & _LOW != np.uint64(le32(block + size + 1)):
        return BAD_CHECKSUM
    restarts = le32(block + size - 4)
    if restarts < 1 or restarts > (size - 5) >> 2:
        return BAD_BLOCK
    put(cursor, CURSOR.index_at, index)
    put(cursor, CURSOR.next_block, offset + size + _TRAILER)
    put(cursor, CURSOR.block, block)
    put(cursor, CURSOR.at, block)
    put(cursor, CURSOR.end, block + size - 4 - 4 * restarts)
    return _READY


@njit(error_model="numpy")
def _advance(cursor):
    """Move to the next row of a run."""
    at, held = get(cursor, CURSOR.at), get(cursor, CURSOR.key_length)
    if at == get(cursor, CURSOR.end):
        found = _next_block(cursor)
        if found != _READY:
            return found
        at = get(cursor, CURSOR.at)
    shareable = 0 if at == get(cursor, CURSOR.block) else held
    end, key = get(cursor, CURSOR.end), get(cursor, CURSOR.key)
    common, at = _varint(at, end)
    rest, at = _varint(at, end)
    length, at = _varint(at, end)
    # A malformed number is 0 and leaves no room for the eight bytes after the key.
    if common > shareable or rest < 8 or rest > end - at or length > end - at - rest:
        return BAD_ENTRY
    rest -= 8
    entries = get(cursor, CURSOR.entries)
    if entries and compare(key + common, held - common, at, rest) >= 0:
        return BAD_ORDER
    kind = word(at + rest)
    if kind > _1:
        return BAD_TYPE
    if common + rest + 7 > get(cursor, CURSOR.key_room):
        put(cursor, CURSOR.key_needed, common + rest + 7)
        return SMALL_ROOM
    for i in range(0, rest, 8):  # by words: the last one may include bytes after the key
        put_word(key + common + i, word(at + i))
    value = at + rest + 8
    put(cursor, CURSOR.at, value + length)
    put(cursor, CURSOR.key_length, common + rest)
    put(cursor, CURSOR.value, value)
    put(cursor, CURSOR.value_length, length)
    put(cursor, CURSOR.is_value, np.int64(kind))
    put(cursor, CURSOR.entries, entries + 1)
    return _READY


@njit(error_model="numpy")
def _is_before(cursor, key, length):
    """Whether the current row of a run comes before a key."""
    return compare(get(cursor, CURSOR.key), get(cursor, CURSOR.key_length), key, length) < 0


@njit(error_model="numpy")
def _step(cursor, state):
    """Move to the next row of a run inside the key range."""
    found = _advance(cursor)
    # Only in the last block to be read can a key be after the range.
    if found == _READY and get(cursor, CURSOR.index_at) == get(cursor, CURSOR.index_end):
        length = get(state, STATE.high_length)
        if length >= 0 and not _is_before(cursor, get(state, STATE.high), length):
            put(cursor, CURSOR.entries, get(cursor, CURSOR.entries) - 1)
            return _EXHAUSTED
    return found


@njit(error_model="numpy")
def _first(cursor, state):
    """Move to the first row of a run inside the key range."""
    found = _step(cursor, state)
    while found == _READY and get(cursor, CURSOR.skipping):
        if not _is_before(cursor, get(state, STATE.low), get(state, STATE.low_length)):
            put(cursor, CURSOR.skipping, 0)
            put(cursor, CURSOR.entries, 1)
            return found
        found = _step(cursor, state)
    if found == _EXHAUSTED:
        put(cursor, CURSOR.entries, 0)
    return found


@njit(error_model="numpy")
def _is_first(cursors, left, right):
    """Whether the current row of the left run comes before that of the right one."""
    one, other = cursors + left * _CURSOR_BYTES, cursors + right * _CURSOR_BYTES
    order = compare(
        get(one, CURSOR.key), get(one, CURSOR.key_length), get(other, CURSOR.key), get(other, CURSOR.key_length)
    )
    return order < 0 or (order == 0 and left > right)


@njit(error_model="numpy")
def _sink(cursors, heap, size, place):
    """Restore the heap order below a position (sift down)."""
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
def _follow(cursors, heap, state, size):
    """Move the run on top of the heap to its next row; returns the result and the number of runs with rows left."""
    found = _step(cursors + get(heap, 0) * _CURSOR_BYTES, state)
    if found == _EXHAUSTED:
        size -= 1
        put(heap, 0, get(heap, size))
    elif found != _READY:
        return found, size
    if size > 1:
        _sink(cursors, heap, size, 0)
    return _READY, size


@njit(error_model="numpy")
def _stop(state, run, found):
    """Record the run that stopped, and return the kernel's result."""
    put(state, STATE.stopped, run)
    if found == SMALL_ROOM:
        return NEEDS_ROOM
    put(state, STATE.damage, found)
    return DAMAGED


@njit(error_model="numpy")
def _resume(cursors, heap, state, size):
    """Advance the run that stopped the previous call, whose row was processed; returns as ``_follow``."""
    if get(state, STATE.stopped) < 0:
        return _READY, size
    put(state, STATE.stopped, -1)
    return _follow(cursors, heap, state, size)


def begin(cursors, count, heap, state):
    """Move each run to its first row in the key range, and put the runs with rows into the heap."""
    size = get(state, STATE.heap_size)
    for run in range(get(state, STATE.begun), count):
        found = _first(cursors + run * _CURSOR_BYTES, state)
        if found == _READY:
            put(heap, size, run)
            size += 1
        elif found != _EXHAUSTED:
            put(state, STATE.heap_size, size)
            put(state, STATE.begun, run)
            return _stop(state, run, found)
    put(state, STATE.stopped, -1)
    for place in range((size >> 1) - 1, -1, -1):
        _sink(cursors, heap, size, place)
    put(state, STATE.heap_size, size)
    return MORE


@njit(error_model="numpy")
def _add(cursor, state, seed_a, seed_b):
    """Add a row to the digest."""
    key, size = get(cursor, CURSOR.key), get(cursor, CURSOR.key_length)
    value, length = get(cursor, CURSOR.value), get(cursor, CURSOR.value_length)
    sum_a = np.uint64(get(state, STATE.sum_a)) + _xxh64(value, length, _xxh64(key, size, seed_a))
    sum_b = np.uint64(get(state, STATE.sum_b)) + _xxh64(value, length, _xxh64(key, size, seed_b))
    put(state, STATE.sum_a, np.int64(sum_a))
    put(state, STATE.sum_b, np.int64(sum_b))
    put(state, STATE.rows, get(state, STATE.rows) + 1)
    put(state, STATE.bytes, get(state, STATE.bytes) + size + length)


def merge(cursors, heap, state, limit, seed_a, seed_b):
    """Read at most ``limit`` more rows of all runs, and digest those that no later run replaces."""
    first_seed, second_seed = np.uint64(seed_a), np.uint64(seed_b)
    last, last_length, previous, read = get(state, STATE.last), get(state, STATE.last_length), -1, 0
    found, size = _resume(cursors, heap, state, get(state, STATE.heap_size))
    while found == _READY and size and read < limit:
        run = get(heap, 0)
        cursor = cursors + run * _CURSOR_BYTES
        key, length = get(cursor, CURSOR.key), get(cursor, CURSOR.key_length)
        # Keys of one run are distinct; the first of equal keys is that of the latest run.
        if run == previous or last_length < 0 or compare(last, last_length, key, length) != 0:
            if size > 1:
                for i in range(0, length, 8):
                    put_word(last + i, word(key + i))
                last_length = length
            if get(cursor, CURSOR.is_value):
                _add(cursor, state, first_seed, second_seed)
        previous = run
        read += 1
        found, size = _follow(cursors, heap, state, size)
    put(state, STATE.heap_size, size)
    put(state, STATE.last_length, last_length)
    if found != _READY:
        return _stop(state, get(heap, 0), found)
    return MORE if size else DONE


def take(
    cursors, heap, state, limit, keep_deletes, key_room, value_room, key_offsets, keys, value_offsets, values, valid
):
    """Append rows that no later run replaces to the ``taken`` ones; one too large for empty buffers stays current."""
    last, last_length, previous = get(state, STATE.last), get(state, STATE.last_length), -1
    count = get(state, STATE.taken)
    if count == 0:
        put(key_offsets, 0, 0)
        put(value_offsets, 0, 0)
    key_at, value_at = get(key_offsets, count), get(value_offsets, count)
    found, size = _resume(cursors, heap, state, get(state, STATE.heap_size))
    while found == _READY and size and count < limit:
        run = get(heap, 0)
        cursor = cursors + run * _CURSOR_BYTES
        key, length = get(cursor, CURSOR.key), get(cursor, CURSOR.key_length)
        if run == previous or last_length < 0 or compare(last, last_length, key, length) != 0:
            is_value = get(cursor, CURSOR.is_value)
            if is_value or keep_deletes:
                value_length = get(cursor, CURSOR.value_length)
                if key_at + length > key_room or value_at + value_length > value_room:
                    break
                copy(keys + key_at, key, length)
                copy(values + value_at, get(cursor, CURSOR.value), value_length)
                key_at += length
                value_at += value_length
                put8(valid + count, is_value)
                count += 1
                put(key_offsets, count, key_at)
                put(value_offsets, count, value_at)
            for i in range(0, length, 8):
                put_word(last + i, word(key + i))
            last_length = length
        previous = run
        found, size = _follow(cursors, heap, state, size)
    put(state, STATE.heap_size, size)
    put(state, STATE.last_length, last_length)
    put(state, STATE.taken, count)
    if found != _READY:
        return _stop(state, get(heap, 0), found)
    return MORE if size else DONE
