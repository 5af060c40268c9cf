"""``KernelLibrary``: machine code called by name with arguments by name; defines the calling convention of kernels.

A **library** is a *source module* (``…source.py``), imported only to compile; its ``__all__`` names the kernels. A
*front* module without Numba beside it creates the :class:`KernelLibrary`.

A **kernel** is a function of the source module. Its signature alone declares how it is called:

- Every parameter is an ``int64``: a number, or the address of memory that the caller owns and keeps alive until the
  call returns; 0 means no memory. It returns an ``int64``: a count, a position, or a code of its front module.
- It touches no Python object, allocates nothing and raises nothing. Further results go into records.
- It accesses only the memory that it was given, whatever untrusted bytes it reads (a broker's response, a file). It may
  trust what its caller computed.

A **record** is a row of ``int64`` words, declared once in the front module as a ``NamedTuple``
(:mod:`statecore.kernels.records`) and accessed by both sides under the names of its fields.

The compiler derives the rest. It gives each kernel an entry point with one parameter, the address of a block of
``int64`` with the arguments in the order of the signature, and stores the parameter names with the machine code, so
that wrong names raise ``TypeError`` as in Python. The modules that the machine code depends on are found by following
imports (:func:`statecore.kernels.native.dependencies`).
"""

from __future__ import annotations

import statecore.extras.pipeline

from array import array
from typing import Any

import numpy.typing as npt
import pyarrow as pa

from statecore.kernels import native


class KernelLibrary:
    """The kernels of one source module, cached as machine code in one file (:mod:`statecore.kernels.native`).

    The source module is imported only to compile.
    """

    def __init__(self, source: str) -> None:
        self.source = source
        self._kernels: dict[str, native.Kernel] = {}

    def warm(self) -> None:
        """Load the kernels, compiling them first if no usable machine code is cached. Cheap if already loaded."""
        if not self._kernels:
            self._kernels.update(native.load(self.source))

    @property
    def kernels(self) -> dict[str, tuple[str, ...]]:
        """Each kernel with its parameter names."""
        self.warm()
        return {name: kernel.parameters for name, kernel in self._kernels.items()}

    def run(self, name: str, /, **arguments: int | npt.NDArray[Any] | None) -> int:
        """Call a kernel without the GIL.

        Args:
            arguments: numbers, contiguous arrays (passed as addresses; they live until the call returns), or ``None``
                (address 0).
        """
        self.warm()
        kernel = self._kernels[name]
        try:
            block = array("q", [_number(arguments[parameter]) for parameter in kernel.parameters])
        except KeyError as missing:
            raise TypeError(f"the kernel {name} of {self.source} needs the argument {missing}") from None
        if len(arguments) != len(kernel.parameters):
            unknown = sorted(arguments.keys() - set(kernel.parameters))
            raise TypeError(f"the kernel {name} of {self.source} has no parameter {', '.join(unknown)}")
        return kernel.call(block.buffer_info()[0])


def _number(argument: int | npt.NDArray[Any] | None) -> int:
    if argument is None:
        return 0
    if isinstance(argument, int):
        return argument
    if not argument.flags.c_contiguous:
        raise ValueError("a kernel takes contiguous arrays")
    return address_of(argument)


def address_of(array: npt.NDArray[Any]) -> int:
    """The address of an array's first byte; the caller keeps the array alive while it is used."""
    return int(pa.py_buffer(array).address)  # five times faster than NumPy's own way
