"""Machine code of Numba kernels, kept on disk and loaded without Numba.

Importing Numba and loading one function from its own cache costs more CPU than reading a million records, and every
worker process of a job pays it. So a kernel is compiled once by Numba, its machine code is written to a file, and later
processes load that file with ``llvmlite.binding`` alone: under 0.1 s against 0.7-1.5 s.

A kernel is a function of one pointer to ``int64`` (its argument block: addresses, lengths, results) that returns
``int64``. It touches no Python object and raises nothing, so it is called through ctypes, which releases the GIL.

The file is named after everything its bytes depend on (source, Numba, llvmlite, Python, CPU and its features)::

    8 bytes   magic "SCKERNL1"
    32 bytes  SHA-256 of what follows: a torn or damaged file is recompiled, never executed
    4 bytes   length of the table (big endian)
    table     JSON {function name: symbol name}
    rest      one relocatable object file

Places, in this order: ``NUMBA_CACHE_DIR``; ``__pycache__`` beside the source; ``XDG_CACHE_HOME/statecore`` or
``~/.cache/statecore``. A directory or file is used only if no other user can write to it: its content is executed.
Where none can be used (read-only installation without a home), the kernel is compiled in each process.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import hashlib
import json
import logging
import os
import platform
import stat
import struct
import tempfile
import threading
from collections.abc import Callable, Iterator
from importlib import metadata, util
from pathlib import Path
from typing import Any

USER_CACHE = "statecore"
"""Directory in the user's cache (``XDG_CACHE_HOME``, ``~/.cache``), with mode 0700."""

_MAGIC = b"SCKERNL1"
_SYMBOLS_OF_LIBC = {"memcpy", "memset", "memmove"}
_engines: list[object] = []  # machine code lives as long as its engine
_lock = threading.Lock()
_log = logging.getLogger(__name__)

Kernel = Callable[[int], int]
"""A loaded kernel: takes the address of its argument block, returns its result code. Runs without the GIL."""


def load(module: str, functions: tuple[str, ...], *, depends: tuple[str, ...] = ()) -> dict[str, Kernel]:
    """Load kernels from the cache, compiling and writing them first where they are not there.

    Args:
        module: the importable module that holds the kernels' Python source; it is imported only to compile.
        functions: the kernels' names in that module.
        depends: other modules whose constants are frozen into the machine code.

    Returns:
        Each kernel by its name.
    """
    import llvmlite.binding as llvm  # type: ignore[import-untyped]

    source = _source(module)
    with _lock:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        name = f"{module.rpartition('.')[2]}-{_fingerprint((module, *depends), functions, llvm)}.kernel"
        blob = _find(source, name)
        if blob is None:
            with _alone(source, name):
                blob = _find(source, name)  # another process may have compiled it meanwhile
                if blob is None:
                    blob = _compile(module, functions, llvm)
                    if not any(_write(directory / name, *blob) for directory in _directories(source)):
                        _log.warning(
                            "The machine code of %s cannot be kept, so every process compiles it anew (seconds each): "
                            "none of %s can be written by this user alone.",
                            module,
                            ", ".join(map(str, _directories(source))),
                        )
        return _link(*blob, llvm)


def _find(source: Path, name: str) -> tuple[dict[str, str], bytes] | None:
    for directory in _directories(source):
        blob = _read(directory / name)
        if blob is not None:
            return blob
    return None


@contextlib.contextmanager
def _alone(source: Path, name: str) -> Iterator[None]:
    """Let one process compile while the others wait for its file; without a writable place each compiles for itself."""
    for directory in _directories(source):
        try:
            _make_ours(directory)
            lock = (directory / f".{name}.lock").open("w")
        except OSError:
            continue
        with lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        return
    yield


def _source(module: str) -> Path:
    spec = util.find_spec(module)
    if spec is None or spec.origin is None:  # a zip import; Numba could not compile from it either
        raise ImportError(f"kernel module {module} has no source file")
    return Path(spec.origin)


def _fingerprint(modules: tuple[str, ...], functions: tuple[str, ...], llvm: Any) -> str:
    about = [
        *(_source(module).read_text() for module in modules),
        ",".join(functions),
        metadata.version("numba"),
        metadata.version("llvmlite"),
        platform.python_version(),
        platform.machine(),
        llvm.get_host_cpu_name(),
        llvm.get_host_cpu_features().flatten(),
    ]
    return hashlib.sha256("\0".join(about).encode()).hexdigest()[:24]


