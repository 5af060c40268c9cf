"""``Pointers``, the interface of small documents that are replaced by compare-and-swap.

Blobs never change; a pointer names the current ones. Requirements on every implementation, checked by one conformance
suite (``tests/unit/objectstore/test_pointers.py``):

**Atomic.** A reader sees one whole content with its version. A swap replaces exactly the version that it names, or
nothing: of several swaps of one version exactly one MUST win, in one process or many, on one machine or many.

**Versions** are opaque. ``None`` is the version of a missing pointer. A content MUST differ from all earlier ones of
the pointer (by a unique number or id), because some servers derive versions from the content alone.

**Honest.** After a lost reply, a swap MUST NOT report that it lost if it won: if it cannot find out, it raises
``Retryable``, and a caller that must know puts into the content what it needs to recognise its own.

**Durable** and **consistent** like blobs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

SWAP_TRIES = 20
"""How often a swap is tried again that others have won."""


class PointerValue(NamedTuple):
    """Content of a pointer, with its version."""

    content: bytes
    version: str


class Pointers(ABC):
    """Pointers by name; names are as those of blobs. The module lists the requirements on each method."""

    @abstractmethod
    def read(self, name: str) -> PointerValue | None:
        """The current content of a pointer; ``None`` if there is none."""

    @abstractmethod
    def swap(self, name: str, content: bytes, expected: str | None) -> str | None:
        """Replace or create a pointer.

        Returns:
            The new version, or ``None`` if the current version was not the expected one; then nothing changed.
        """
