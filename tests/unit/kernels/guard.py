"""Arrays that end, or begin, at an inaccessible page: one byte too far kills the process, at the very access."""

from __future__ import annotations

import ctypes
import mmap
import random
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any
from unittest import mock

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statecore.kernels.library import KernelLibrary

_LIBC = ctypes.CDLL(None, use_errno=True)
_PAGE = mmap.PAGESIZE


def guarded(shape: Any, dtype: Any = np.uint8, *, at_end: bool = True, fill: int | None = None) -> npt.NDArray[Any]:
    """An array between two inaccessible pages, at the very end or the very beginning of what lies between them.

    Args:
        shape: its shape.
        dtype: its type.
        at_end: whether its last byte is the last one that can be accessed; else its first byte is the first one.
        fill: what every byte is.
    """
    kind = np.dtype(dtype)
    size = int(np.prod(shape)) * kind.itemsize
    pages = max(1, -(-size // _PAGE))
    memory = mmap.mmap(-1, (pages + 2) * _PAGE)
    whole = np.frombuffer(memory, np.uint8)
    for fence in (0, pages + 1):
        if _LIBC.mprotect(ctypes.c_void_p(whole.ctypes.data + fence * _PAGE), _PAGE, 0) != 0:
            raise OSError(ctypes.get_errno(), "mprotect")
    start = (pages + 1) * _PAGE - size if at_end else _PAGE
    found = whole[start : start + size]
    if fill is not None:
        found[:] = fill
    return found.view(kind).reshape(shape)


def guarded_copy(array: npt.NDArray[Any], *, at_end: bool = True) -> npt.NDArray[Any]:
    """The same numbers in such memory."""
    made = guarded(array.shape, array.dtype, at_end=at_end)
    made[...] = array
    return made


class _Guards:
    """NumPy, as a module sees it, with arrays in guarded memory; what is not set is full of ones."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)

    def _made(self, shape: Any, dtype: Any, fill: int) -> npt.NDArray[Any]:
        return guarded(shape, dtype, at_end=self._chance.random() < 0.7, fill=fill)

    def empty(self, shape: Any, dtype: Any = float) -> npt.NDArray[Any]:
        return self._made(shape, dtype, 0xFF)

    def zeros(self, shape: Any, dtype: Any = float) -> npt.NDArray[Any]:
        return self._made(shape, dtype, 0)

    def empty_like(self, like: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return self._made(like.shape, like.dtype, 0xFF)

    def copied(self, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return guarded_copy(array, at_end=self._chance.random() < 0.7)

    def array(self, *values: Any) -> npt.NDArray[Any]:
        return self.copied(np.array(*values))

    def concatenate(self, arrays: Any) -> npt.NDArray[Any]:
        return self.copied(np.concatenate(arrays))

    def memmap(self, *file: Any) -> npt.NDArray[Any]:
        return self.copied(np.memmap(*file))


@contextmanager
def between_guards(chance: random.Random, *modules: ModuleType) -> Iterator[set[str]]:
    """While this is open, kernels get copies of the arrays they are called with, each between guard pages.

    Arrays whose addresses are handed on in records are made by `modules`; these see a NumPy that guards what it makes.

    Yields:
        ``source module.kernel`` of all that were called.
    """
    called: set[str] = set()
    run = KernelLibrary.run
    guards = _Guards(chance)

    def guarded_run(library: KernelLibrary, name: str, /, **arguments: Any) -> int:
        called.add(f"{library.source}.{name}")
        given = {key: value for key, value in arguments.items() if isinstance(value, np.ndarray)}
        copies = {key: guards.copied(value) for key, value in given.items()}
        result = run(library, name, **{**arguments, **copies})
        for key, value in given.items():
            if value.flags.writeable:
                value[...] = copies[key]
        return result

    with mock.patch.object(KernelLibrary, "run", guarded_run):
        patches = [mock.patch.object(module, "np", guards) for module in modules if hasattr(module, "np")]
        # Doors hand on the method of their library, bound before.
        for module in modules:
            library = getattr(module, "_KERNELS", None)
            if library is not None and hasattr(module, "run"):
                patches.append(mock.patch.object(module, "run", guarded_run.__get__(library)))
        for patch in patches:
            patch.start()
        try:
            yield called
        finally:
            for patch in patches:
                patch.stop()


def arrow_column(values: list[bytes | None], chance: random.Random, *, large: bool, guard: bool) -> pa.Array:
    """A binary column, perhaps a slice of a longer one, whose offsets and data lie in guarded memory if asked for."""
    before, behind = chance.choice([(0, 0), (3, 0), (0, 2), (9, 1)])
    kind = pa.large_binary() if large else pa.binary()
    whole = pa.array([b"before"] * before + values + [b"behind"] * behind, kind)
    if behind == 0 and guard:
        whole = pa.Array.from_buffers(
            kind,
            len(whole),
            [None if one is None else _guarded_buffer(one, size) for one, size in _sizes(whole)],
            whole.null_count,
        )
    return whole[before : before + len(values)]


def _sizes(array: pa.Array) -> Iterator[tuple[pa.Buffer | None, int]]:
    validity, offsets, data = array.buffers()
    width = 8 if pa.types.is_large_binary(array.type) else 4
    used = np.frombuffer(offsets, np.int64 if width == 8 else np.int32)[len(array)]
    yield validity, -(-len(array) // 8)
    yield offsets, width * (len(array) + 1)
    yield data, int(used)


def _guarded_buffer(buffer: pa.Buffer, size: int) -> pa.Buffer:
    bytes_ = np.frombuffer(buffer, np.uint8)[:size]
    return pa.py_buffer(guarded_copy(bytes_, at_end=random.random() < 0.7))
