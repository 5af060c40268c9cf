"""Numba intrinsics for memory at integer addresses: load, store, copy, compare and prefetch.

Without Numba's arrays a kernel refers to nothing in Numba's runtime, so its machine code can be loaded without Numba
(:mod:`statecore.kernels.native`). Like its callers this module is imported only to compile. Bounds are not checked
here.

Names tell the byte order: ``i32`` and similar read big-endian numbers, as written by Kafka and Java; ``le32`` and
similar little-endian ones, as by RocksDB and this machine; ``get`` and ``put`` access array elements in native order.
"""

# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, disable-error-code="no-untyped-def"
# ruff: noqa: ARG001  (the signatures are Numba's)

from __future__ import annotations

import statecore.extras.pipeline

from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic


def _load(bits: int, kind: Any) -> Any:
    """An intrinsic that reads a big-endian number of `bits` at an address."""

    @intrinsic
    def load(typingctx, address):
        def emit(context, builder, signature, args):
            word = ir.IntType(bits)
            value = builder.load(builder.inttoptr(args[0], word.as_pointer()), align=1)
            if bits > 8:
                value = builder.bswap(value)
            if bits == 64:
                return value
            widen = builder.sext if kind.signed else builder.zext
            return widen(value, ir.IntType(64))

        return types.int64(types.int64), emit

    return load


u8 = _load(8, types.uint8)
i16 = _load(16, types.int16)
i32 = _load(32, types.int32)
u32 = _load(32, types.uint32)
i64 = _load(64, types.int64)


def _copier(raw: Any) -> Any:
    @intrinsic
    def copier(typingctx, target, source, length):
        def emit(context, builder, signature, args):
            to = builder.inttoptr(args[0], cgutils.voidptr_t)
            at = builder.inttoptr(args[1], cgutils.voidptr_t)
            raw(builder, to, at, args[2], 1)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64, types.int64), emit

    return copier


copy = _copier(cgutils.raw_memcpy)
move = _copier(cgutils.raw_memmove)  # they may overlap


def _store(bits: int, what: str) -> Any:
    """An intrinsic that writes a native number of `bits` at ``base + index * bits / 8``."""

    @intrinsic
    def store(typingctx, base, index, value):
        def emit(context, builder, signature, args):
            word = ir.IntType(bits)
            place = builder.gep(builder.inttoptr(args[0], word.as_pointer()), [args[1]])
            value = args[2] if bits == 64 else builder.trunc(args[2], word)
            if what == "or":
                value = builder.or_(builder.load(place), value)
            builder.store(value, place)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64, types.int64), emit

    return store


put = _store(64, "set")
put32 = _store(32, "set")
or8 = _store(8, "or")


@intrinsic
def get(typingctx, base, index):
    """The `index`-th native ``int64`` of an array at `base`."""

    def emit(context, builder, signature, args):
        return builder.load(builder.gep(builder.inttoptr(args[0], ir.IntType(64).as_pointer()), [args[1]]))

    return types.int64(types.int64, types.int64), emit


def _little(bits: int, result: Any) -> Any:
    """An intrinsic that reads a little-endian number of `bits` at an address."""

    @intrinsic
    def load(typingctx, address):
        def emit(context, builder, signature, args):
            kind = ir.IntType(bits)
            value = builder.load(builder.inttoptr(args[0], kind.as_pointer()), align=1)
            return value if bits == 64 else builder.zext(value, ir.IntType(64))

        return result(types.int64), emit

    return load


le32 = _little(32, types.int64)
le64 = _little(64, types.int64)
word = _little(64, types.uint64)


@intrinsic
def put_word(typingctx, address, value):
    """Write eight bytes at any address, little-endian."""

    def emit(context, builder, signature, args):
        builder.store(args[1], builder.inttoptr(args[0], ir.IntType(64).as_pointer()), align=1)
        return context.get_dummy_value()

    return types.void(types.int64, types.uint64), emit


@intrinsic
def put8(typingctx, address, value):
    """Write one byte."""

    def emit(context, builder, signature, args):
        byte = ir.IntType(8)
        builder.store(builder.trunc(args[1], byte), builder.inttoptr(args[0], byte.as_pointer()))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), emit


@intrinsic
def swap(typingctx, value):
    """The eight bytes of a word in reverse order."""

    def emit(context, builder, signature, args):
        return builder.bswap(args[0])

    return types.uint64(types.uint64), emit


@intrinsic
def fold(typingctx, left, right):
    """The 128-bit product of two words, its halves combined by exclusive or."""

    def emit(context, builder, signature, args):
        wide, half = ir.IntType(128), ir.IntType(64)
        product = builder.mul(builder.zext(args[0], wide), builder.zext(args[1], wide))
        high = builder.trunc(builder.lshr(product, wide(64)), half)
        return builder.xor(builder.trunc(product, half), high)

    return types.uint64(types.uint64, types.uint64), emit


@intrinsic
def prefetch(typingctx, address):
    """Prefetch the cache line of an address; any address is allowed."""

    def emit(context, builder, signature, args):
        byte, number = ir.IntType(8), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte.as_pointer(), number, number, number])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        builder.call(function, [builder.inttoptr(args[0], byte.as_pointer()), number(0), number(3), number(1)])
        return context.get_dummy_value()

    return types.void(types.int64), emit


@njit(error_model="numpy")
def short_word(address, count):
    """Up to eight bytes at an address, little-endian, zero-padded; reads nothing outside them."""
    if count >= 8:
        return word(address)
    if count >= 4:
        return np.uint64(le32(address)) | np.uint64(le32(address + count - 4)) << np.uint64(8 * (count - 4))
    if count > 0:
        middle, last = count >> 1, count - 1
        return np.uint64(u8(address) | u8(address + middle) << (8 * middle) | u8(address + last) << (8 * last))
    return np.uint64(0)


@njit(error_model="numpy")
def compare(left, left_length, right, right_length):
    """Bytewise order of two ranges, as RocksDB's comparator: negative, zero or positive."""
    common = min(left_length, right_length)
    at = 0
    while at < common:
        a, b = short_word(left + at, common - at), short_word(right + at, common - at)
        if a != b:
            return -1 if swap(a) < swap(b) else 1
        at += 8
    return left_length - right_length


@njit(error_model="numpy")
def shared(left, right, limit):
    """Length of the common prefix of two ranges, at most `limit`."""
    at = 0
    while at + 8 <= limit and word(left + at) == word(right + at):
        at += 8
    while at < limit and u8(left + at) == u8(right + at):
        at += 1
    return at


@njit(error_model="numpy")
def offset_at(offsets, width, index):
    """Element `index` of Arrow offsets that are `width` (4 or 8) bytes wide."""
    if width == 4:
        return le32(offsets + index * 4)
    return le64(offsets + index * 8)
