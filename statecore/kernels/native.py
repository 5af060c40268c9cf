"""Machine code of Numba kernels, cached on disk and loaded without Numba.

Importing Numba and loading one function from its own cache costs more CPU than reading a million records, in every
worker process of a job. So Numba compiles a library of kernels once (:mod:`statecore.kernels.compiler`), its machine
code is cached in a file (:mod:`statecore.kernels.cache`), and later processes load that file with ``llvmlite.binding``
alone: under 0.1 s against 0.7-1.5 s.

The file name is a hash of everything the code depends on: the sources, Numba, llvmlite, Python, the CPU and its
features. Kernels are called through ctypes, which releases the GIL. :mod:`statecore.kernels.library` has their calling
convention.
"""

from __future__ import annotations

import statecore.extras.pipeline

import ctypes
import hashlib
import platform
import re
import struct
import sys
import threading
from collections.abc import Callable
from importlib import metadata, util
from pathlib import Path
from typing import Any, NamedTuple

from statecore.errors import Invalid
from statecore.kernels.cache import Cache, Table

NEVER_FROZEN = ("statecore.errors", "statecore.extras", "statecore.kernels.library")
"""Modules that source modules and their callers import, and that never affect the machine code."""

_IMPORT = re.compile(
    r"^[ \t]*(?:from[ \t]+([\w.]+)[ \t]+import[ \t]+(\([^)]*\)|[^\n]*)|import[ \t]+([\w.]+))", re.MULTILINE
)
_NAME = re.compile(r"(\w+)(?:\s+as\s+\w+)?\s*(?:,|\)|$|#[^\n]*)", re.MULTILINE)
_COMPILER = "statecore.kernels.compiler"
_engines: list[object] = []  # machine code lives as long as its engine
_lock = threading.Lock()

uncached_libraries: set[str] = set()
"""Libraries that this process compiled for itself alone, because no directory could cache them."""


class Kernel(NamedTuple):
    """A loaded kernel.

    Attributes:
        call: takes the address of the block of arguments, returns the result. Runs without the GIL.
    """

    parameters: tuple[str, ...]
    call: Callable[[int], int]


class _Machine(NamedTuple):
    llvm: Any
    cpu: str
    features: str


def load(module: str) -> dict[str, Kernel]:
    """Load the kernels of a source module, compiling and caching them first if necessary.

    The source module is imported only to compile.
    """
    with _lock:
        machine = _this_machine()
        cache = Cache(source_file(module), f"{module.rpartition('.')[2]}-{_fingerprint(module, machine)}.kernel")
        cached = cache.find()
        if cached is None:
            with cache.alone():
                cached = cache.find()  # another process may have compiled it meanwhile
                if cached is None:
                    cached = _compile(module, machine)
                    if cache.keep(*cached) is None:
                        uncached_libraries.add(module)
        return _link(*cached, machine.llvm)


def _this_machine() -> _Machine:
    if sys.byteorder != "little" or struct.calcsize("P") != 8:
        raise _no_kernels("they need a 64-bit little-endian machine")
    try:
        import llvmlite.binding as llvm  # type: ignore[import-untyped]
    except (ImportError, OSError) as error:
        raise _unusable("llvmlite", error) from error
    try:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        llvm.Target.from_default_triple()
        return _Machine(llvm, llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten())
    except RuntimeError as error:
        raise _no_kernels(f"LLVM does not know it: {error}") from error


def _no_kernels(why: str) -> Invalid:
    return Invalid(
        f"There are no kernels for this machine's CPU ({platform.machine()}), because {why}.",
        code="cpu-unsupported",
        action="Run this on x86-64 or arm64.",
        machine=platform.machine(),
    )


def _unusable(package: str, error: Exception) -> Invalid:
    return Invalid(
        f"The kernels cannot be loaded, because {package} cannot be imported "
        f"({type(error).__name__}: {' '.join(str(error).split())}).",
        code="numba-unusable",
        action="Install compatible versions of NumPy, llvmlite and Numba into this environment: "
        f"in a checkout of statecore, pip install --force-reinstall '.[pipeline]' (Python: {sys.executable}).",
        package=package,
    )


def _fingerprint(module: str, machine: _Machine) -> str:
    sources = dependencies(module) | dependencies(_COMPILER)
    about = [
        *(f"{name}\n{path.read_text()}" for name, path in sources.items()),
        metadata.version("numba"),
        metadata.version("llvmlite"),
        platform.python_version(),
        platform.machine(),
        machine.cpu,
        machine.features,
    ]
    return hashlib.sha256("\0".join(about).encode()).hexdigest()[:24]


def source_file(module: str) -> Path:
    """The file of a module, without importing it."""
    spec = util.find_spec(module)
    if spec is None or spec.origin is None:
        raise ImportError(f"kernel module {module} has no source file")
    return Path(spec.origin)


def dependencies(module: str) -> dict[str, Path]:
    """A module and every module of its package that it imports, directly or indirectly, by name.

    Imports are found in the text, without importing anything. Text that only looks like an import (a line of a
    docstring) merely adds a dependency.
    """
    parts = module.split(".")
    top = source_file(module).parents[len(parts) - 1]
    found: dict[str, Path] = {}
    waiting = [module]
    while waiting:
        name = waiting.pop()
        path = top.joinpath(*name.split(".")).with_suffix(".py")
        if name in found or name.startswith(NEVER_FROZEN) or not path.is_file():
            continue
        found[name] = path
        waiting += [one for one in _imported(path.read_text()) if one.startswith(f"{parts[0]}.")]
    return dict(sorted(found.items()))


def _imported(text: str) -> list[str]:
    """Names that a source text may import: modules, and names in modules, which may be modules themselves."""
    found = []
    for origin, names, plain in _IMPORT.findall(text):
        found += [plain] if plain else [origin, *(f"{origin}.{name}" for name in _NAME.findall(names))]
    return found


def _compile(module: str, machine: _Machine) -> tuple[Table, bytes]:
    try:
        from statecore.kernels.compiler import compile_kernels
    except ImportError as error:
        raise _unusable("Numba", error) from error
    target = machine.llvm.Target.from_default_triple().create_target_machine(
        cpu=machine.cpu, features=machine.features, opt=3, reloc="pic", codemodel="jitdefault", jit=True
    )
    return compile_kernels(module, target)


def _link(table: Table, code: bytes, llvm: Any) -> dict[str, Kernel]:
    machine = llvm.Target.from_default_triple().create_target_machine(jit=True)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    _engines.append(engine)
    # The argument is an address; ctypes drops the GIL for the call.
    prototype = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)
    return {
        name: Kernel(parameters, prototype(engine.get_function_address(symbol)))
        for name, (symbol, parameters) in table.items()
    }
