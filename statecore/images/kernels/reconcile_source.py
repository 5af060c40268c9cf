"""Kernel that merges a base and a whole log and copies the difference. Imported only to compile.

The runs of both are in one heap (:mod:`statecore.images.kernels.merged_source`), those of the log after those of the
base. So the rows of a key come together: first the log's last one, if any, then those that it replaced, then the base's
last one, and older ones. What the key needs is known when the next key comes, and is copied then.
"""

# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, disable-error-code="no-untyped-def"

from __future__ import annotations

import statecore.extras.pipeline

from numba import njit

from statecore.images.kernels.merged_kernel import CURSOR, DONE, MORE, STATE
from statecore.images.kernels.merged_source import _CURSOR_BYTES, _READY, _follow, _resume, _stop
from statecore.images.kernels.reconcile_kernel import DELETE, NOTHING, PENDING, VALUE
from statecore.kernels.memory import compare, copy, get, put, put8, put_word, word

__all__ = ["differ"]


@njit(error_model="numpy")
def _begin_key(cursor, pending, is_log, last):
    """Store a new key, and what it needs according to its first row."""
    key, length = get(cursor, CURSOR.key), get(cursor, CURSOR.key_length)
    for i in range(0, length, 8):
        put_word(last + i, word(key + i))
    needs, size = NOTHING, 0
    if get(cursor, CURSOR.is_value):
        if is_log:
            needs, size = VALUE, get(cursor, CURSOR.value_length)
            put(pending, PENDING.value, get(cursor, CURSOR.value))
        else:
            needs = DELETE
    put(pending, PENDING.needs, needs)
    put(pending, PENDING.is_told, 0 if is_log else 1)
    put(pending, PENDING.value_length, size)


@njit(error_model="numpy")
def _compare_parent(cursor, pending):
    """Compare the base's row of a key with the log's."""
    put(pending, PENDING.is_told, 1)
    if not get(cursor, CURSOR.is_value):
        return
    if get(pending, PENDING.needs) != VALUE:
        put(pending, PENDING.needs, DELETE)
        return
    size = get(pending, PENDING.value_length)
    is_as_long = size == get(cursor, CURSOR.value_length)
    if is_as_long and compare(get(pending, PENDING.value), size, get(cursor, CURSOR.value), size) == 0:
        put(pending, PENDING.needs, NOTHING)


def differ(
    cursors,
    heap,
    state,
    pending,
    parents,
    most,
    limit,
    key_room,
    value_room,
    key_offsets,
    keys,
    value_offsets,
    values,
    valid,
):
    """Read at most ``most`` rows of all runs, first the base's ``parents``, and append those that the base needs."""
    last, last_length, previous, read = get(state, STATE.last), get(state, STATE.last_length), -1, 0
    count = get(state, STATE.taken)
    if count == 0:
        put(key_offsets, 0, 0)
        put(value_offsets, 0, 0)
    key_at, value_at = get(key_offsets, count), get(value_offsets, count)
    found, size = _resume(cursors, heap, state, get(state, STATE.heap_size))
    while found == _READY and read < most and (size or get(pending, PENDING.needs) != NOTHING):
        run = get(heap, 0)
        cursor = cursors + run * _CURSOR_BYTES
        key, length = get(cursor, CURSOR.key), get(cursor, CURSOR.key_length)
        # Keys of one run are distinct.
        if size == 0 or run == previous or last_length < 0 or compare(last, last_length, key, length) != 0:
            needs = get(pending, PENDING.needs)
            if needs != NOTHING:
                value_length = get(pending, PENDING.value_length)
                is_too_large = key_at + last_length > key_room or value_at + value_length > value_room
                if count == limit or is_too_large:
                    break
                copy(keys + key_at, last, last_length)
                copy(values + value_at, get(pending, PENDING.value), value_length)
                key_at += last_length
                value_at += value_length
                put8(valid + count, 1 if needs == VALUE else 0)
                count += 1
                put(key_offsets, count, key_at)
                put(value_offsets, count, value_at)
                put(pending, PENDING.needs, NOTHING)
            if size == 0:
                break
            _begin_key(cursor, pending, run >= parents, last)
            last_length = length
        elif run < parents and not get(pending, PENDING.is_told):
            _compare_parent(cursor, pending)
        previous = run
        read += 1
        found, size = _follow(cursors, heap, state, size)
    put(state, STATE.heap_size, size)
    put(state, STATE.last_length, last_length)
    put(state, STATE.taken, count)
    if found != _READY:
        return _stop(state, get(heap, 0), found)
    return MORE if size or get(pending, PENDING.needs) != NOTHING else DONE
