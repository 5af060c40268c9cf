"""Kernels of versioned stores: merge sorted runs, replay each key, write its rows. Imported only to compile.

A run is described by eleven words: the addresses of its keys, key offsets, first records, timestamps, stream times,
places and values (:mod:`statecore.images.versions.sorted_records`), the number of its keys, the stream time of the
ranges before it, the key it is at, and the first eight bytes of that key as a number.
"""

# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, disable-error-code="no-untyped-def"

from __future__ import annotations

import statecore.extras.pipeline

import numpy as np
from numba import njit

from statecore.images.versions.kernel import (
    DONE,
    NEEDS_POOL,
    NEEDS_ROOM,
    NODE_WORDS,
    OUT_WORDS,
    ROW_WORDS,
    RUN_WORDS,
    WORD,
)
from statecore.images.versions.put_source import (
    ADDRESS,
    FOLLOWING,
    FROM,
    HEAD,
    LENGTH,
    MIN,
    NEXT,
    NONE,
    OLDER,
    SEGMENT,
    drop_expired,
    put_record,
)
from statecore.images.versions.sort_source import (
    count_records,
    describe_records,
    gather_keys,
    gather_values,
    place_records,
)
from statecore.kernels.memory import compare, copy, get, prefetch, put, put8, put_word, short_word, swap, word

__all__ = [
    "count_records",
    "describe_records",
    "gather_keys",
    "gather_rows",
    "gather_values",
    "place_records",
    "replay",
]

_RUN, _ROW, _NODE, _OUT_ROW = RUN_WORDS * 8, ROW_WORDS * 8, NODE_WORDS * 8, OUT_WORDS * 8
_AHEAD, _ROW_AHEAD = 32, 12

_RUNS = WORD["runs"]
_HEAP = WORD["heap"]
_HEAP_SIZE = WORD["heap_size"]
_PHASE = WORD["phase"]
_RECORD = WORD["record"]
_KEY = WORD["key"]
_KEY_LENGTH = WORD["key_length"]
_LATEST_FROM = WORD["latest_from"]
_LATEST_ADDRESS = WORD["latest_address"]
_LATEST_LENGTH = WORD["latest_length"]
_ROWS = WORD["rows"]
_ROWS_ROOM = WORD["rows_room"]
_ROWS_USED = WORD["rows_used"]
_ROWS_FREE = WORD["rows_free"]
_ROWS_FREED = WORD["rows_freed"]
_NODES = WORD["nodes"]
_NODES_ROOM = WORD["nodes_room"]
_NODES_USED = WORD["nodes_used"]
_NODES_FREE = WORD["nodes_free"]
_NODES_FREED = WORD["nodes_freed"]
_FIRST_ROW = WORD["first_row"]
_RETENTION = WORD["retention"]
_INTERVAL = WORD["interval"]
_FIRST_LIVE = WORD["first_live"]
_OUT = WORD["out"]
_OUT_ROOM = WORD["out_room"]
_OUT_COUNT = WORD["out_count"]
_ARENA = WORD["arena"]
_ARENA_ROOM = WORD["arena_room"]
_ARENA_USED = WORD["arena_used"]
_NEEDED_ROWS = WORD["needed_rows"]
_NEEDED_BYTES = WORD["needed_bytes"]

# Words of a run.
_R_KEYS, _R_KEY_OFFSETS, _R_FIRSTS, _R_TIMES, _R_STREAM, _R_PLACES, _R_VALUES = 0, 1, 2, 3, 4, 5, 6
_R_COUNT, _R_BASE, _R_AT, _R_PREFIX = 7, 8, 9, 10


# Rows of a finished key --------------------------------------------------------------------------------------------


@njit(error_model="numpy")
def _put_number(address, number):
    put_word(address, swap(np.uint64(number)))


@njit(error_model="numpy")
def _put_short(address, number):
    put8(address, (number >> 24) & 255)
    put8(address + 1, (number >> 16) & 255)
    put8(address + 2, (number >> 8) & 255)
    put8(address + 3, number & 255)


@njit(error_model="numpy")
def _begin_row(st, segment, value_length):
    """Describe a finished row and write its key; the address for its value."""
    count, used, size = get(st, _OUT_COUNT), get(st, _ARENA_USED), get(st, _KEY_LENGTH)
    out = get(st, _OUT) + count * _OUT_ROW
    put(out, 0, segment)
    put(out, 1, used)
    put(out, 2, 8 + size)
    put(out, 3, value_length)
    put(st, _OUT_COUNT, count + 1)
    put(st, _ARENA_USED, used + 8 + size + value_length)
    at = get(st, _ARENA) + used
    _put_number(at, segment)
    copy(at + 8, get(st, _KEY), size)
    return at + 8 + size


