"""Kernels that divide records by key range, pack them, and drop overwritten ones. Imported only to compile.

:mod:`statecore.images.row_batches` describes packed records.
"""

# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, disable-error-code="no-untyped-def"

from __future__ import annotations

import statecore.extras.pipeline

import numpy as np
from numba import njit

from statecore.images.kernels.kernel import NO_KEY, PACKED_DELETE, PACKED_HEADER, UNPACKED
from statecore.images.kernels.table_source import key_tag
from statecore.kernels.memory import (
    compare,
    copy,
    get,
    le32,
    move,
    offset_at,
    prefetch,
    put,
    put8,
    put32,
    put_word,
    shared,
    short_word,
    swap,
    u8,
    word,
)

_AHEAD, _SLOT_AHEAD = 8, 24
_PLACE = (1 << 40) - 1
_32 = np.uint64(32)


@njit(error_model="numpy")
def _record_bytes(record):
    """Bytes of a packed record with its header."""
    length = le32(record + 4)
    return PACKED_HEADER + le32(record) + (0 if length == PACKED_DELETE else length)


@njit(error_model="numpy")
def _range_of(key, length, bounds, bound_offsets, count, skip, words, starts, shift):
    """Index of the key range of a key: the number of bounds that are not greater than it.

    Bounds ascend, and all begin with the same ``skip`` bytes; ``words`` has the next eight bytes of each, as a
    big-endian number. The distance of such a word from the first one, without the lower ``shift`` bits, is the index of
    its bucket; ``starts`` has the first bound of each bucket.
    """
    ahead = compare(key, min(length, skip), bounds, skip) if skip else 0
    if ahead or not count:
        return 0 if ahead <= 0 else count
    mine = swap(short_word(key + skip, length - skip))
    if mine < word(words):
        return 0
    if mine > word(words + (count - 1) * 8):
        return count
    bucket = np.int64((mine - word(words)) >> np.uint64(shift))
    low, high = le32(starts + bucket * 4), le32(starts + bucket * 4 + 4)
    while low < high:
        middle = (low + high) >> 1
        theirs = word(words + middle * 8)
        greater = theirs > mine
        if theirs == mine:
            bound = get(bound_offsets, middle)
            greater = compare(bounds + bound, get(bound_offsets, middle + 1) - bound, key, length) > 0
        if greater:
            high = middle
        else:
            low = middle + 1
    return low


def route(offsets, width, data, valid, rows, bounds, bound_offsets, count, skip, words, starts, shift, out):
    """Index of the key range of each key; ``NO_KEY`` for a null key."""
    for row in range(rows):
        if valid and not u8(valid + row):
            put32(out, row, NO_KEY)
            continue
        start = offset_at(offsets, width, row)
        length = offset_at(offsets, width, row + 1) - start
        put32(out, row, _range_of(data + start, length, bounds, bound_offsets, count, skip, words, starts, shift))
    return 0


def repack(data, at, end, bounds, bound_offsets, count, skip, words, starts, shift, buffers, room, fill, full):
    """Append packed records to their ranges' buffers; returns where it stopped: end, cut record or ``full`` range."""
    put(full, 0, -1)
    while at + PACKED_HEADER <= end:
        record = data + at
        whole = _record_bytes(record)
        if at + whole > end:
            break
        key, length = record + PACKED_HEADER, le32(record)
        number = _range_of(key, length, bounds, bound_offsets, count, skip, words, starts, shift)
        used = get(fill, number)
        if used + whole > room:
            put(full, 0, number)
            break
        copy(buffers + number * room + used, record, whole)
        put(fill, number, used + whole)
        at += whole
    return at


def pack(
    ranges,
    offsets,
    width,
    data,
    value_offsets,
    value_width,
    value_data,
    value_valid,
    stamps,
    row,
    rows,
    buffers,
    room,
    fill,
    full,
):
    """Append rows to their ranges' buffers; returns the row it stopped at: the end, or one of a ``full`` range."""
    while row < rows:
        number = le32(ranges + row * 4)
        if row + _AHEAD < rows:
            ahead = le32(ranges + (row + _AHEAD) * 4)
            if ahead != NO_KEY:
                prefetch(buffers + ahead * room + get(fill, ahead))
        if number == NO_KEY:
            row += 1
            continue
        start = offset_at(offsets, width, row)
        size = offset_at(offsets, width, row + 1) - start
        value, length, stored = 0, 0, PACKED_DELETE
        if not value_valid or u8(value_valid + row):
            value = offset_at(value_offsets, value_width, row)
            length = offset_at(value_offsets, value_width, row + 1) - value
            stored = length
        used = get(fill, number)
        if used + PACKED_HEADER + size + length > room:
            put(full, 0, number)
            return row
        to = buffers + number * room + used
        put_word(to, np.uint64(size) | np.uint64(stored) << _32)
        put_word(to + 8, np.uint64(get(stamps, row) if stamps else 0))
        copy(to + PACKED_HEADER, data + start, size)
        copy(to + PACKED_HEADER + size, value_data + value, length)
        put(fill, number, used + PACKED_HEADER + size + length)
        row += 1
    return row


