"""The Numba kernels of run building: the table of distinct keys, what survives, gathering.

A key is interned on first sight; after that a record costs one probe and one word written. Memory, all of it flat::

    table     uint64 per slot, power of two     0 = empty, else  tag (32 bits) | id + 1 (32 bits)
                                                slot = top bits of the tag; linear probing
    entries   4 x uint64 per distinct key       last   batch (32 bits) | row (32 bits) of the last write
              (half a cache line)               where  arena offset / 8 (32 bits) | key length (32 bits)
                                                bytes  the key itself when it has at most 16 bytes,
                                                bytes  else its first 16
    arena     keys longer than 16 bytes, whole, each at a multiple of 8
    ids       uint32 per row of a batch         the key's id, or NO_KEY
    batches   6 x uint64 per batch              addresses: value offsets, their width, value data, validity (0: all
                                                valid), timestamps (0: none); unused

Keys are compared for real, byte by byte; tags only spare most comparisons. Probes of later rows are prefetched, because
a table of millions of keys does not fit into a cache.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from statecore.formats.memory import (
    copy,
    equal,
    fold_multiply,
    load8,
    load64,
    load_short,
    offset_at,
    prefetch,
    store64,
)

NO_KEY = 0xFFFFFFFF
"""In place of an id where the record's key is null."""

INLINE_BYTES = 16
"""Keys up to this length live in their entry."""

ENTRY_WORDS = 4
BATCH_WORDS = 6

_OPTIONS: dict[str, Any] = {"nogil": True, "cache": True}
_NO_KEY = np.uint32(NO_KEY)
_INLINE = np.uint64(INLINE_BYTES)
_ENTRY = np.uint64(ENTRY_WORDS * 8)
_BATCH = np.uint64(BATCH_WORDS * 8)
_LOW = np.uint64(0xFFFFFFFF)
_32, _1, _8, _16 = np.uint64(32), np.uint64(1), np.uint64(8), np.uint64(16)
_K1, _K2, _K3 = np.uint64(0xA0761D6478BD642F), np.uint64(0xE7037ED1A0B428DB), np.uint64(0x8EBC6AF09C88C6E3)
_SLOT_AHEAD, _ENTRY_AHEAD = 24, 12


@njit("uint64(uint64, uint64)", **_OPTIONS)
def _hash(address: int, length: int) -> Any:
    """A fast 64-bit hash of a key, for the table alone: nothing that is kept depends on it."""
    state = _K3 ^ length
    at = np.uint64(0)
    while at + _16 < length:
        state = fold_multiply(load64(address + at) ^ _K1, load64(address + at + _8) ^ state)
        at += _16
    rest = length - at
    if rest >= _8:
        a, b = load64(address + at), load64(address + length - _8)
    else:
        a, b = load_short(address + at, rest), np.uint64(0)
    return fold_multiply(_K2 ^ length, fold_multiply(a ^ _K1, b ^ state))


@njit("uint64(uint64, uint64)", inline="always", **_OPTIONS)
def key_length(entries: int, key: int) -> Any:
    """Bytes of the key with that id."""
    return load64(entries + key * _ENTRY + _8) & _LOW


@njit("uint64(uint64, uint64, uint64)", inline="always", **_OPTIONS)
def key_address(entries: int, arena: int, key: int) -> Any:
    """Where the bytes of the key with that id lie."""
    where = load64(entries + key * _ENTRY + _8)
    if (where & _LOW) <= _INLINE:
        return entries + key * _ENTRY + _16
    return arena + (where >> _32) * _8


@njit("void(uint64, uint64, uint64, uint8[::1], uint32[::1])", **_OPTIONS)
def tag_keys(offsets: int, width: int, data: int, valid: Any, tags: Any) -> None:
    """The tag of each key of a batch, into what will hold its ids."""
    start = offset_at(offsets, width, np.uint64(0))
    for i in range(len(tags)):
        end = offset_at(offsets, width, np.uint64(i + 1))
        if len(valid) and not valid[i]:
            tags[i] = _NO_KEY
        else:
            tags[i] = np.uint32(_hash(data + start, end - start) >> _32)
        start = end