@njit(error_model="numpy")
def _value_length(st, row):
    nodes, node, total = get(st, _NODES), get(row, HEAD), 16
    while node != NONE:
        total += 12 + max(get(nodes + node * _NODE, LENGTH), 0)
        node = get(nodes + node * _NODE, OLDER)
    return total


@njit(error_model="numpy")
def _finish_key(st):
    """Write the rows of the key that are kept; False when there is no room for them."""
    live = get(st, _FIRST_LIVE)
    nodes = get(st, _NODES)
    key_bytes = 8 + get(st, _KEY_LENGTH)
    rows, size = 0, 0
    if get(st, _LATEST_FROM) != NONE:
        rows, size = 1, key_bytes + 8 + get(st, _LATEST_LENGTH)
    index = get(st, _FIRST_ROW)
    while index != NONE:
        row = get(st, _ROWS) + index * _ROW
        if get(row, SEGMENT) < live:
            break
        rows += 1
        size += key_bytes + _value_length(st, row)
        index = get(row, FOLLOWING)
    if get(st, _OUT_COUNT) + rows > get(st, _OUT_ROOM) or get(st, _ARENA_USED) + size > get(st, _ARENA_ROOM):
        put(st, _NEEDED_ROWS, rows)
        put(st, _NEEDED_BYTES, size)
        return False
    if get(st, _LATEST_FROM) != NONE:
        length = get(st, _LATEST_LENGTH)
        at = _begin_row(st, -1, 8 + length)
        _put_number(at, get(st, _LATEST_FROM))
        copy(at + 8, get(st, _LATEST_ADDRESS), length)
    index = get(st, _FIRST_ROW)
    while index != NONE:
        row = get(st, _ROWS) + index * _ROW
        if get(row, SEGMENT) < live:
            break
        total = _value_length(st, row)
        at = _begin_row(st, get(row, SEGMENT), total)
        end = at + total
        _put_number(at, get(row, NEXT))
        _put_number(at + 8, get(row, MIN))
        at += 16
        node = get(row, HEAD)
        while node != NONE:
            version = nodes + node * _NODE
            length = get(version, LENGTH)
            _put_number(at, get(version, FROM))
            _put_short(at + 8, length)
            at += 12
            if length > 0:
                end -= length
                copy(end, get(version, ADDRESS), length)
            node = get(version, OLDER)
        index = get(row, FOLLOWING)
    return True


# Merging the runs --------------------------------------------------------------------------------------------------


@njit(error_model="numpy")
def _key_of(run):
    at = get(run, _R_AT)
    return get(run, _R_KEYS) + get(get(run, _R_KEY_OFFSETS), at)


@njit(error_model="numpy")
def _length_of(run):
    at, offsets = get(run, _R_AT), get(run, _R_KEY_OFFSETS)
    return get(offsets, at + 1) - get(offsets, at)


@njit(error_model="numpy")
def _set_prefix(run):
    put_word(run + _R_PREFIX * 8, swap(short_word(_key_of(run), _length_of(run))))


@njit(error_model="numpy")
def _comes_before(st, left, right):
    """Whether the run `left` is to be read before `right`: by key, then by offset."""
    a, b = get(st, _RUNS) + left * _RUN, get(st, _RUNS) + right * _RUN
    x, y = word(a + _R_PREFIX * 8), word(b + _R_PREFIX * 8)
    if x != y:
        return x < y
    order = compare(_key_of(a), _length_of(a), _key_of(b), _length_of(b))
    return order < 0 or (order == 0 and left < right)


@njit(error_model="numpy")
def _sift_down(st, at):
    heap, size = get(st, _HEAP), get(st, _HEAP_SIZE)
    moving = get(heap, at)
    while 2 * at + 1 < size:
        child = 2 * at + 1
        if child + 1 < size and _comes_before(st, get(heap, child + 1), get(heap, child)):
            child += 1
        if not _comes_before(st, get(heap, child), moving):
            break
        put(heap, at, get(heap, child))
        at = child
    put(heap, at, moving)


@njit(error_model="numpy")
def _next_key(st):
    """Move the run on top of the heap to its next key, or out of the heap."""
    heap = get(st, _HEAP)
    run = get(st, _RUNS) + get(heap, 0) * _RUN
    put(run, _R_AT, get(run, _R_AT) + 1)
    if get(run, _R_AT) == get(run, _R_COUNT):
        size = get(st, _HEAP_SIZE) - 1
        put(heap, 0, get(heap, size))
        put(st, _HEAP_SIZE, size)
        if size == 0:
            return
    else:
        _set_prefix(run)
    _sift_down(st, 0)


@njit(error_model="numpy")
def _begin_run(st):
    run = get(st, _RUNS) + get(get(st, _HEAP), 0) * _RUN
    put(st, _RECORD, get(get(run, _R_FIRSTS), get(run, _R_AT)))


