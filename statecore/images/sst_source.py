"""Kernels that lay out SST blocks and hash rows; `statecore.images.sst` draws the format. Imported only to compile.

Two hashes of others are computed here, both held against them in tests: XXH64, as its specification has it, for digests
and block checksums; and XXPH3, a preview of XXH3 that RocksDB keeps for its bloom filters (``util/xxph3.h``), for keys
of at most ``LONGEST_HASHED`` bytes.
"""

# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, disable-error-code="no-untyped-def"

from __future__ import annotations

import statecore.extras.pipeline

import numpy as np
from numba import njit

from statecore.images.kernel import WRITTEN
from statecore.kernels.memory import copy, fold, get, le32, or8, put, put32, put_word, shared, u8, word

_P1, _P2, _P3 = np.uint64(0x9E3779B185EBCA87), np.uint64(0xC2B2AE3D27D4EB4F), np.uint64(0x165667B19E3779F9)
_P4, _P5, _P32 = np.uint64(0x85EBCA77C2B2AE63), np.uint64(0x27D4EB2F165667C5), np.uint64(0x9E3779B1)
_SECRET_0, _SECRET_8 = np.uint64(0xBE4BA423396CFEB8), np.uint64(0x1CAD21F72C81017C)
_0, _1, _LOW = np.uint64(0), np.uint64(1), np.uint64(0xFFFFFFFF)
_64, _GOLDEN = np.uint64(64), np.uint64(0x9E3779B9)
_RESTART_INTERVAL = 16
_TRAILER = 5


@njit(error_model="numpy")
def _rotate(number, bits):
    return (number << np.uint64(bits)) | (number >> (_64 - np.uint64(bits)))


@njit(error_model="numpy")
def _round(accumulator, number):
    return _rotate(accumulator + number * _P2, 31) * _P1


@njit(error_model="numpy")
def _merge(accumulator, lane):
    return (accumulator ^ _round(_0, lane)) * _P1 + _P4


@njit(error_model="numpy")
def _xxh64(address, length, seed):
    at, end = address, address + length
    if length >= 32:
        a, b, c, d = seed + _P1 + _P2, seed + _P2, seed, seed - _P1
        while at + 32 <= end:
            a, b = _round(a, word(at)), _round(b, word(at + 8))
            c, d = _round(c, word(at + 16)), _round(d, word(at + 24))
            at += 32
        result = _rotate(a, 1) + _rotate(b, 7) + _rotate(c, 12) + _rotate(d, 18)
        result = _merge(_merge(_merge(_merge(result, a), b), c), d)
    else:
        result = seed + _P5
    result += np.uint64(length)
    while at + 8 <= end:
        result = _rotate(result ^ _round(_0, word(at)), 27) * _P1 + _P4
        at += 8
    if at + 4 <= end:
        result = _rotate(result ^ (np.uint64(le32(at)) * _P1), 23) * _P2 + _P3
        at += 4
    while at < end:
        result = _rotate(result ^ (np.uint64(u8(at)) * _P5), 11) * _P1
        at += 1
    result = (result ^ (result >> np.uint64(33))) * _P2
    result = (result ^ (result >> np.uint64(29))) * _P3
    return result ^ (result >> np.uint64(32))


def xxh64(address, length, seed):
    """XXH64 of a range with a seed."""
    return np.int64(_xxh64(address, length, np.uint64(seed)))


def add_rows(key_offsets, keys, value_offsets, values, valid, count, sums, seed_a, seed_b):
    """Add the hashes of rows to two sums; a zero in ``valid`` marks a delete, which is left out."""
    first_seed, second_seed = np.uint64(seed_a), np.uint64(seed_b)
    sum_a, sum_b = np.uint64(get(sums, 0)), np.uint64(get(sums, 1))
    for i in range(count):
        if valid and not u8(valid + i):
            continue
        key, size = keys + get(key_offsets, i), get(key_offsets, i + 1) - get(key_offsets, i)
        value, length = values + get(value_offsets, i), get(value_offsets, i + 1) - get(value_offsets, i)
        sum_a += _xxh64(value, length, _xxh64(key, size, first_seed))
        sum_b += _xxh64(value, length, _xxh64(key, size, second_seed))
    put(sums, 0, np.int64(sum_a))
    put(sums, 1, np.int64(sum_b))
    return 0


@njit(error_model="numpy")
def _avalanche(number):
    number = (number ^ (number >> np.uint64(37))) * _P3
    return number ^ (number >> np.uint64(32))


@njit(error_model="numpy")
def _mix(address, secret):
    return fold(word(address) ^ word(secret), word(address + 8) ^ word(secret + 8))


