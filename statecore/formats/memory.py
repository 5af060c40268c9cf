"""Words and ranges of raw memory for Numba kernels: unaligned loads, copies, comparisons, prefetches.

Kernels over Arrow buffers work on addresses: a table of buffers is then a plain array of integers, and a load of eight
bytes at any alignment is one instruction. Nothing here checks bounds; whoever passes an address keeps its buffer alive
and stays inside it. Imported only by kernels, which are themselves imported late, because Numba takes a second to load.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from llvmlite import ir  # type: ignore[import-untyped]
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

Addresses = npt.NDArray[np.uint64]


def address_of(array: npt.NDArray[Any]) -> int:
    """The address of an array's first byte; the caller keeps the array alive."""
    return int(array.ctypes.data)


def binary_addresses(array: pa.Array) -> tuple[int, int, int, npt.NDArray[np.uint8] | None]:
    """Where a binary or large binary array keeps its parts, for a kernel; the caller keeps the array alive.

    Returns:
        Address of the first offset (slices included), bytes per offset (4 or 8), address of the data, and one byte per
        element that is 1 where it is not null (``None`` when nothing is null).
    """
    width = 8 if pa.types.is_large_binary(array.type) else 4
    buffers = array.buffers()
    offsets = buffers[1].address + array.offset * width if len(array) else 0
    data = buffers[2].address if len(array) and buffers[2] is not None else 0
    return offsets, width, data, validity_bytes(array)