@njit(error_model="numpy")
def _same_key(st):
    """Whether the run on top of the heap has records of the key being replayed."""
    if get(st, _HEAP_SIZE) == 0:
        return False
    run = get(st, _RUNS) + get(get(st, _HEAP), 0) * _RUN
    return compare(_key_of(run), _length_of(run), get(st, _KEY), get(st, _KEY_LENGTH)) == 0


@njit(error_model="numpy")
def _short_of_pool(st):
    """Whether a put may not find room for four versions and two rows."""
    return (
        get(st, _NODES_ROOM) - get(st, _NODES_USED) + get(st, _NODES_FREED) < 4
        or get(st, _ROWS_ROOM) - get(st, _ROWS_USED) + get(st, _ROWS_FREED) < 2
    )


@njit(error_model="numpy")
def _mostly_full(st):
    return (
        get(st, _NODES_ROOM) - get(st, _NODES_USED) + get(st, _NODES_FREED) < get(st, _NODES_ROOM) // 4
        or get(st, _ROWS_ROOM) - get(st, _ROWS_USED) + get(st, _ROWS_FREED) < get(st, _ROWS_ROOM) // 4
    )


@njit(error_model="numpy")
def _replay_run(st):
    """Put the key's records in the run on top of the heap; False when memory must grow first."""
    run = get(st, _RUNS) + get(get(st, _HEAP), 0) * _RUN
    times, stream, places, values = (
        get(run, _R_TIMES), get(run, _R_STREAM), get(run, _R_PLACES), get(run, _R_VALUES)
    )  # fmt: skip
    base, retention = get(run, _R_BASE), get(st, _RETENTION)
    record, end = get(st, _RECORD), get(get(run, _R_FIRSTS), get(run, _R_AT) + 1)
    while record < end:
        now, time = max(base, get(stream, record)), get(times, record)
        if time >= now - retention:
            if _short_of_pool(st):
                drop_expired(st, max(now - retention, 0) // get(st, _INTERVAL))
                if _mostly_full(st):
                    put(st, _RECORD, record)
                    return False
            place = get(places, record)
            start = place >> 1
            length = -1 if place & 1 else (get(places, record + 1) >> 1) - start
            put_record(st, time, values + start, length)
        record += 1
    return True


def replay(block):
    """Replay key after key, in key order, each one's records in offset order; see the codes for what it returns."""
    st = get(block, 0)
    if get(block, 1):  # the first call: make the heap
        size = get(st, _HEAP_SIZE)
        for i in range(size):
            put(get(st, _HEAP), i, i)
            _set_prefix(get(st, _RUNS) + i * _RUN)
        for i in range(size // 2 - 1, -1, -1):
            _sift_down(st, i)
    while True:
        if get(st, _PHASE) == 0:
            if get(st, _HEAP_SIZE) == 0:
                return DONE
            run = get(st, _RUNS) + get(get(st, _HEAP), 0) * _RUN
            put(st, _KEY, _key_of(run))
            put(st, _KEY_LENGTH, _length_of(run))
            put(st, _LATEST_FROM, NONE)
            put(st, _FIRST_ROW, NONE)
            put(st, _ROWS_USED, 0)
            put(st, _ROWS_FREE, NONE)
            put(st, _ROWS_FREED, 0)
            put(st, _NODES_USED, 0)
            put(st, _NODES_FREE, NONE)
            put(st, _NODES_FREED, 0)
            _begin_run(st)
            put(st, _PHASE, 1)
        if get(st, _PHASE) == 1:
            while True:
                if not _replay_run(st):
                    return NEEDS_POOL
                _next_key(st)
                if not _same_key(st):
                    break
                _begin_run(st)
            put(st, _PHASE, 2)
        if not _finish_key(st):
            return NEEDS_ROOM
        put(st, _PHASE, 0)


def gather_rows(block):
    """Copy finished rows out of the arena into contiguous buffers, in the given order; the room must be enough."""
    out, arena, order, count = get(block, 0), get(block, 1), get(block, 2), get(block, 3)
    key_offsets, keys, value_offsets, values = get(block, 4), get(block, 5), get(block, 6), get(block, 7)
    key_at, value_at = 0, 0
    for i in range(count):
        if i + _AHEAD < count:
            prefetch(out + get(order, i + _AHEAD) * _OUT_ROW)
        if i + _ROW_AHEAD < count:
            prefetch(arena + get(out + get(order, i + _ROW_AHEAD) * _OUT_ROW, 1))
        row = out + get(order, i) * _OUT_ROW
        start, key_size, value_size = arena + get(row, 1), get(row, 2), get(row, 3)
        copy(keys + key_at, start, key_size)
        copy(values + value_at, start + key_size, value_size)
        key_at += key_size
        value_at += value_size
        put(key_offsets, i + 1, key_at)
        put(value_offsets, i + 1, value_at)
    return 0
