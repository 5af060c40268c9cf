"""Kernels that sort the records of a run by key and then by offset. Imported only to compile.

``where`` has the position of each record, in that order: batch (32 bits), row (32 bits).
"""

# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, disable-error-code="no-untyped-def"

from __future__ import annotations

from statecore.images.kernels.kernel import BATCH, NO_KEY
from statecore.images.kernels.table_source import key_address, key_length
from statecore.kernels.memory import copy, get, le32, offset_at, prefetch, put, u8

_BATCH = len(BATCH) * 8
_AHEAD, _VALUE_AHEAD = 32, 12
_ROW = 0xFFFFFFFF


def count_records(ids, rows, counts):
    """Add the records of each key in a batch to the counts, by key id."""
    for i in range(rows):
        key = le32(ids + i * 4)
        if key != NO_KEY:
            put(counts, key, get(counts, key) + 1)
    return 0


def place_records(ids, rows, batch, places, out):
    """Write the position of each record of a batch to the next slot of its key."""
    for i in range(rows):
        key = le32(ids + i * 4)
        if key != NO_KEY:
            place = get(places, key)
            put(places, key, place + 1)
            put(out, place, batch << 32 | i)
    return 0


def describe_records(batches, where, count, stream, times, stream_times, places):
    """Write timestamps, stream times and value positions of all records."""
    at = 0
    for i in range(count):
        if i + _AHEAD < count:
            there = get(where, i + _AHEAD)
            batch, row = batches + (there >> 32) * _BATCH, there & _ROW
            prefetch(get(batch, BATCH.offsets) + row * get(batch, BATCH.width))
            prefetch(get(batch, BATCH.stamps) + row * 8)
            prefetch(get(stream, there >> 32) + row * 8)
        there = get(where, i)
        batch, row = batches + (there >> 32) * _BATCH, there & _ROW
        put(times, i, get(get(batch, BATCH.stamps), row))
        put(stream_times, i, get(get(stream, there >> 32), row))
        if not get(batch, BATCH.valid) or u8(get(batch, BATCH.valid) + row):
            put(places, i, at << 1)
            at += offset_at(get(batch, BATCH.offsets), get(batch, BATCH.width), row + 1) - offset_at(
                get(batch, BATCH.offsets), get(batch, BATCH.width), row
            )
        else:
            put(places, i, at << 1 | 1)
    put(places, count, at << 1)
    return 0


def gather_values(batches, where, places, low, high, values):
    """Copy the values of some records one after the other; the caller provides enough room."""
    at = 0
    for i in range(low, high):
        if i + _AHEAD < high:
            there = get(where, i + _AHEAD)
            batch = batches + (there >> 32) * _BATCH
            prefetch(get(batch, BATCH.offsets) + (there & _ROW) * get(batch, BATCH.width))
        if i + _VALUE_AHEAD < high:
            there = get(where, i + _VALUE_AHEAD)
            batch = batches + (there >> 32) * _BATCH
            prefetch(
                get(batch, BATCH.data) + offset_at(get(batch, BATCH.offsets), get(batch, BATCH.width), there & _ROW)
            )
        length = (get(places, i + 1) >> 1) - (get(places, i) >> 1)
        if length:
            there = get(where, i)
            batch = batches + (there >> 32) * _BATCH
            copy(
                values + at,
                get(batch, BATCH.data) + offset_at(get(batch, BATCH.offsets), get(batch, BATCH.width), there & _ROW),
                length,
            )
            at += length
    return 0


def gather_keys(entries, arena, ids, count, offsets, keys):
    """Copy keys one after the other, in the order of the ids; the caller provides enough room."""
    at = 0
    for i in range(count):
        key = le32(ids + i * 4)
        size = key_length(entries, key)
        copy(keys + at, key_address(entries, arena, key), size)
        at += size
        put(offsets, i + 1, at)
    return 0