def validity_bytes(array: pa.Array) -> npt.NDArray[np.uint8] | None:
    """One byte per element, 1 where it is not null; ``None`` when nothing is null."""
    if not array.null_count:
        return None
    bits = np.frombuffer(array.buffers()[0], np.uint8)
    first = array.offset // 8
    bits = bits[first : (array.offset + len(array) + 7) // 8]
    skip = array.offset - first * 8
    return np.unpackbits(bits, bitorder="little")[skip : skip + len(array)]


def value_bytes(array: pa.Array) -> int:
    """Bytes of data that a binary array spans (what lies under a null included)."""
    if not len(array):
        return 0
    width = np.int64 if pa.types.is_large_binary(array.type) else np.int32
    offsets = np.frombuffer(array.buffers()[1], width)
    return int(offsets[array.offset + len(array)]) - int(offsets[array.offset])


def _pointer(builder: Any, address: Any, width: int) -> Any:
    return builder.inttoptr(address, ir.IntType(width).as_pointer())


@intrinsic
def load8(_context: Any, address: Any) -> Any:
    """The byte at an address, as an unsigned 64-bit integer."""

    def generate(_ctx: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.zext(builder.load(_pointer(builder, args[0], 8)), ir.IntType(64))

    return types.uint64(address), generate


@intrinsic
def load32(_context: Any, address: Any) -> Any:
    """Four bytes at an address, little-endian, as an unsigned 64-bit integer."""

    def generate(_ctx: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.zext(builder.load(_pointer(builder, args[0], 32), align=1), ir.IntType(64))

    return types.uint64(address), generate


@intrinsic
def load64(_context: Any, address: Any) -> Any:
    """Eight bytes at an address, little-endian."""

    def generate(_ctx: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.load(_pointer(builder, args[0], 64), align=1)

    return types.uint64(address), generate


@intrinsic
def store64(_context: Any, address: Any, value: Any) -> Any:
    """Write eight bytes to an address, little-endian."""

    def generate(_ctx: Any, builder: Any, _signature: Any, args: Any) -> Any:
        builder.store(args[1], _pointer(builder, args[0], 64), align=1)
        return _ctx.get_dummy_value()

    return types.void(address, value), generate


@intrinsic
def swap64(_context: Any, value: Any) -> Any:
    """The eight bytes of a word in reverse order."""

    def generate(_ctx: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.bswap(args[0])

    return types.uint64(value), generate


@intrinsic
def fold_multiply(_context: Any, left: Any, right: Any) -> Any:
    """The 128-bit product of two words, its halves combined by exclusive or."""

    def generate(_ctx: Any, builder: Any, _signature: Any, args: Any) -> Any:
        wide = ir.IntType(128)
        product = builder.mul(builder.zext(args[0], wide), builder.zext(args[1], wide))
        high = builder.trunc(builder.lshr(product, wide(64)), ir.IntType(64))
        return builder.xor(builder.trunc(product, ir.IntType(64)), high)

    return types.uint64(left, right), generate


@intrinsic
def copy(_context: Any, target: Any, source: Any, count: Any) -> Any:
    """Copy bytes between addresses that do not overlap."""

    def generate(_ctx: Any, builder: Any, _signature: Any, args: Any) -> Any:
        cgutils.raw_memcpy(builder, _pointer(builder, args[0], 8), _pointer(builder, args[1], 8), args[2], 1, align=1)
        return _ctx.get_dummy_value()

    return types.void(target, source, count), generate


@intrinsic
def prefetch(_context: Any, address: Any) -> Any:
    """Ask for the cache line of an address before it is needed; any address is allowed."""

    def generate(_ctx: Any, builder: Any, _signature: Any, args: Any) -> Any:
        byte, word = ir.IntType(8), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte.as_pointer(), word, word, word])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        builder.call(function, [_pointer(builder, args[0], 8), word(0), word(3), word(1)])
        return _ctx.get_dummy_value()

    return types.void(address), generate


@njit("uint64(uint64, uint64)", inline="always", nogil=True, cache=True)
def load_short(address: int, count: int) -> Any:
    """Up to eight bytes at an address, little-endian, the rest zero; reads nothing outside them."""
    if count >= 8:
        return load64(address)
    word = np.uint64(0)
    if count >= 4:
        low = load32(address)
        high = load32(address + count - np.uint64(4))
        return low | (high << ((count - np.uint64(4)) * np.uint64(8)))
    if count > 0:
        word = load8(address)
        word |= load8(address + (count >> np.uint64(1))) << ((count >> np.uint64(1)) * np.uint64(8))
        word |= load8(address + count - np.uint64(1)) << ((count - np.uint64(1)) * np.uint64(8))
    return word


@njit("int64(uint64, uint64, uint64, uint64)", nogil=True, cache=True)
def compare(left: int, left_length: int, right: int, right_length: int) -> int:
    """Bytewise order of two ranges as RocksDB's comparator has it: negative, zero or positive."""
    common = min(left_length, right_length)
    at = np.uint64(0)
    while at + np.uint64(8) <= common:
        a, b = load64(left + at), load64(right + at)
        if a != b:
            return -1 if swap64(a) < swap64(b) else 1
        at += np.uint64(8)
    if at < common:
        a = swap64(load_short(left + at, common - at))
        b = swap64(load_short(right + at, common - at))
        if a != b:
            return -1 if a < b else 1
    if left_length == right_length:
        return 0
    return -1 if left_length < right_length else 1


@njit("boolean(uint64, uint64, uint64)", nogil=True, cache=True)
def equal(left: int, right: int, count: int) -> bool:
    """Whether two ranges of the same length hold the same bytes."""
    at = np.uint64(0)
    while at + np.uint64(8) <= count:
        if load64(left + at) != load64(right + at):
            return False
        at += np.uint64(8)
    if at < count:
        return bool(load_short(left + at, count - at) == load_short(right + at, count - at))
    return True


@njit("uint64(uint64, uint64, uint64)", nogil=True, cache=True)
def offset_at(offsets: int, width: int, index: int) -> Any:
    """Element ``index`` of an Arrow offsets buffer whose elements are ``width`` (4 or 8) bytes wide."""
    if width == 4:
        return load32(offsets + index * np.uint64(4))
    return load64(offsets + index * np.uint64(8))
