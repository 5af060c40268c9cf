"""The seam for what changes: small documents that one writer at a time may replace, by compare-and-swap.

Blobs never change; a pointer says which of them count. What every implementation MUST do, and one conformance suite
holds (``tests/unit/objectstore/test_pointers.py``):

**Atomic.** Who reads sees one content whole, with its version. A swap replaces exactly the version that it names, or
nothing: of several swaps that name one version exactly one MUST win, in one process or many, on one machine or many.

**Versions** are opaque. That a pointer is not there is a version, too: ``None``. A content MUST be unlike all earlier
ones of the pointer (it has a number or an id that no other has), because some servers know versions by content alone.

**Honest.** After a reply that was lost, a swap MUST NOT say that it lost where it won: it says that nobody knows
(``Retryable``) where it cannot find out, and whoever must know keeps in the content what it needs to recognise its own.

**Durable** and **consistent** as blobs are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple


class Pointed(NamedTuple):
    """A pointer as it was at one moment.

    Attributes:
        content: its bytes.
        version: which of its contents that is.
    """

    content: bytes
    version: str


class Pointers(ABC):
    """Pointers by name; names are as those of blobs. See the module's text for what each method MUST do."""

    @abstractmethod
    def read(self, name: str) -> Pointed | None:
        """A pointer as it is; ``None`` where there is none.

        Raises:
            Invalid, Retryable: it cannot be read; that is not the same as that there is none.
        """

    @abstractmethod
    def swap(self, name: str, content: bytes, expected: str | None) -> str | None:
        """Replace a pointer, or make it.

        Args:
            name: its name.
            content: what it is to be.
            expected: the version that it must have; ``None`` where there must be none.

        Returns:
            The version that it has now, or ``None`` where it had another one than was expected; then nothing changed.

        Raises:
            Invalid, Capacity, Retryable: it cannot be written, or nobody knows whether it was.
        """
