"""Kernels that are called by name: compiled where they must be, loaded once, their arguments numbers and arrays."""

from __future__ import annotations

import statecore.extras.pipeline

from array import array
from collections.abc import Sequence
from typing import Any

import numpy.typing as npt

from statecore.kernels import native


class KernelLibrary:
    """The kernels of one source module, kept as machine code in one file (:mod:`statecore.kernels.native`).

    Args:
        source: the module that holds their Python source; it is imported only to compile.
        names: the kernels.
        depends: further modules whose source decides what they compute.
    """

    def __init__(self, source: str, names: Sequence[str], depends: Sequence[str]) -> None:
        self._source, self._names, self._depends = source, tuple(names), tuple(depends)
        self._kernels: dict[str, native.Kernel] = {}

    def warm(self) -> None:
        """Load the kernels, compiling them first where no usable machine code is on disk. Cheap when done before."""
        if not self._kernels:
            self._kernels.update(native.load(self._source, self._names, depends=self._depends))

    def run(self, name: str, *arguments: int | npt.NDArray[Any] | None) -> int:
        """Call a kernel.

        Args:
            name: its name.
            arguments: its argument block: numbers, arrays (their address; they live until the call returns), or
                ``None`` (address 0).
        """
        self.warm()
        block = array("q", [_number(argument) for argument in arguments])
        return self._kernels[name](block.buffer_info()[0])


def _number(argument: int | npt.NDArray[Any] | None) -> int:
    if argument is None:
        return 0
    return argument if isinstance(argument, int) else int(argument.ctypes.data)
