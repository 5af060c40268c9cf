"""Kernels that sort the records of a run by key and then by offset. Imported only to compile.

``where`` says of each record, in that order, where it lies: batch (32 bits), row (32 bits).
"""

# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, disable-error-code="no-untyped-def"

from __future__ import annotations

from statecore.images.kernel import BATCH_WORDS, NO_KEY
from statecore.images.table_source import key_address, key_length
from statecore.kernels.memory import copy, get, le32, offset_at, prefetch, put, u8

_BATCH = BATCH_WORDS * 8
_AHEAD, _VALUE_AHEAD = 32, 12
_ROW = 0xFFFFFFFF


def count_records(block):
    """Add the records of each key in a batch to the counts, by key id."""
    ids, rows, counts = get(block, 0), get(block, 1), get(block, 2)
    for i in range(rows):
        key = le32(ids + i * 4)
        if key != NO_KEY:
            put(counts, key, get(counts, key) + 1)
    return 0


def place_records(block):
    """Write where each record of a batch lies to the next place of its key."""
    ids, rows, batch, places, out = get(block, 0), get(block, 1), get(block, 2), get(block, 3), get(block, 4)
    for i in range(rows):
        key = le32(ids + i * 4)
        if key != NO_KEY:
            place = get(places, key)
            put(places, key, place + 1)
            put(out, place, batch << 32 | i)
    return 0


def describe_records(block):
    """Timestamps, stream times and places of the values of all records."""
    batches, where, count, stream = get(block, 0), get(block, 1), get(block, 2), get(block, 3)
    times, stream_times, places = get(block, 4), get(block, 5), get(block, 6)
    at = 0
    for i in range(count):
        if i + _AHEAD < count:
            there = get(where, i + _AHEAD)
            batch, row = batches + (there >> 32) * _BATCH, there & _ROW
            prefetch(get(batch, 0) + row * get(batch, 1))
            prefetch(get(batch, 4) + row * 8)
            prefetch(get(stream, there >> 32) + row * 8)
        there = get(where, i)
        batch, row = batches + (there >> 32) * _BATCH, there & _ROW
        put(times, i, get(get(batch, 4), row))
        put(stream_times, i, get(get(stream, there >> 32), row))
        if not get(batch, 3) or u8(get(batch, 3) + row):
            put(places, i, at << 1)
            at += offset_at(get(batch, 0), get(batch, 1), row + 1) - offset_at(get(batch, 0), get(batch, 1), row)
        else:
            put(places, i, at << 1 | 1)
    put(places, count, at << 1)
    return 0


def gather_values(block):
    """Copy the values of some records one after the other; the room must be enough."""
    batches, where, places, low, high, values = (
        get(block, 0), get(block, 1), get(block, 2), get(block, 3), get(block, 4), get(block, 5)
    )  # fmt: skip
    at = 0
    for i in range(low, high):
        if i + _AHEAD < high:
            there = get(where, i + _AHEAD)
            batch = batches + (there >> 32) * _BATCH
            prefetch(get(batch, 0) + (there & _ROW) * get(batch, 1))
        if i + _VALUE_AHEAD < high:
            there = get(where, i + _VALUE_AHEAD)
            batch = batches + (there >> 32) * _BATCH
            prefetch(get(batch, 2) + offset_at(get(batch, 0), get(batch, 1), there & _ROW))
        length = (get(places, i + 1) >> 1) - (get(places, i) >> 1)
        if length:
            there = get(where, i)
            batch = batches + (there >> 32) * _BATCH
            copy(values + at, get(batch, 2) + offset_at(get(batch, 0), get(batch, 1), there & _ROW), length)
            at += length
    return 0


def gather_keys(block):
    """Copy keys one after the other, in the order of the ids; the room must be enough."""
    entries, arena, ids, count, offsets, keys = (
        get(block, 0), get(block, 1), get(block, 2), get(block, 3), get(block, 4), get(block, 5)
    )  # fmt: skip
    at = 0
    for i in range(count):
        key = le32(ids + i * 4)
        size = key_length(entries, key)
        copy(keys + at, key_address(entries, arena, key), size)
        at += size
        put(offsets, i + 1, at)
    return 0