def _directories(source: Path) -> Iterator[Path]:
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    if chosen:
        yield Path(chosen)
    yield source.parent / "__pycache__"
    home = os.environ.get("XDG_CACHE_HOME") or (str(Path.home() / ".cache") if os.environ.get("HOME") else "")
    if home:
        yield Path(home) / USER_CACHE


def _make_ours(directory: Path) -> None:
    """Make a cache directory in which nobody else can write, whatever the umask: with 002 it would never be used.

    ``__pycache__`` is made as Python does, readable for all: an installation by root serves every user. The user's own
    cache is made private again where an earlier release let others write to it.
    """
    own = directory.name == USER_CACHE
    directory.parent.mkdir(parents=True, exist_ok=True)
    try:
        directory.mkdir(mode=0o755 if directory.name == "__pycache__" else 0o700)
    except FileExistsError:
        if own and directory.stat().st_uid == os.getuid() and not _ours_alone(directory):
            directory.chmod(0o700)


def _ours_alone(path: Path) -> bool:
    """Whether only this user and root can change what lies there."""
    try:
        info = path.stat()
    except OSError:
        return False
    return info.st_uid in (os.getuid(), 0) and not info.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _read(path: Path) -> tuple[dict[str, str], bytes] | None:
    if not (_ours_alone(path) and _ours_alone(path.parent)):
        return None
    try:
        data = path.read_bytes()
    except OSError:
        return None
    if data[:8] != _MAGIC or hashlib.sha256(data[40:]).digest() != data[8:40]:
        return None
    (length,) = struct.unpack_from(">I", data, 40)
    return json.loads(data[44 : 44 + length]), data[44 + length :]


def _write(path: Path, table: dict[str, str], code: bytes) -> bool:
    names = json.dumps(table).encode()
    body = struct.pack(">I", len(names)) + names + code
    try:
        _make_ours(path.parent)
        if not _ours_alone(path.parent):
            return False
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".kernel-")
    except OSError:
        return False
    try:
        with os.fdopen(handle, "wb") as out:
            os.fchmod(handle, 0o644)  # an installation by root serves every user
            out.write(_MAGIC + hashlib.sha256(body).digest() + body)
        Path(temporary).replace(path)  # several processes may do this at once; each writes the same bytes
    except OSError:
        with contextlib.suppress(OSError):
            Path(temporary).unlink()
        return False
    return True


def _compile(module: str, functions: tuple[str, ...], llvm: Any) -> tuple[dict[str, str], bytes]:
    import importlib

    from numba import cfunc, types

    source = importlib.import_module(module)
    table: dict[str, str] = {}
    joined: Any = None
    for name in functions:
        compiled = cfunc(types.int64(types.int64), nopython=True, error_model="numpy", _nrt=False)(
            getattr(source, name)
        )
        table[name] = compiled._wrapper_name
        part = llvm.parse_assembly(compiled._library.get_llvm_str())
        if joined is None:
            joined = part
        else:
            joined.link_in(part)
    # Numba leaves helpers and its error reporting callable from outside. Hidden, the first are inlined and the second,
    # which no kernel reaches, disappear together with their references into Numba's runtime.
    for function in joined.functions:
        if not function.is_declaration and function.name not in table.values():
            function.linkage = "internal"
    for variable in joined.global_variables:
        if not variable.is_declaration:
            variable.linkage = "internal"
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(),
        features=llvm.get_host_cpu_features().flatten(),
        opt=3,
        reloc="pic",
        codemodel="jitdefault",
        jit=True,
    )
    tuning = llvm.create_pipeline_tuning_options(speed_level=3)
    tuning.inlining_threshold = 1000
    passes = llvm.create_pass_builder(machine, tuning)
    passes.getModulePassManager().run(joined, passes)
    foreign = {function.name for function in joined.functions if function.is_declaration} - _SYMBOLS_OF_LIBC
    foreign = {name for name in foreign if not name.startswith("llvm.")}
    if foreign:
        raise ImportError(f"kernels of {module} refer to {sorted(foreign)}, which exist only where Numba is imported")
    return table, machine.emit_object(joined)


def _link(table: dict[str, str], code: bytes, llvm: Any) -> dict[str, Kernel]:
    machine = llvm.Target.from_default_triple().create_target_machine(jit=True)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    _engines.append(engine)
    # The argument is an address; ctypes drops the GIL for the call.
    prototype = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)
    return {name: prototype(engine.get_function_address(symbol)) for name, symbol in table.items()}
