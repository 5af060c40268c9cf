"""Kernels: machine code that is called by name with arguments by name. The one convention, and the one way to load.

A **library** is a *source module* (``…source.py``), imported only to compile; its ``__all__`` names the kernels. Beside
those who use them stands a *door*, a module without Numba, which makes the :class:`KernelLibrary`.

A **kernel** is a function of the source module. Its signature is the only declaration of how it is called:

- Every parameter is an ``int64``: a number, or the address of memory that the caller owns and keeps alive until the
  call returns; 0 stands for no memory. It returns an ``int64``: a count, a place, or a code of its door.
- It touches no Python object, allocates nothing and raises nothing. What else it has to say goes into records.
- It reads and writes nothing outside the memory it was given, whatever bytes of others it reads (a broker's response, a
  file). It may trust what its caller computed.

A **record** is a row of ``int64`` words, declared once in the door as a ``NamedTuple`` (:mod:`statecore.kernels.words`)
and used by both sides under the names of its fields.

The compiler derives the rest. It makes each kernel an entry with one parameter, the address of a block of ``int64``
that holds the arguments in the order of the signature, and keeps the names of the parameters beside the machine code,
so that a caller who names others is refused as Python refuses them. The modules that the machine code depends on are
found by following imports (:mod:`statecore.kernels.dependencies`).
"""

from __future__ import annotations

import statecore.extras.pipeline

from array import array
from typing import Any

import numpy.typing as npt
import pyarrow as pa

from statecore.kernels import native


class KernelLibrary:
    """The kernels of one source module, kept as machine code in one file (:mod:`statecore.kernels.native`).

    Args:
        source: the module that holds their Python source; it is imported only to compile.
    """

    def __init__(self, source: str) -> None:
        self.source = source
        self._kernels: dict[str, native.Kernel] = {}

    def warm(self) -> None:
        """Load the kernels, compiling them first where no usable machine code is on disk. Cheap when done before.

        Raises:
            Invalid: they cannot be compiled or loaded on this machine.
        """
        if not self._kernels:
            self._kernels.update(native.load(self.source))

    @property
    def kernels(self) -> dict[str, tuple[str, ...]]:
        """Each kernel with the names of its parameters."""
        self.warm()
        return {name: kernel.parameters for name, kernel in self._kernels.items()}

    def run(self, name: str, /, **arguments: int | npt.NDArray[Any] | None) -> int:
        """Call a kernel. The GIL is not held meanwhile.

        Args:
            name: its name.
            arguments: what its parameters are: numbers, contiguous arrays (their address; they live until the call
                returns), or ``None`` (address 0).

        Raises:
            TypeError: these are not its parameters.
            ValueError: an array is not contiguous.
        """
        self.warm()
        kernel = self._kernels[name]
        try:
            block = array("q", [_number(arguments[parameter]) for parameter in kernel.parameters])
        except KeyError as missing:
            raise TypeError(f"the kernel {name} of {self.source} needs the argument {missing}") from None
        if len(arguments) != len(kernel.parameters):
            unknown = sorted(arguments.keys() - set(kernel.parameters))
            raise TypeError(f"the kernel {name} of {self.source} knows no {', '.join(unknown)}")
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
    """The address of an array's first byte; the caller keeps the array alive while anyone works with it."""
    return int(pa.py_buffer(array).address)  # a fifth of the time of NumPy's own way to say it
