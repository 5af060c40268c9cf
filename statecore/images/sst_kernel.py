"""Numba kernels that lay out the blocks of an SST file; :mod:`statecore.images.sst` draws the format.

Also the hash of RocksDB's bloom filters: XXPH3, a preview release of XXH3 that RocksDB kept (``util/xxph3.h``). Only
keys of up to ``LONGEST_HASHED`` bytes are hashed here; files with longer keys are written through rocksdict.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from statecore.formats.memory import copy, fold_multiply, load8, load32, load64, store64
from statecore.images.hashing import xxh64

LONGEST_HASHED = 240
"""Longest key that :func:`key_hash` can hash."""

ROOM_PER_ROW = 40
"""Bytes to allow for each row beyond its key and value: 8 of type, 15 of lengths, a restart, a share of the trailer."""

_OPTIONS: dict[str, Any] = {"nogil": True, "cache": True}
_SECRET = np.frombuffer(
    bytes.fromhex(
        "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221"
        "b8084674f743248ee03590e6813a264c3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
        "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364eac5ac8334d3ebc3c581a0fffa1363eb"
        "170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
    ),
    np.uint8,
).copy()
"""XXH3's default secret."""

_S0, _S8 = np.uint64(0xBE4BA423396CFEB8), np.uint64(0x1CAD21F72C81017C)
_P1, _P2, _P3 = np.uint64(0x9E3779B185EBCA87), np.uint64(0xC2B2AE3D27D4EB4F), np.uint64(0x165667B19E3779F9)
_P32 = np.uint64(0x9E3779B1)
_0, _1, _3, _4, _7, _8, _16 = (np.uint64(number) for number in (0, 1, 3, 4, 7, 8, 16))
_LOW = np.uint64(0xFFFFFFFF)
_RESTART_INTERVAL = 16


@njit("uint64(uint64)", inline="always", **_OPTIONS)
def _avalanche(word: Any) -> Any:
    word = (word ^ (word >> np.uint64(37))) * _P3
    return word ^ (word >> np.uint64(32))


@njit("uint64(uint64, uint64)", inline="always", **_OPTIONS)
def _mix16(address: Any, secret: Any) -> Any:
    return fold_multiply(load64(address) ^ load64(secret), load64(address + _8) ^ load64(secret + _8))


@njit("uint64(uint64, uint64, uint64)", **_OPTIONS)
def _hash_medium(address: Any, length: Any, secret: Any) -> Any:
    """17 to 240 bytes."""
    total = length * _P1
    last = address + length - _16
    if length <= np.uint64(128):
        pairs = np.int64((length - _1) >> np.uint64(5))
        for pair in range(pairs, -1, -1):
            at = np.uint64(16 * pair)
            total += _mix16(address + at, secret + np.uint64(32 * pair))
            total += _mix16(last - at, secret + np.uint64(32 * pair + 16))
        return _avalanche(total)
    for i in range(8):
        total += _mix16(address + np.uint64(16 * i), secret + np.uint64(16 * i))
    total = _avalanche(total)
    for i in range(8, np.int64(length >> _4)):
        total += _mix16(address + np.uint64(16 * i), secret + np.uint64(16 * (i - 8) + 3))
    total += _mix16(last, secret + np.uint64(119))
    return _avalanche(total)


@njit("uint64(uint64, uint64, uint64)", **_OPTIONS)
def key_hash(address: Any, length: Any, secret: Any) -> Any:
    """The hash that RocksDB's bloom filter takes of a key of at most ``LONGEST_HASHED`` bytes."""
    if length > _16:
        return _hash_medium(address, length, secret)
    if length > _8:
        low, high = load64(address) ^ _S0, load64(address + length - _8) ^ _S8
        return _avalanche(length + low + high + fold_multiply(low, high))
    if length >= _4:
        keyed = (load32(address) | load32(address + length - _4) << np.uint64(32)) ^ _S0
        mixed = length + (keyed ^ (keyed >> np.uint64(51))) * _P32
        return _avalanche((mixed ^ (mixed >> np.uint64(47))) * _P2)
    if length > _0:
        combined = load8(address) | load8(address + (length >> _1)) << _8
        combined |= load8(address + length - _1) << _16 | length << np.uint64(24)
        return _avalanche((combined ^ (_S0 & _LOW)) * _P1)
    return fold_multiply(_S0, _P2)


@njit("uint64(uint64, uint64)", inline="always", **_OPTIONS)
def _put_varint(at: Any, number: Any) -> Any:
    """Write a varint; up to nine bytes after it are overwritten. Returns the address behind it."""
    while number >= np.uint64(128):
        store64(at, (number & np.uint64(127)) | np.uint64(128))
        number >>= _7
        at += _1
    store64(at, number)
    return at + _1


