"""Kernels that divide records by key range, pack them for a file and drop the overwritten. Imported only to compile.

Packed records are drawn in :mod:`statecore.images.packed_records`.
"""

# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, disable-error-code="no-untyped-def"

from __future__ import annotations

import statecore.extras.pipeline

import numpy as np
from numba import njit

from statecore.images.kernel import NO_KEY, PACKED_DELETE, PACKED_HEADER, UNPACKED
from statecore.images.table_source import key_tag
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
    """Bytes of a packed record, its header included."""
    length = le32(record + 4)
    return PACKED_HEADER + le32(record) + (0 if length == PACKED_DELETE else length)


def route(offsets, width, data, valid, rows, bounds, bound_offsets, count, skip, words, out):
    """The number of the range that each key lies in: how many bounds are not greater than it.

    Bounds ascend, and all begin with the same ``skip`` bytes; ``words`` has the eight bytes after these of each, as a
    big-endian number. A null key has ``NO_KEY``.
    """
    for row in range(rows):
        if valid and not u8(valid + row):
            put32(out, row, NO_KEY)
            continue
        start = offset_at(offsets, width, row)
        key, length = data + start, offset_at(offsets, width, row + 1) - start
        ahead = compare(key, min(length, skip), bounds, skip)
        if ahead:
            put32(out, row, 0 if ahead < 0 else count)
            continue
        mine = swap(short_word(key + skip, length - skip))
        low, high = 0, count
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
        put32(out, row, low)
    return 0


def pack(
    ranges,
    first,
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
    """Append the rows of ranges from ``first`` on to a buffer for each; returns the row it stopped at.

    That is the number of rows when it is done, else the first row whose range (in ``full``) has not enough room left.
    """
    while row < rows:
        number = le32(ranges + row * 4)
        if row + _AHEAD < rows:
            ahead = le32(ranges + (row + _AHEAD) * 4)
            if ahead != NO_KEY and ahead >= first:
                prefetch(buffers + (ahead - first) * room + get(fill, ahead - first))
        if number == NO_KEY or number < first:
            row += 1
            continue
        number -= first
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


def measure_kept(ranges, offsets, width, value_offsets, value_width, value_valid, rows, unpacked):
    """How many rows have range 0, and the bytes of their keys and values."""
    kept, keys, values = 0, 0, 0
    for row in range(rows):
        if le32(ranges + row * 4) == 0:
            kept += 1
            keys += offset_at(offsets, width, row + 1) - offset_at(offsets, width, row)
            if not value_valid or u8(value_valid + row):
                values += offset_at(value_offsets, value_width, row + 1) - offset_at(value_offsets, value_width, row)
    put(unpacked, UNPACKED.rows, kept)
    put(unpacked, UNPACKED.key_bytes, keys)
    put(unpacked, UNPACKED.value_bytes, values)
    return kept


def keep_rows(
    ranges,
    offsets,
    width,
    data,
    value_offsets,
    value_width,
    value_data,
    value_valid,
    stamps,
    rows,
    key_offsets,
    keys,
    new_offsets,
    values,
    valid,
    new_stamps,
):
    """Copy the rows of range 0 into columns of their own; returns how many of them are deletes."""
    kept, key, value, deletes = 0, 0, 0, 0
    put(key_offsets, 0, 0)
    put(new_offsets, 0, 0)
    for row in range(rows):
        if le32(ranges + row * 4):
            continue
        start = offset_at(offsets, width, row)
        size = offset_at(offsets, width, row + 1) - start
        copy(keys + key, data + start, size)
        key += size
        present = 1
        if value_valid and not u8(value_valid + row):
            present = 0
            deletes += 1
        else:
            start = offset_at(value_offsets, value_width, row)
            size = offset_at(value_offsets, value_width, row + 1) - start
            copy(values + value, value_data + start, size)
            value += size
        put8(valid + kept, present)
        put(new_stamps, kept, get(stamps, row) if stamps else 0)
        kept += 1
        put(key_offsets, kept, key)
        put(new_offsets, kept, value)
    return deletes


def tag_packed(data, end, tags):
    """A tag of the key of each packed record; returns how many there are."""
    at, row = 0, 0
    while at < end:
        put32(tags, row, key_tag(data + at + PACKED_HEADER, le32(data + at)))
        at += _record_bytes(data + at)
        row += 1
    return row


def keep_last(data, tags, rows, table, bits):
    """Move the last packed record of each key to the front, in their order; returns where they end.

    ``table`` has a word for each slot, zeros at first: low bits of the tag (24), and place of the key's last record so
    far plus 1 (40). Slots are found as in the table of keys; tags become slots.
    """
    shift, mask, at = 32 - bits, (1 << bits) - 1, 0
    for row in range(rows):
        if row + _SLOT_AHEAD < rows:
            prefetch(table + (le32(tags + (row + _SLOT_AHEAD) * 4) >> shift) * 8)
        if row + _AHEAD < rows:
            prefetch(data + (np.int64(word(table + (le32(tags + (row + _AHEAD) * 4) >> shift) * 8)) & _PLACE))
        tag = le32(tags + row * 4)
        slot, low = tag >> shift, np.int64(tag & 0xFFFFFF) << 40
        size = le32(data + at)
        while True:
            there = np.int64(word(table + slot * 8))
            if there == 0:
                break
            if there & ~_PLACE == low:
                other = data + (there & _PLACE) - 1
                if le32(other) == size and (shared(other + PACKED_HEADER, data + at + PACKED_HEADER, size) == size):
                    break
            slot = (slot + 1) & mask
        put_word(table + slot * 8, np.uint64(low | (at + 1)))
        put32(tags, row, slot)
        at += _record_bytes(data + at)
    at, to = 0, 0
    for row in range(rows):
        if row + _AHEAD < rows:
            prefetch(table + le32(tags + (row + _AHEAD) * 4) * 8)
        whole = _record_bytes(data + at)
        if np.int64(word(table + le32(tags + row * 4) * 8)) & _PLACE == at + 1:
            move(data + to, data + at, whole)
            to += whole
        at += whole
    return to


def sample_packed(data, end, every, places):
    """Where records begin, about one in so many bytes; returns how many."""
    at, found, ahead = 0, 0, 0
    while at < end:
        if at >= ahead:
            put(places, found, at)
            found += 1
            ahead = at + every
        at += _record_bytes(data + at)
    return found


def divide_packed(data, end, bound, bound_length, above):
    """Copy the records whose keys are not below a bound, and move the others to the front; returns where these end."""
    at, to, out = 0, 0, 0
    while at < end:
        whole = _record_bytes(data + at)
        if compare(data + at + PACKED_HEADER, le32(data + at), bound, bound_length) < 0:
            move(data + to, data + at, whole)
            to += whole
        else:
            copy(above + out, data + at, whole)
            out += whole
        at += whole
    return to


def measure_packed(data, end, most, unpacked):
    """How many whole records there are from the beginning, at most so many, and the bytes of their keys and values.

    Returns where the next one begins.
    """
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
    """The columns of packed records; returns how many of them are deletes."""
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