@njit(
    "int64(uint64, uint64, uint64, uint8[::1], uint32[::1], int64, uint64, uint64[::1], int64, uint64, int64, uint64,"
    " int64, int64[::1])",
    **_OPTIONS,
)
def intern_keys(
    offsets: int,
    width: int,
    data: int,
    valid: Any,
    ids: Any,
    row: int,
    batch: int,
    table: Any,
    table_bits: int,
    entries: int,
    entries_capacity: int,
    arena: int,
    arena_capacity: int,
    used: Any,
) -> int:
    """Turn the tags in ``ids`` into ids from ``row`` on, and make each row the last write of its key.

    ``used`` holds entries, arena bytes and null keys so far. Returns the row it stopped at: the number of rows when it
    is done, less when the table (kept at most half full), the entries or the arena must grow first.
    """
    count = len(ids)
    shift = np.uint64(32 - table_bits)
    mask = np.uint64((1 << table_bits) - 1)
    table_address = np.uint64(table.ctypes.data)
    limit = min(entries_capacity, (1 << table_bits) // 2)
    while row < count:
        if row + _SLOT_AHEAD < count:
            prefetch(table_address + (np.uint64(ids[row + _SLOT_AHEAD]) >> shift) * _8)
        if row + _ENTRY_AHEAD < count:
            ahead = load64(table_address + (np.uint64(ids[row + _ENTRY_AHEAD]) >> shift) * _8) & _LOW
            prefetch(entries + ahead * _ENTRY - _ENTRY)
        if len(valid) and not valid[row]:
            used[2] += 1
            row += 1
            continue
        tag = np.uint64(ids[row])
        start = offset_at(offsets, width, np.uint64(row))
        length = offset_at(offsets, width, np.uint64(row + 1)) - start
        key = data + start
        first = load_short(key, min(length, _8))
        second = load_short(key + _8, min(length - _8, _8)) if length > _8 else np.uint64(0)
        slot = tag >> shift
        while True:
            found = load64(table_address + slot * _8)
            if found == 0:
                need = np.int64((length + np.uint64(7)) & ~np.uint64(7)) if length > _INLINE else np.int64(0)
                if used[0] >= limit or used[1] + need > arena_capacity:
                    return row
                entry = entries + np.uint64(used[0]) * _ENTRY
                store64(entry + _8, (np.uint64(used[1]) >> np.uint64(3)) << _32 | length)
                store64(entry + _16, first)
                store64(entry + np.uint64(24), second)
                if length > _INLINE:
                    copy(arena + np.uint64(used[1]), key, length)
                    used[1] += need
                used[0] += 1
                store64(table_address + slot * _8, tag << _32 | np.uint64(used[0]))
                break
            if found >> _32 == tag:
                entry = entries + (found & _LOW) * _ENTRY - _ENTRY
                where = load64(entry + _8)
                if (
                    where & _LOW == length
                    and load64(entry + _16) == first
                    and load64(entry + np.uint64(24)) == second
                    and (length <= _INLINE or equal(arena + (where >> _32) * _8 + _16, key + _16, length - _INLINE))
                ):
                    break
            slot = (slot + _1) & mask
        store64(entry, batch << _32 | np.uint64(row))
        ids[row] = np.uint32((entry - entries) // _ENTRY)
        row += 1
    return row


@njit("void(uint64[::1], uint64[::1], int64)", **_OPTIONS)
def rehash(old: Any, new: Any, new_bits: int) -> None:
    """Move every slot of a table into a larger, empty one."""
    shift = np.uint64(32 - new_bits)
    mask = np.uint64((1 << new_bits) - 1)
    for found in old:
        if found:
            slot = (found >> _32) >> shift
            while new[slot]:
                slot = (slot + _1) & mask
            new[slot] = found


@njit("void(uint32[::1], uint64, uint64, uint64, uint64, uint64, int64[::1])", **_OPTIONS)
def count_live(ids: Any, batch: int, entries: int, offsets: int, width: int, valid: int, found: Any) -> None:
    """How many rows of a batch are still the last write of their key, and the bytes of their values."""
    rows, size = 0, np.uint64(0)
    for i in range(len(ids)):
        if ids[i] != _NO_KEY and load64(entries + np.uint64(ids[i]) * _ENTRY) == batch << _32 | np.uint64(i):
            rows += 1
            if not valid or load8(valid + np.uint64(i)):
                size += offset_at(offsets, width, np.uint64(i + 1)) - offset_at(offsets, width, np.uint64(i))
    found[0], found[1] = rows, np.int64(size)


@njit(
    "void(uint32[::1], uint64, uint64, uint64, uint64, uint64, uint64, uint64,"
    " uint32[::1], int64[::1], uint64, uint8[::1], int64[::1])",
    **_OPTIONS,
)
def keep_live(
    ids: Any,
    batch: int,
    entries: int,
    offsets: int,
    width: int,
    data: int,
    valid: int,
    stamps: int,
    new_ids: Any,
    new_offsets: Any,
    new_data: int,
    new_valid: Any,
    new_stamps: Any,
) -> None:
    """Copy the rows of a batch that are still the last write of their key, and point their entries at the copies."""
    kept, at = 0, np.uint64(0)
    for i in range(len(ids)):
        if ids[i] == _NO_KEY:
            continue
        entry = entries + np.uint64(ids[i]) * _ENTRY
        if load64(entry) != batch << _32 | np.uint64(i):
            continue
        store64(entry, batch << _32 | np.uint64(kept))
        new_ids[kept] = ids[i]
        new_offsets[kept] = np.int64(at)
        present = not valid or load8(valid + np.uint64(i)) != 0
        new_valid[kept] = present
        if present:
            start = offset_at(offsets, width, np.uint64(i))
            length = offset_at(offsets, width, np.uint64(i + 1)) - start
            copy(new_data + at, data + start, length)
            at += length
        if stamps:
            new_stamps[kept] = np.int64(load64(stamps + np.uint64(i) * _8))
        kept += 1
    new_offsets[kept] = np.int64(at)


@njit("int64(uint64, int64, uint64, boolean, uint32[::1])", **_OPTIONS)
def survivors(entries: int, count: int, batches: int, tombstones: bool, out: Any) -> int:
    """The ids of the keys to write, with or without those whose last write is a tombstone; returns how many."""
    kept = 0
    for i in range(count):
        last = load64(entries + np.uint64(i) * _ENTRY)
        valid = load64(batches + (last >> _32) * _BATCH + np.uint64(24))
        if tombstones or not valid or load8(valid + (last & _LOW)):
            out[kept] = np.uint32(i)
            kept += 1
    return kept


@njit(
    "int64(uint64, uint64, uint64, uint32[::1], int64[::1], uint64, int64, int64[::1], uint64, int64, uint8[::1],"
    " int64[::1], int64[::1])",
    **_OPTIONS,
)
def gather(
    entries: int,
    arena: int,
    batches: int,
    ids: Any,
    key_offsets: Any,
    keys: int,
    keys_capacity: int,
    value_offsets: Any,
    values: int,
    values_capacity: int,
    valid: Any,
    stamps: Any,
    needed: Any,
) -> int:
    """Copy keys and last values into contiguous buffers, in the order of ``ids``.

    Returns how many rows fitted; when that is none, ``needed`` says how many bytes of keys and values the first needs.
    """
    count = len(ids)
    key_at, value_at = np.uint64(0), np.uint64(0)
    for i in range(count):
        if i + 36 < count:
            prefetch(entries + np.uint64(ids[i + 36]) * _ENTRY)
        if i + 24 < count:
            last = load64(entries + np.uint64(ids[i + 24]) * _ENTRY)
            batch = batches + (last >> _32) * _BATCH
            prefetch(load64(batch) + (last & _LOW) * load64(batch + _8))
        if i + 12 < count:
            last = load64(entries + np.uint64(ids[i + 12]) * _ENTRY)
            batch = batches + (last >> _32) * _BATCH
            start = offset_at(load64(batch), load64(batch + _8), last & _LOW) + load64(batch + _16)
            prefetch(start)
            prefetch(start + np.uint64(64))
        key = np.uint64(ids[i])
        last = load64(entries + key * _ENTRY)
        batch = batches + (last >> _32) * _BATCH
        row = last & _LOW
        present_at = load64(batch + np.uint64(24))
        present = not present_at or load8(present_at + row) != 0
        start, length = np.uint64(0), np.uint64(0)
        if present:
            start = offset_at(load64(batch), load64(batch + _8), row)
            length = offset_at(load64(batch), load64(batch + _8), row + _1) - start
        size = key_length(entries, key)
        if np.int64(key_at + size) > keys_capacity or np.int64(value_at + length) > values_capacity:
            needed[0], needed[1] = np.int64(size), np.int64(length)
            return i
        copy(keys + key_at, key_address(entries, arena, key), size)
        key_at += size
        key_offsets[i + 1] = np.int64(key_at)
        copy(values + value_at, load64(batch + _16) + start, length)
        value_at += length
        value_offsets[i + 1] = np.int64(value_at)
        valid[i] = present
        stamps_at = load64(batch + np.uint64(32))
        if stamps_at:
            stamps[i] = np.int64(load64(stamps_at + row * _8))
    return count


def warm() -> None:
    """Load (or compile) the kernels; explicit signatures make importing this module do it."""
