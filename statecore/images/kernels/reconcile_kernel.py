"""Calls the kernel that compares two merged streams of rows (:mod:`statecore.images.kernels.reconcile_source`)."""

from __future__ import annotations

from typing import NamedTuple

from statecore.kernels.library import KernelLibrary
from statecore.kernels.words import numbered

NOTHING, VALUE, DELETE = range(3)
"""What a key needs above the parent: nothing, the value that the log shows, or a delete."""


class Pending(NamedTuple):
    """What is known of the key that was read last; its bytes are those of ``State.last``."""

    needs: int = NOTHING
    """What it needs, by what was read of it so far."""
    is_told: int = 0
    """1 where the parent's row of it was read, so that no further one counts."""
    value: int = 0
    """Address of the log's value, in the file of its run."""
    value_length: int = 0
    """Its bytes; 0 where a delete is needed."""


PENDING = numbered(Pending)

_KERNELS = KernelLibrary("statecore.images.kernels.reconcile_source")

warm = _KERNELS.warm
"""See :meth:`KernelLibrary.warm`."""

run = _KERNELS.run
"""See :meth:`KernelLibrary.run`."""
