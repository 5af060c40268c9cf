"""The digest of a store in plain Python, row by row: slow, the reference for the kernels."""

from __future__ import annotations

from collections.abc import Iterable

from statecore.images.digest import SEEDS

_MASK = (1 << 64) - 1
_P1, _P2, _P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_P4, _P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5


def digest_of(rows: Iterable[tuple[bytes, bytes]]) -> str:
    """The digest of rows."""
    sums = [0, 0]
    for key, value in rows:
        for i, seed in enumerate(SEEDS):
            sums[i] = (sums[i] + xxh64(value, xxh64(key, seed))) & _MASK
    return f"{sums[0]:016x}{sums[1]:016x}"


def xxh64(data: bytes, seed: int = 0) -> int:
    """XXH64 in plain Python."""
    at = 0
    if len(data) >= 32:
        lanes = [(seed + _P1 + _P2) & _MASK, (seed + _P2) & _MASK, seed, (seed - _P1) & _MASK]
        while at + 32 <= len(data):
            for i in range(4):
                lanes[i] = _round(lanes[i], int.from_bytes(data[at : at + 8], "little"))
                at += 8
        result = sum(_rotate(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True)) & _MASK
        for lane in lanes:
            result = ((result ^ _round(0, lane)) * _P1 + _P4) & _MASK
    else:
        result = (seed + _P5) & _MASK
    result = (result + len(data)) & _MASK
    while at + 8 <= len(data):
        word = int.from_bytes(data[at : at + 8], "little")
        result = (_rotate(result ^ _round(0, word), 27) * _P1 + _P4) & _MASK
        at += 8
    if at + 4 <= len(data):
        word = int.from_bytes(data[at : at + 4], "little")
        result = (_rotate(result ^ (word * _P1 & _MASK), 23) * _P2 + _P3) & _MASK
        at += 4
    for byte in data[at:]:
        result = _rotate(result ^ (byte * _P5 & _MASK), 11) * _P1 & _MASK
    result = (result ^ (result >> 33)) * _P2 & _MASK
    result = (result ^ (result >> 29)) * _P3 & _MASK
    return result ^ (result >> 32)


def _rotate(word: int, bits: int) -> int:
    return ((word << bits) | (word >> (64 - bits))) & _MASK


def _round(accumulator: int, word: int) -> int:
    return _rotate((accumulator + word * _P2) & _MASK, 31) * _P1 & _MASK
