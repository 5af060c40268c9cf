"""Kernels that write SST blocks; `statecore.images.sst` describes the format. Imported only to compile."""

# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, disable-error-code="no-untyped-def"

from __future__ import annotations

import statecore.extras.pipeline

import numpy as np
from numba import njit

from statecore.images.kernels.hash_source import _key_hash, _xxh64
from statecore.images.kernels.kernel import WRITTEN
from statecore.kernels.memory import copy, get, put, put32, put_word, shared, u8

_0, _1, _LOW = np.uint64(0), np.uint64(1), np.uint64(0xFFFFFFFF)
_RESTART_INTERVAL = 16
_TRAILER = 5


@njit(error_model="numpy")
def _put_varint(at, number):
    """Write a varint; up to seven bytes after it are overwritten. Returns the address after it."""
    while number >= 128:
        put_word(at, np.uint64(number & 127 | 128))
        number >>= 7
        at += 1
    put_word(at, np.uint64(number))
    return at + 1


@njit(error_model="numpy")
def _end_block(start, at, restarts, count):
    """Write restarts, their number, compression type and checksum. Returns the address after the block's contents."""
    copy(at, restarts, 4 * count)
    at += 4 * count
    put_word(at, np.uint64(count))  # followed by the compression type (0: none)
    at += 4
    put_word(at + 1, _xxh64(start, at + 1 - start, _0) & _LOW)
    return at


def data_blocks(
    key_offsets,
    keys,
    value_offsets,
    values,
    valid,
    count,
    file_offset,
    block_bytes,
    last_key,
    last_key_bytes,
    last_block,
    last_block_bytes,
    out,
    index,
    index_starts,
    restarts,
    hashes,
    secret,
    written,
):
    """Write rows as whole data blocks, hashes of keys, and entries of followed blocks, first the last call's block."""
    at, start, index_at = out, out, index
    entries, restart_count, in_block = 0, 0, 0
    previous, previous_size = last_key, last_key_bytes
    if last_block_bytes:
        put32(index_starts, 0, 0)
        first, first_size = keys + get(key_offsets, 0), get(key_offsets, 1) - get(key_offsets, 0)
        index_at = _put_index(index_at, previous, previous_size, first, first_size, last_block, last_block_bytes)
        entries = 1
    for i in range(count):
        key, size = keys + get(key_offsets, i), get(key_offsets, i + 1) - get(key_offsets, i)
        value, length = values + get(value_offsets, i), get(value_offsets, i + 1) - get(value_offsets, i)
        if in_block and at - start + 4 * restart_count + size + length + 20 > block_bytes:
            end = _end_block(start, at, restarts, restart_count)
            put32(index_starts, entries, index_at - index)
            index_at = _put_index(index_at, previous, previous_size, key, size, file_offset + start - out, end - start)
            entries += 1
            at = start = end + _TRAILER
            restart_count = in_block = 0
        common = 0
        if in_block % _RESTART_INTERVAL == 0:
            put32(restarts, restart_count, at - start)
            restart_count += 1
        else:
            common = shared(previous, key, min(previous_size, size))
        at = _put_varint(at, common)
        at = _put_varint(at, size - common + 8)
        at = _put_varint(at, length)
        copy(at, key + common, size - common)
        at += size - common
        # Sequence number 0 and the type: 1 a value, 0 a delete.
        put_word(at, _0 if valid and not u8(valid + i) else _1)
        at += 8
        copy(at, value, length)
        at += length
        put(hashes, i, np.int64(_key_hash(key, size, secret)))
        previous, previous_size = key, size
        in_block += 1
    end = _end_block(start, at, restarts, restart_count)
    put(written, WRITTEN.bytes, end + _TRAILER - out)
    put(written, WRITTEN.index_entries, entries)
    put(written, WRITTEN.index_bytes, index_at - index)
    put(written, WRITTEN.last_block, file_offset + start - out)
    put(written, WRITTEN.last_block_bytes, end - start)
    return 0


@njit(error_model="numpy")
def _put_index(at, key, size, following, following_size, offset, length):
    """Write a block's index entry: at least its last key, less than the next block's first. Returns the end."""
    apart = shared(key, following, min(size, following_size)) + 1
    if apart < size and apart < following_size:  # truncated here, the next key is already greater than the last one
        key, size = following, apart
    put_word(at, _0)
    at = _put_varint(at + 1, size)
    copy(at, key, size)
    return _put_varint(_put_varint(at + size, offset), length)