def drop_first(buffers, count, room, fill, size):
    """Drop ``size`` bytes of each buffer that has them; returns the number of these buffers."""
    dropped = 0
    for number in range(count):
        left = get(fill, number) - size
        if left >= 0:
            move(buffers + number * room, buffers + number * room + size, left)
            put(fill, number, left)
            dropped += 1
    return dropped


def tag_packed(data, end, tags, places):
    """Tag and position of each packed record; returns their number."""
    at, row = 0, 0
    while at < end:
        put32(tags, row, key_tag(data + at + PACKED_HEADER, le32(data + at)))
        put(places, row, at)
        at += _record_bytes(data + at)
        row += 1
    return row


def keep_last(data, tags, places, rows, table, bits):
    """Compact packed records to the last one of each key, in order; returns their end.

    From last to first, a record stays if its key has not occurred. ``table`` has a word for each slot, zeros at first:
    low bits of the tag (24), and the position of the record that stays plus 1 (40). Slots are found as in the key
    table. A tag becomes 1 if its record stays, otherwise 0.
    """
    shift, mask = 32 - bits, (1 << bits) - 1
    for row in range(rows - 1, -1, -1):
        if row >= _SLOT_AHEAD:
            prefetch(table + (le32(tags + (row - _SLOT_AHEAD) * 4) >> shift) * 8)
        if row >= _AHEAD:
            prefetch(data + (np.int64(word(table + (le32(tags + (row - _AHEAD) * 4) >> shift) * 8)) & _PLACE))
        tag, at, stays = le32(tags + row * 4), get(places, row), 1
        slot, low = tag >> shift, np.int64(tag & 0xFFFFFF) << 40
        size = le32(data + at)
        while True:
            there = np.int64(word(table + slot * 8))
            if there == 0:
                put_word(table + slot * 8, np.uint64(low | (at + 1)))
                break
            if there & ~_PLACE == low:
                other = data + (there & _PLACE) - 1
                if le32(other) == size and shared(other + PACKED_HEADER, data + at + PACKED_HEADER, size) == size:
                    stays = 0
                    break
            slot = (slot + 1) & mask
        put32(tags, row, stays)
    to = 0
    for row in range(rows):
        if le32(tags + row * 4):
            record = data + get(places, row)
            whole = _record_bytes(record)
            move(data + to, record, whole)
            to += whole
    return to


def measure_packed(data, end, most, unpacked):
    """Count whole records, up to ``most``, and bytes of their keys and values; returns the next one's position."""
    at, rows, keys, values = 0, 0, 0, 0
    while rows < most and at + PACKED_HEADER <= end:
        size, length = le32(data + at), le32(data + at + 4)
        if length == PACKED_DELETE:
            length = 0
        if size + length > end - at - PACKED_HEADER:
            break
        at += PACKED_HEADER + size + length
        rows += 1
        keys += size
        values += length
    put(unpacked, UNPACKED.rows, rows)
    put(unpacked, UNPACKED.key_bytes, keys)
    put(unpacked, UNPACKED.value_bytes, values)
    return at


def unpack(data, rows, key_offsets, keys, value_offsets, values, valid, stamps):
    """Unpack records into columns; returns the number of deletes."""
    at, key, value, deletes = 0, 0, 0, 0
    put(key_offsets, 0, 0)
    put(value_offsets, 0, 0)
    for row in range(rows):
        size, length = le32(data + at), le32(data + at + 4)
        present = 1
        if length == PACKED_DELETE:
            length, present = 0, 0
            deletes += 1
        put(stamps, row, np.int64(word(data + at + 8)))
        at += PACKED_HEADER
        copy(keys + key, data + at, size)
        copy(values + value, data + at + size, length)
        at += size + length
        key += size
        value += length
        put(key_offsets, row + 1, key)
        put(value_offsets, row + 1, value)
        put8(valid + row, present)
    return deletes
