"""Calls the kernel that compares two merged streams of rows (:mod:`statecore.images.kernels.reconcile_source`)."""

from __future__ import annotations

from typing import NamedTuple

from statecore.kernels.library import KernelLibrary
from statecore.kernels.records import field_indexes

NOTHING, VALUE, DELETE = range(3)  # What the run above the base needs for a key: nothing, the log's value, or a delete


class Pending(NamedTuple):
    """State of the key that was read last; its bytes are those of ``State.last``."""

    needs: int = NOTHING  # What it needs, as far as its rows were read
    is_told: int = 0  # 1 once the base's newest row of it was read, so that older ones do not count
    value: int = 0  # Address of the log's value, in the file of its run
    value_length: int = 0  # Its bytes; 0 for a delete


PENDING = field_indexes(Pending)

_KERNELS = KernelLibrary("statecore.images.kernels.reconcile_source")

warm = _KERNELS.warm  # See KernelLibrary.warm
run = _KERNELS.run  # See KernelLibrary.run
