"""Memory for Numba kernels, addressed by plain integers: intrinsics that load, store and copy.

Without Numba's arrays a kernel refers to nothing of Numba's runtime, so that its machine code can be loaded without
Numba. Like its caller this module is imported only to compile.
"""

# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, disable-error-code="no-untyped-def"
# ruff: noqa: ARG001  (the signatures are Numba's)

from __future__ import annotations

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
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


@intrinsic
def copy(typingctx, target, source, length):
    """``memcpy`` between two addresses."""

    def emit(context, builder, signature, args):
        to = builder.inttoptr(args[0], cgutils.voidptr_t)
        at = builder.inttoptr(args[1], cgutils.voidptr_t)
        cgutils.raw_memcpy(builder, to, at, args[2], 1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), emit


def _store(bits: int, what: str) -> Any:
    """An intrinsic that writes a number of `bits`, in this machine's byte order, at ``base + index * bits / 8``."""

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
    """The ``int64`` number `index` of an array at `base`, in this machine's byte order."""

    def emit(context, builder, signature, args):
        return builder.load(builder.gep(builder.inttoptr(args[0], ir.IntType(64).as_pointer()), [args[1]]))

    return types.int64(types.int64, types.int64), emit
