"""Kernels of the hashes XXH64 and XXPH3, and of RocksDB's Bloom filter. Imported only to compile.

Tests compare both with the originals: XXH64, after its specification, for digests and block checksums; and XXPH3, a
preview of XXH3 that RocksDB keeps for its Bloom filters (``util/xxph3.h``).

XXPH3 of more than 240 bytes adds them up in eight accumulators, a word of each 64-byte stripe in each, and scrambles
them after every 16 stripes. No accumulator depends on another before the end, so they are computed two at a time.
"""

# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, disable-error-code="no-untyped-def"

from __future__ import annotations

import statecore.extras.pipeline

import numpy as np
from numba import njit

from statecore.kernels.memory import fold, get, le32, or8, put, u8, word

_P1, _P2, _P3 = np.uint64(0x9E3779B185EBCA87), np.uint64(0xC2B2AE3D27D4EB4F), np.uint64(0x165667B19E3779F9)
_P4, _P5 = np.uint64(0x85EBCA77C2B2AE63), np.uint64(0x27D4EB2F165667C5)
_P32_1, _P32_2, _P32_3 = np.uint64(0x9E3779B1), np.uint64(0x85EBCA77), np.uint64(0xC2B2AE3D)
_SECRET_0, _SECRET_8 = np.uint64(0xBE4BA423396CFEB8), np.uint64(0x1CAD21F72C81017C)
_0, _LOW = np.uint64(0), np.uint64(0xFFFFFFFF)
_64, _GOLDEN = np.uint64(64), np.uint64(0x9E3779B9)
_32, _47 = np.uint64(32), np.uint64(47)
_STRIPE, _STRIPES_IN_BLOCK, _SECRET_BYTES = 64, 16, 192


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
    """Add the hashes of rows to two sums; a zero in ``valid`` marks a delete, which is skipped."""
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
def _stripe(total, data, keyed):
    return total + data + (keyed & _LOW) * (keyed >> _32)


@njit(error_model="numpy")
def _lanes(address, length, secret, lane, left, right):
    """Compute two neighbouring accumulators of the eight over all stripes, from their initial values; combine them."""
    at, key, scramble = address + 8 * lane, secret + 8 * lane, secret + _SECRET_BYTES - _STRIPE + 8 * lane
    stripe = 0
    for _ in range(length // _STRIPE):
        left = _stripe(left, word(at), word(at) ^ word(key + 8 * stripe))
        right = _stripe(right, word(at + 8), word(at + 8) ^ word(key + 8 * stripe + 8))
        at += _STRIPE
        stripe += 1
        if stripe == _STRIPES_IN_BLOCK:
            left = (left ^ (left >> _47) ^ word(scramble)) * _P32_1
            right = (right ^ (right >> _47) ^ word(scramble + 8)) * _P32_1
            stripe = 0
    if length % _STRIPE:
        at, key = address + length - _STRIPE + 8 * lane, scramble - 7
        left = _stripe(left, word(at), word(at) ^ word(key))
        right = _stripe(right, word(at + 8), word(at + 8) ^ word(key + 8))
    return fold(left ^ word(secret + 11 + 8 * lane), right ^ word(secret + 19 + 8 * lane))


@njit(error_model="numpy")
def _hash_long(address, length, secret):
    """More than 240 bytes."""
    total = np.uint64(length) * _P1
    total += _lanes(address, length, secret, 0, _P32_3, _P1)
    total += _lanes(address, length, secret, 2, _P2, _P3)
    total += _lanes(address, length, secret, 4, _P4, _P32_2)
    total += _lanes(address, length, secret, 6, _P5, _P32_1)
    return _avalanche(total)


@njit(error_model="numpy")
def _key_hash(address, length, secret):
    size = np.uint64(length)
    if length > 240:
        return _hash_long(address, length, secret)
    if length > 16:
        return _hash_medium(address, length, secret)
    if length > 8:
        low, high = word(address) ^ _SECRET_0, word(address + length - 8) ^ _SECRET_8
        return _avalanche(size + low + high + fold(low, high))
    if length >= 4:
        keyed = np.uint64(le32(address)) | np.uint64(le32(address + length - 4)) << np.uint64(32)
        keyed ^= _SECRET_0
        mixed = size + (keyed ^ (keyed >> np.uint64(51))) * _P32_1
        return _avalanche((mixed ^ (mixed >> np.uint64(47))) * _P2)
    if length > 0:
        combined = u8(address) | u8(address + (length >> 1)) << 8 | u8(address + length - 1) << 16 | length << 24
        return _avalanche((np.uint64(combined) ^ (_SECRET_0 & _LOW)) * _P1)
    return fold(_SECRET_0, _P2)


def key_hash(address, length, secret):
    """Hash of a key for RocksDB's Bloom filter; ``secret`` is ``SECRET``."""
    return np.int64(_key_hash(address, length, secret))


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
