"""Kernels of versioned stores: merge sorted runs, replay each key, write its rows. Imported only to compile.

:mod:`statecore.images.versions.kernel` declares the records shared with callers, such as runs and the replay's state.
"""

# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, disable-error-code="no-untyped-def"

from __future__ import annotations

import statecore.extras.pipeline

import numpy as np
from numba import njit

from statecore.images.versions.kernel import DONE, NEEDS_POOL, NEEDS_ROOM, NODE, OUT, ROW, RUN, STATE
from statecore.images.versions.put_source import NONE, drop_expired, put_record
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

_RUN, _ROW, _NODE, _OUT = len(RUN) * 8, len(ROW) * 8, len(NODE) * 8, len(OUT) * 8
_AHEAD, _ROW_AHEAD = 32, 12


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
def _begin_row(state, segment, value_length):
    """Describe a finished row and write its key; returns the address for its value."""
    count, used, size = get(state, STATE.out_count), get(state, STATE.arena_used), get(state, STATE.key_length)
    out = get(state, STATE.out) + count * _OUT
    put(out, OUT.segment, segment)
    put(out, OUT.place, used)
    put(out, OUT.key_bytes, 8 + size)
    put(out, OUT.value_bytes, value_length)
    put(state, STATE.out_count, count + 1)
    put(state, STATE.arena_used, used + 8 + size + value_length)
    at = get(state, STATE.arena) + used
    _put_number(at, segment)
    copy(at + 8, get(state, STATE.key), size)
    return at + 8 + size


@njit(error_model="numpy")
def _value_length(state, row):
    nodes, node, total = get(state, STATE.nodes), get(row, ROW.head), 16
    while node != NONE:
        total += 12 + max(get(nodes + node * _NODE, NODE.length), 0)
        node = get(nodes + node * _NODE, NODE.older)
    return total


@njit(error_model="numpy")
def _finish_key(state):
    """Write the live rows of the key; False when there is no room for them."""
    live = get(state, STATE.first_live)
    nodes = get(state, STATE.nodes)
    key_bytes = 8 + get(state, STATE.key_length)
    rows, size = 0, 0
    if get(state, STATE.latest_from) != NONE:
        rows, size = 1, key_bytes + 8 + get(state, STATE.latest_length)
    index = get(state, STATE.first_row)
    while index != NONE:
        row = get(state, STATE.rows) + index * _ROW
        if get(row, ROW.segment) < live:
            break
        rows += 1
        size += key_bytes + _value_length(state, row)
        index = get(row, ROW.following)
    if get(state, STATE.out_count) + rows > get(state, STATE.out_room) or get(state, STATE.arena_used) + size > get(
        state, STATE.arena_room
    ):
        put(state, STATE.needed_rows, rows)
        put(state, STATE.needed_bytes, size)
        return False
    if get(state, STATE.latest_from) != NONE:
        length = get(state, STATE.latest_length)
        at = _begin_row(state, -1, 8 + length)
        _put_number(at, get(state, STATE.latest_from))
        copy(at + 8, get(state, STATE.latest_address), length)
    index = get(state, STATE.first_row)
    while index != NONE:
        row = get(state, STATE.rows) + index * _ROW
        if get(row, ROW.segment) < live:
            break
        total = _value_length(state, row)
        at = _begin_row(state, get(row, ROW.segment), total)
        end = at + total
        _put_number(at, get(row, ROW.valid_to))
        _put_number(at + 8, get(row, ROW.valid_from))
        at += 16
        node = get(row, ROW.head)
        while node != NONE:
            version = nodes + node * _NODE
            length = get(version, NODE.length)
            _put_number(at, get(version, NODE.valid_from))
            _put_short(at + 8, length)
            at += 12
            if length > 0:
                end -= length
                copy(end, get(version, NODE.address), length)
            node = get(version, NODE.older)
        index = get(row, ROW.following)
    return True


# Merging the runs --------------------------------------------------------------------------------------------------


@njit(error_model="numpy")
def _key_of(run):
    at = get(run, RUN.at)
    return get(run, RUN.keys) + get(get(run, RUN.key_offsets), at)


@njit(error_model="numpy")
def _length_of(run):
    at, offsets = get(run, RUN.at), get(run, RUN.key_offsets)
    return get(offsets, at + 1) - get(offsets, at)


@njit(error_model="numpy")
def _set_prefix(run):
    put_word(run + RUN.prefix * 8, swap(short_word(_key_of(run), _length_of(run))))


@njit(error_model="numpy")
def _comes_before(state, left, right):
    """Whether the run `left` is read before `right`: by key, then by offset."""
    a, b = get(state, STATE.runs) + left * _RUN, get(state, STATE.runs) + right * _RUN
    x, y = word(a + RUN.prefix * 8), word(b + RUN.prefix * 8)
    if x != y:
        return x < y
    order = compare(_key_of(a), _length_of(a), _key_of(b), _length_of(b))
    return order < 0 or (order == 0 and left < right)


@njit(error_model="numpy")
def _sift_down(state, at):
    heap, size = get(state, STATE.heap), get(state, STATE.heap_size)
    moving = get(heap, at)
    while 2 * at + 1 < size:
        child = 2 * at + 1
        if child + 1 < size and _comes_before(state, get(heap, child + 1), get(heap, child)):
            child += 1
        if not _comes_before(state, get(heap, child), moving):
            break
        put(heap, at, get(heap, child))
        at = child
    put(heap, at, moving)


