"""Compiles the kernels of a source module to one relocatable object file; loads Numba."""

# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, disable-error-code="no-untyped-def"
# ruff: noqa: ARG001  (the signatures are Numba's)

from __future__ import annotations

import statecore.extras.pipeline

import importlib
import inspect
from typing import Any

import llvmlite.binding as llvm  # type: ignore[import-untyped]
from llvmlite import ir
from numba import cfunc, njit, types
from numba.core import cgutils
from numba.extending import intrinsic

_SYMBOLS_OF_LIBC = {"memcpy", "memset", "memmove"}


def compile_kernels(module: str, machine: Any) -> tuple[dict[str, tuple[str, tuple[str, ...]]], bytes]:
    """Compile the kernels that a module names in ``__all__``.

    Returns:
        Symbol and parameter names of each kernel, and the object file.
    """
    source = importlib.import_module(module)
    table: dict[str, tuple[str, tuple[str, ...]]] = {}
    joined: Any = None
    for name in sorted(source.__all__):
        parameters = tuple(inspect.signature(getattr(source, name)).parameters)
        compiled = cfunc(types.int64(types.int64), nopython=True, error_model="numpy", _nrt=False)(
            _entry(getattr(source, name), len(parameters))
        )
        table[name] = (compiled._wrapper_name, parameters)
        part = llvm.parse_assembly(compiled._library.get_llvm_str())
        if joined is None:
            joined = part
        else:
            joined.link_in(part)
    # Numba leaves helpers and its error reporting callable from outside. Hidden, the first are inlined and the second,
    # which no kernel reaches, disappear together with their references into Numba's runtime.
    entries = {symbol for symbol, _ in table.values()}
    for function in joined.functions:
        if not function.is_declaration and function.name not in entries:
            function.linkage = "internal"
    for variable in joined.global_variables:
        if not variable.is_declaration:
            variable.linkage = "internal"
    tuning = llvm.create_pipeline_tuning_options(speed_level=3)
    tuning.inlining_threshold = 1000
    passes = llvm.create_pass_builder(machine, tuning)
    passes.getModulePassManager().run(joined, passes)
    foreign = {function.name for function in joined.functions if function.is_declaration} - _SYMBOLS_OF_LIBC
    foreign = {name for name in foreign if not name.startswith("llvm.")}
    if foreign:
        raise ImportError(f"kernels of {module} refer to {sorted(foreign)}, which exist only where Numba is imported")
    return table, machine.emit_object(joined)


def _entry(function: Any, count: int) -> Any:
    """A function with one parameter, the address of the ``int64`` arguments, that calls a kernel."""
    kernel, arguments = njit(error_model="numpy")(function), _words(count)

    def entry(block):
        return kernel(*arguments(block))

    entry.__name__ = entry.__qualname__ = function.__name__
    return entry


def _words(count: int) -> Any:
    """An intrinsic that reads ``count`` ``int64`` at an address."""

    @intrinsic
    def words(typingctx, block):
        kind = types.UniTuple(types.int64, count)

        def emit(context, builder, signature, args):
            number = ir.IntType(64)
            base = builder.inttoptr(args[0], number.as_pointer())
            return cgutils.pack_array(
                builder, [builder.load(builder.gep(base, [ir.Constant(number, index)])) for index in range(count)]
            )

        return kind(types.int64), emit

    return words