@njit(error_model="numpy")
def _hash_medium(address, length, secret):
    """17 to 240 bytes."""
    total = np.uint64(length) * _P1
    last = address + length - 16
    if length <= 128:
        for pair in range((length - 1) >> 5, -1, -1):
            total += _mix(address + 16 * pair, secret + 32 * pair)
            total += _mix(last - 16 * pair, secret + 32 * pair + 16)
        return _avalanche(total)
    for i in range(8):
        total += _mix(address + 16 * i, secret + 16 * i)
    total = _avalanche(total)
    for i in range(8, length >> 4):
        total += _mix(address + 16 * i, secret + 16 * (i - 8) + 3)
    return _avalanche(total + _mix(last, secret + 119))


@njit(error_model="numpy")
def _key_hash(address, length, secret):
    size = np.uint64(length)
    if length > 16:
        return _hash_medium(address, length, secret)
    if length > 8:
        low, high = word(address) ^ _SECRET_0, word(address + length - 8) ^ _SECRET_8
        return _avalanche(size + low + high + fold(low, high))
    if length >= 4:
        keyed = np.uint64(le32(address)) | np.uint64(le32(address + length - 4)) << np.uint64(32)
        keyed ^= _SECRET_0
        mixed = size + (keyed ^ (keyed >> np.uint64(51))) * _P32
        return _avalanche((mixed ^ (mixed >> np.uint64(47))) * _P2)
    if length > 0:
        combined = u8(address) | u8(address + (length >> 1)) << 8 | u8(address + length - 1) << 16 | length << 24
        return _avalanche((np.uint64(combined) ^ (_SECRET_0 & _LOW)) * _P1)
    return fold(_SECRET_0, _P2)


def key_hash(address, length, secret):
    """The hash that RocksDB's bloom filter takes of a key."""
    return np.int64(_key_hash(address, length, secret))


@njit(error_model="numpy")
def _put_varint(at, number):
    """Write a varint; up to seven bytes after it are overwritten. Returns the address behind it."""
    while number >= 128:
        put_word(at, np.uint64(number & 127 | 128))
        number >>= 7
        at += 1
    put_word(at, np.uint64(number))
    return at + 1


@njit(error_model="numpy")
def _end_block(start, at, restarts, count):
    """Write restarts, their number, compression type and checksum. Returns the address behind the block's contents."""
    copy(at, restarts, 4 * count)
    at += 4 * count
    put_word(at, np.uint64(count))  # with the compression type behind it (0: none)
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
    out,
    index,
    index_starts,
    restarts,
    hashes,
    secret,
    written,
):
    """Write rows as whole data blocks, an index entry for each block, and the keys' hashes.

    ``written`` is a ``Written`` that receives what there is now.
    """
    at, start, index_at = out, out, index
    blocks, restart_count, in_block = 0, 0, 0
    previous, previous_size = keys, 0
    for i in range(count):
        key, size = keys + get(key_offsets, i), get(key_offsets, i + 1) - get(key_offsets, i)
        value, length = values + get(value_offsets, i), get(value_offsets, i + 1) - get(value_offsets, i)
        if in_block and at - start + 4 * restart_count + size + length + 20 > block_bytes:
            end = _end_block(start, at, restarts, restart_count)
            put32(index_starts, blocks, index_at - index)
            index_at = _put_index(index_at, previous, previous_size, file_offset + start - out, end - start)
            blocks += 1
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
    put32(index_starts, blocks, index_at - index)
    index_at = _put_index(index_at, previous, previous_size, file_offset + start - out, end - start)
    put(written, WRITTEN.bytes, end + _TRAILER - out)
    put(written, WRITTEN.blocks, blocks + 1)
    put(written, WRITTEN.index_bytes, index_at - index)
    return 0


@njit(error_model="numpy")
def _put_index(at, key, size, offset, length):
    """Write the index entry of a block. Returns the address behind it."""
    put_word(at, _0)
    at = _put_varint(at + 1, size)
    copy(at, key, size)
    return _put_varint(_put_varint(at + size, offset), length)


def fill_filter(hashes, count, bits, lines, probes):
    """Set the bits of each key: a 64-byte line by the hash's low half, bits in it by its high half."""
    for i in range(count):
        hashed = np.uint64(get(hashes, i))
        line = bits + np.int64((hashed & _LOW) * np.uint64(lines) >> np.uint64(32)) * 64
        high = hashed >> np.uint64(32)
        for _ in range(probes):
            bit = np.int64(high >> np.uint64(23))
            or8(line, bit >> 3, 1 << (bit & 7))
            high = (high * _GOLDEN) & _LOW
    return 0