@njit(error_model="numpy")
def _next_key(state):
    """Move the run on top of the heap to its next key, or remove it from the heap."""
    heap = get(state, STATE.heap)
    run = get(state, STATE.runs) + get(heap, 0) * _RUN
    put(run, RUN.at, get(run, RUN.at) + 1)
    if get(run, RUN.at) == get(run, RUN.key_count):
        size = get(state, STATE.heap_size) - 1
        put(heap, 0, get(heap, size))
        put(state, STATE.heap_size, size)
        if size == 0:
            return
    else:
        _set_prefix(run)
    _sift_down(state, 0)


@njit(error_model="numpy")
def _begin_run(state):
    run = get(state, STATE.runs) + get(get(state, STATE.heap), 0) * _RUN
    put(state, STATE.record, get(get(run, RUN.first_records), get(run, RUN.at)))


@njit(error_model="numpy")
def _same_key(state):
    """Whether the run on top of the heap has records of the current key."""
    if get(state, STATE.heap_size) == 0:
        return False
    run = get(state, STATE.runs) + get(get(state, STATE.heap), 0) * _RUN
    return compare(_key_of(run), _length_of(run), get(state, STATE.key), get(state, STATE.key_length)) == 0


@njit(error_model="numpy")
def _short_of_pool(state):
    """Whether a put might lack room for four versions and two rows."""
    return (
        get(state, STATE.nodes_room) - get(state, STATE.nodes_used) + get(state, STATE.nodes_freed) < 4
        or get(state, STATE.rows_room) - get(state, STATE.rows_used) + get(state, STATE.rows_freed) < 2
    )


@njit(error_model="numpy")
def _mostly_full(state):
    return (
        get(state, STATE.nodes_room) - get(state, STATE.nodes_used) + get(state, STATE.nodes_freed)
        < get(state, STATE.nodes_room) // 4
        or get(state, STATE.rows_room) - get(state, STATE.rows_used) + get(state, STATE.rows_freed)
        < get(state, STATE.rows_room) // 4
    )


@njit(error_model="numpy")
def _replay_run(state):
    """Replay the key's records in the run on top of the heap; False when pools must grow first."""
    run = get(state, STATE.runs) + get(get(state, STATE.heap), 0) * _RUN
    times, stream, places, values = (
        get(run, RUN.timestamps), get(run, RUN.stream_times), get(run, RUN.places), get(run, RUN.values)
    )  # fmt: skip
    base, retention = get(run, RUN.stream_time), get(state, STATE.retention)
    record, end = get(state, STATE.record), get(get(run, RUN.first_records), get(run, RUN.at) + 1)
    while record < end:
        now, time = max(base, get(stream, record)), get(times, record)
        if time >= now - retention:
            if _short_of_pool(state):
                drop_expired(state, max(now - retention, 0) // get(state, STATE.interval))
                if _mostly_full(state):
                    put(state, STATE.record, record)
                    return False
            place = get(places, record)
            start = place >> 1
            length = -1 if place & 1 else (get(places, record + 1) >> 1) - start
            put_record(state, time, values + start, length)
        record += 1
    return True


def replay(state, first):
    """Replay keys in key order, each one's records in offset order; returns one of the codes."""
    if first:  # build the heap
        size = get(state, STATE.heap_size)
        for i in range(size):
            put(get(state, STATE.heap), i, i)
            _set_prefix(get(state, STATE.runs) + i * _RUN)
        for i in range(size // 2 - 1, -1, -1):
            _sift_down(state, i)
    while True:
        if get(state, STATE.phase) == 0:
            if get(state, STATE.heap_size) == 0:
                return DONE
            run = get(state, STATE.runs) + get(get(state, STATE.heap), 0) * _RUN
            put(state, STATE.key, _key_of(run))
            put(state, STATE.key_length, _length_of(run))
            put(state, STATE.latest_from, NONE)
            put(state, STATE.first_row, NONE)
            put(state, STATE.rows_used, 0)
            put(state, STATE.rows_free, NONE)
            put(state, STATE.rows_freed, 0)
            put(state, STATE.nodes_used, 0)
            put(state, STATE.nodes_free, NONE)
            put(state, STATE.nodes_freed, 0)
            _begin_run(state)
            put(state, STATE.phase, 1)
        if get(state, STATE.phase) == 1:
            while True:
                if not _replay_run(state):
                    return NEEDS_POOL
                _next_key(state)
                if not _same_key(state):
                    break
                _begin_run(state)
            put(state, STATE.phase, 2)
        if not _finish_key(state):
            return NEEDS_ROOM
        put(state, STATE.phase, 0)


def gather_rows(out, arena, order, count, key_offsets, keys, value_offsets, values):
    """Copy finished rows from the arena into contiguous buffers of enough room, in the given order."""
    key_at, value_at = 0, 0
    for i in range(count):
        if i + _AHEAD < count:
            prefetch(out + get(order, i + _AHEAD) * _OUT)
        if i + _ROW_AHEAD < count:
            prefetch(arena + get(out + get(order, i + _ROW_AHEAD) * _OUT, OUT.place))
        row = out + get(order, i) * _OUT
        start, key_size, value_size = arena + get(row, OUT.place), get(row, OUT.key_bytes), get(row, OUT.value_bytes)
        copy(keys + key_at, start, key_size)
        copy(values + value_at, start + key_size, value_size)
        key_at += key_size
        value_at += value_size
        put(key_offsets, i + 1, key_at)
        put(value_offsets, i + 1, value_at)
    return 0
