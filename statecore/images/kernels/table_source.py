"""Kernels of the table of distinct keys: intern, drop overwritten rows, gather. Imported only to compile.

A key is interned once; after that a record costs one probe and one word written. Memory, all in flat arrays::

    table     uint64 per slot, power of two     0 = empty, else  tag (32 bits) | id + 1 (32 bits)
                                                slot = top bits of the tag; linear probing
    entries   4 x uint64 per distinct key       last   batch (32 bits) | row (32 bits) of the last write
              (half a cache line)               where  arena offset / 8 (32 bits) | key length (32 bits)
                                                bytes  the key itself when it has at most 16 bytes,
                                                bytes  else its first 16
    arena     keys longer than 16 bytes, whole, each at a multiple of 8
    ids       uint32 per row of a batch         the key's id, or NO_KEY
    batches   a ``Batch`` per batch             addresses of its values and timestamps

Keys are compared byte by byte; tags only avoid most comparisons. Probes of later rows are prefetched, because
a table of millions of keys does not fit into a cache.
"""

# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, disable-error-code="no-untyped-def"

from __future__ import annotations

import statecore.extras.pipeline

import numpy as np
from numba import njit

from statecore.images.kernels.kernel import BATCH, ENTRY_WORDS, INLINE_BYTES, LIVE, NEEDED, NO_KEY, USED
from statecore.kernels.memory import (
    copy,
    fold,
    get,
    le32,
    le64,
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

_ENTRY = ENTRY_WORDS * 8
_BATCH = len(BATCH) * 8
_K1, _K2, _K3 = np.uint64(0xA0761D6478BD642F), np.uint64(0xE7037ED1A0B428DB), np.uint64(0x8EBC6AF09C88C6E3)
_SLOT_AHEAD, _ENTRY_AHEAD = 24, 12
_GATHER_ENTRY, _GATHER_OFFSETS, _GATHER_VALUE = 36, 24, 12


@njit(error_model="numpy")
def key_tag(address, length):
    """Fast 32-bit hash of a key, for tables in memory only: nothing persistent depends on it."""
    state = _K3 ^ np.uint64(length)
    at = 0
    while at + 16 < length:
        state = fold(word(address + at) ^ _K1, word(address + at + 8) ^ state)
        at += 16
    rest = length - at
    if rest >= 8:
        a, b = word(address + at), word(address + length - 8)
    else:
        a, b = short_word(address + at, rest), np.uint64(0)
    return np.int64(fold(_K2 ^ np.uint64(length), fold(a ^ _K1, b ^ state)) >> np.uint64(32))


@njit(error_model="numpy")
def key_length(entries, key):
    """Bytes of the key with an id."""
    return le32(entries + key * _ENTRY + 8)


@njit(error_model="numpy")
def key_address(entries, arena, key):
    """Address of the key with an id."""
    if key_length(entries, key) <= INLINE_BYTES:
        return entries + key * _ENTRY + 16
    return arena + le32(entries + key * _ENTRY + 12) * 8


def tag_keys(offsets, width, data, valid, ids, rows):
    """Tag of each key of a batch, written to the array of its ids."""
    start = offset_at(offsets, width, 0)
    for i in range(rows):
        end = offset_at(offsets, width, i + 1)
        if valid and not u8(valid + i):
            put32(ids, i, NO_KEY)
        else:
            put32(ids, i, key_tag(data + start, end - start))
        start = end
    return 0


def intern_keys(
    offsets, width, data, valid, ids, rows, row, batch, table, bits, entries, capacity, arena, arena_capacity, used
):
    """Replace tags by ids from ``row`` on; returns the end, or the row for which table, entries or arena must grow."""
    shift, mask = 32 - bits, (1 << bits) - 1
    limit = min(capacity, (1 << bits) // 2)
    count, arena_used, null_keys = get(used, USED.keys), get(used, USED.arena_bytes), get(used, USED.null_keys)
    while row < rows:
        if row + _SLOT_AHEAD < rows:
            prefetch(table + (le32(ids + (row + _SLOT_AHEAD) * 4) >> shift) * 8)
        if row + _ENTRY_AHEAD < rows:
            ahead = le32(table + (le32(ids + (row + _ENTRY_AHEAD) * 4) >> shift) * 8)
            prefetch(entries + ahead * _ENTRY - _ENTRY)
        if valid and not u8(valid + row):
            null_keys += 1
            row += 1
            continue
        tag = le32(ids + row * 4)
        start = offset_at(offsets, width, row)
        length = offset_at(offsets, width, row + 1) - start
        key = data + start
        first, second = short_word(key, length), short_word(key + 8, length - 8)
        slot = tag >> shift
        found, full = -1, False
        while True:
            place = table + slot * 8
            there = le32(place)
            if there == 0:
                need = (length + 7) & ~7 if length > INLINE_BYTES else 0
                full = count >= limit or arena_used + need > arena_capacity
                if not full:
                    found = count
                    entry = entries + count * _ENTRY
                    put_word(entry + 8, np.uint64((arena_used >> 3) << 32 | length))
                    put_word(entry + 16, first)
                    put_word(entry + 24, second)
                    if need:
                        copy(arena + arena_used, key, length)
                        arena_used += need
                    count += 1
                    put_word(place, np.uint64(tag) << np.uint64(32) | np.uint64(count))
                break
            if le32(place + 4) == tag:
                entry = entries + (there - 1) * _ENTRY
                if (
                    le32(entry + 8) == length
                    and word(entry + 16) == first
                    and word(entry + 24) == second
                    and (
                        length <= INLINE_BYTES
                        or shared(arena + le32(entry + 12) * 8 + 16, key + 16, length - 16) == length - 16
                    )
                ):
                    found = there - 1
                    break
            slot = (slot + 1) & mask
        if full:
            break
        put_word(entries + found * _ENTRY, np.uint64(batch << 32 | row))
        put32(ids, row, found)
        row += 1
    put(used, USED.keys, count)
    put(used, USED.arena_bytes, arena_used)
    put(used, USED.null_keys, null_keys)
    return row


def append_keys(offsets, width, data, ids, rows, batch, entries, arena, used):
    """Append keys that the table does not have, each once, without a slot; the caller has reserved the room."""
    count, arena_used = get(used, USED.keys), get(used, USED.arena_bytes)
    start = offset_at(offsets, width, 0)
    for row in range(rows):
        end = offset_at(offsets, width, row + 1)
        key, length = data + start, end - start
        entry = entries + count * _ENTRY
        put_word(entry, np.uint64(batch << 32 | row))
        put_word(entry + 8, np.uint64((arena_used >> 3) << 32 | length))
        put_word(entry + 16, short_word(key, length))
        put_word(entry + 24, short_word(key + 8, length - 8))
        if length > INLINE_BYTES:
            copy(arena + arena_used, key, length)
            arena_used += (length + 7) & ~7
        put32(ids, row, count)
        count += 1
        start = end
    put(used, USED.keys, count)
    put(used, USED.arena_bytes, arena_used)
    return count


def rehash(old, old_slots, new, bits):
    """Move all slots of a table into a larger, empty one."""
    shift, mask = 32 - bits, (1 << bits) - 1
    for i in range(old_slots):
        if le32(old + i * 8):
            slot = le32(old + i * 8 + 4) >> shift
            while le32(new + slot * 8):
                slot = (slot + 1) & mask
            put_word(new + slot * 8, word(old + i * 8))
    return 0


@njit(error_model="numpy")
def _live(ids, i, batch, entries):
    """Entry of a row that is still the last write of its key, otherwise 0."""
    key = le32(ids + i * 4)
    if key == NO_KEY or le64(entries + key * _ENTRY) != batch << 32 | i:
        return 0
    return entries + key * _ENTRY


def count_live(ids, rows, batch, entries, offsets, width, valid, live):
    """Number of rows of a batch that are still the last write of their key, and their value bytes."""
    kept, size = 0, 0
    for i in range(rows):
        if _live(ids, i, batch, entries):
            kept += 1
            if not valid or u8(valid + i):
                size += offset_at(offsets, width, i + 1) - offset_at(offsets, width, i)
    put(live, LIVE.rows, kept)
    put(live, LIVE.bytes, size)
    return 0


def keep_live(
    ids,
    rows,
    batch,
    entries,
    offsets,
    width,
    valid,
    data,
    stamps,
    new_ids,
    new_offsets,
    new_data,
    new_valid,
    new_stamps,
):
    """Copy the rows of a batch that are still the last write of their key, and point their entries at the copies."""
    kept, at = 0, 0
    for i in range(rows):
        entry = _live(ids, i, batch, entries)
        if not entry:
            continue
        put_word(entry, np.uint64(batch << 32 | kept))
        put32(new_ids, kept, le32(ids + i * 4))
        put(new_offsets, kept, at)
        present = 1 if not valid or u8(valid + i) else 0
        put8(new_valid + kept, present)
        if present:
            start = offset_at(offsets, width, i)
            length = offset_at(offsets, width, i + 1) - start
            copy(new_data + at, data + start, length)
            at += length
        if stamps:
            put(new_stamps, kept, get(stamps, i))
        kept += 1
    put(new_offsets, kept, at)
    return 0


def survivors(entries, count, batches, tombstones, out):
    """Ids of the keys to write, with or without those whose last write is a tombstone; returns their number."""
    kept = 0
    for i in range(count):
        row, batch = le32(entries + i * _ENTRY), le32(entries + i * _ENTRY + 4)
        valid = get(batches + batch * _BATCH, BATCH.valid)
        if tombstones or not valid or u8(valid + row):
            put32(out, kept, i)
            kept += 1
    return kept


def gather(
    entries,
    arena,
    batches,
    ids,
    count,
    key_offsets,
    keys,
    keys_room,
    value_offsets,
    values,
    values_room,
    valid,
    stamps,
    needed,
):
    """Copy keys and last values in order of ids; returns how many fitted; if 0, ``needed`` has the first's bytes."""
    key_at, value_at = 0, 0
    for i in range(count):
        if i + _GATHER_ENTRY < count:
            prefetch(entries + le32(ids + (i + _GATHER_ENTRY) * 4) * _ENTRY)
        if i + _GATHER_OFFSETS < count:
            entry = entries + le32(ids + (i + _GATHER_OFFSETS) * 4) * _ENTRY
            batch = batches + le32(entry + 4) * _BATCH
            prefetch(get(batch, BATCH.offsets) + le32(entry) * get(batch, BATCH.width))
        if i + _GATHER_VALUE < count:
            entry = entries + le32(ids + (i + _GATHER_VALUE) * 4) * _ENTRY
            batch = batches + le32(entry + 4) * _BATCH
            start = get(batch, BATCH.data) + offset_at(get(batch, BATCH.offsets), get(batch, BATCH.width), le32(entry))
            prefetch(start)
            prefetch(start + 64)
        key = le32(ids + i * 4)
        entry = entries + key * _ENTRY
        row, batch = le32(entry), batches + le32(entry + 4) * _BATCH
        present = 1 if not get(batch, BATCH.valid) or u8(get(batch, BATCH.valid) + row) else 0
        start, length = 0, 0
        if present:
            start = offset_at(get(batch, BATCH.offsets), get(batch, BATCH.width), row)
            length = offset_at(get(batch, BATCH.offsets), get(batch, BATCH.width), row + 1) - start
        size = key_length(entries, key)
        if key_at + size > keys_room or value_at + length > values_room:
            put(needed, NEEDED.key_bytes, size)
            put(needed, NEEDED.value_bytes, length)
            return i
        copy(keys + key_at, key_address(entries, arena, key), size)
        key_at += size
        put(key_offsets, i + 1, key_at)
        copy(values + value_at, get(batch, BATCH.data) + start, length)
        value_at += length
        put(value_offsets, i + 1, value_at)
        put8(valid + i, present)
        if get(batch, BATCH.stamps):
            put(stamps, i, get(get(batch, BATCH.stamps), row))
    return count


def key_times(entries, arena, ids, count, at, out):
    """Big-endian int64 at a position of each key, counted from the key's end when negative."""
    for i in range(count):
        key = le32(ids + i * 4)
        place = key_address(entries, arena, key) + at + (key_length(entries, key) if at < 0 else 0)
        put(out, i, np.int64(swap(word(place))))
    return 0