@njit("uint64(uint64, uint64, uint32[::1], int64)", **_OPTIONS)
def _end_block(start: Any, at: Any, restarts: Any, count: Any) -> Any:
    """Write restarts, their number, compression type and checksum. Returns the address behind the block's contents."""
    for i in range(count):
        store64(at, np.uint64(restarts[i]))
        at += _4
    store64(at, np.uint64(count))  # the bytes after it are the compression type (0: none)
    at += _4
    store64(at + _1, xxh64(start, at + _1 - start, _0) & _LOW)
    return at


@njit("uint64(uint64, uint64, uint64)", inline="always", **_OPTIONS)
def _shared(left: Any, right: Any, limit: Any) -> Any:
    """How many bytes two keys have in common at their beginning."""
    at = _0
    while at + _8 <= limit and load64(left + at) == load64(right + at):
        at += _8
    while at < limit and load8(left + at) == load8(right + at):
        at += _1
    return at


@njit(
    "void(int64[::1], uint64, int64[::1], uint64, uint8[::1], uint64, int64, uint64, uint32[::1], uint64, uint64,"
    " uint64[::1], int64[::1])",
    **_OPTIONS,
)
def data_blocks(
    key_offsets: Any,
    keys: Any,
    value_offsets: Any,
    values: Any,
    valid: Any,
    file_offset: Any,
    block_bytes: int,
    index: Any,
    index_starts: Any,
    secret: Any,
    out: Any,
    hashes: Any,
    found: Any,
) -> None:
    """Write rows as whole data blocks to ``out``, an index entry for each block to ``index``, and the keys' hashes.

    ``found`` receives the bytes of blocks, the number of blocks, and the bytes of index entries.
    """
    count = len(key_offsets) - 1
    restarts = np.empty(count + 1, np.uint32)
    at, start, index_at = out, out, index
    blocks, restart_count, in_block = 0, 0, 0
    previous, previous_length = _0, _0
    for i in range(count + 1):
        last = i == count
        if not last:
            key = keys + np.uint64(key_offsets[i])
            length = np.uint64(key_offsets[i + 1] - key_offsets[i])
            value = values + np.uint64(value_offsets[i])
            value_length = np.uint64(value_offsets[i + 1] - value_offsets[i])
            size = np.int64(at - start) + 4 * restart_count + np.int64(length + value_length) + 20
        if in_block and (last or size > block_bytes):
            end = _end_block(start, at, restarts, restart_count)
            index_starts[blocks] = np.uint32(index_at - index)
            store64(index_at, _0)
            index_at = _put_varint(index_at + _1, previous_length)
            copy(index_at, previous, previous_length)
            index_at = _put_varint(index_at + previous_length, file_offset + (start - out))
            index_at = _put_varint(index_at, end - start)
            blocks += 1
            at = start = end + np.uint64(5)
            restart_count = in_block = 0
        if last:
            break
        shared = _0
        if in_block % _RESTART_INTERVAL == 0:
            restarts[restart_count] = np.uint32(at - start)
            restart_count += 1
        else:
            shared = _shared(previous, key, min(previous_length, length))
        present = not len(valid) or valid[i] != 0
        at = _put_varint(at, shared)
        at = _put_varint(at, length - shared + _8)
        at = _put_varint(at, value_length)
        copy(at, key + shared, length - shared)
        at += length - shared
        store64(at, _1 if present else _0)  # sequence number 0; type 1 a value, 0 a delete
        at += _8
        copy(at, value, value_length)
        at += value_length
        hashes[i] = key_hash(key, length, secret)
        previous, previous_length = key, length
        in_block += 1
    found[0], found[1], found[2] = np.int64(at - out), blocks, np.int64(index_at - index)


@njit("void(uint64[::1], uint8[::1], int64, int64)", **_OPTIONS)
def fill_filter(hashes: Any, bits: Any, lines: int, probes: int) -> None:
    """Set the bits of each key: a 64-byte line by the hash's low half, bits in it by its high half."""
    for hashed in hashes:
        line = (((hashed & _LOW) * np.uint64(lines)) >> np.uint64(32)) << np.uint64(6)
        high = hashed >> np.uint64(32)
        for _ in range(probes):
            bit = high >> np.uint64(23)
            bits[line + (bit >> _3)] |= np.uint8(_1 << (bit & _7))
            high = (high * np.uint64(0x9E3779B9)) & _LOW


def secret_address() -> int:
    """Where the secret lies, for the kernels."""
    return int(_SECRET.ctypes.data)
