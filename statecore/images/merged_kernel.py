"""The door to the kernels that merge runs; what they do is in :mod:`statecore.images.merged_source`.

Kept as machine code on disk like those of :mod:`statecore.images.kernel`, in a file of their own: a job whose stores
have one run each never loads it.
"""

from __future__ import annotations

from typing import NamedTuple

from statecore.kernels.library import KernelLibrary
from statecore.kernels.words import numbered

LONGEST_KEY = 240
"""Bytes of the longest key that is read: what the columnar writer writes at most."""

KEY_ROOM = 256
"""Bytes of the memory of one key: the longest and one word, because keys are copied by words."""


class Cursor(NamedTuple):
    """A run that is being read."""

    file: int = 0
    """Address of the file's bytes."""
    limit: int = 0
    """Data blocks end before this place in the file."""
    index_at: int = 0
    """Address of the next index entry."""
    index_end: int = 0
    next_block: int = 0
    """Where in the file the next data block must begin."""
    at: int = 0
    """Address of the next entry of the current block."""
    end: int = 0
    key: int = 0
    """Address of the memory of the current key."""
    key_length: int = 0
    value: int = 0
    value_length: int = 0
    is_value: int = 0
    """0: a delete."""
    entries: int = 0
    """Entries read."""


class State(NamedTuple):
    """The state of a merge."""

    sum_a: int = 0
    """The two sums of the digest."""
    sum_b: int = 0
    rows: int = 0
    """Rows with a value, and the bytes of their keys and values."""
    bytes: int = 0
    heap_size: int = 0
    """Runs that have rows left."""
    last_length: int = -1
    """Bytes of the key that was read last; -1 before the first."""
    taken: int = 0
    """Rows that were copied by the last call of ``take``."""
    damaged: int = 0
    """Number of the run that cannot be read."""
    damage: int = 0
    """In what way: one of ``DAMAGE``."""


CURSOR, STATE = numbered(Cursor), numbered(State)

DONE, MORE, DAMAGED = 0, 1, 2
"""What ``merge`` says: all rows are read; so many as were asked for; a run cannot be read."""

BAD_INDEX, BAD_COMPRESSION, BAD_CHECKSUM, BAD_BLOCK, BAD_ENTRY, BAD_ORDER, BAD_TYPE = range(2, 9)

DAMAGE = {
    BAD_INDEX: "has an index that does not lead from block to block",
    BAD_COMPRESSION: "has a compressed block",
    BAD_CHECKSUM: "has a block whose checksum differs",
    BAD_BLOCK: "has a block without entries or with too many restarts",
    BAD_ENTRY: "has an entry that does not fit into its block",
    BAD_ORDER: "has keys that do not ascend",
    BAD_TYPE: "has an entry that is neither a value nor a delete of sequence number 0",
}
"""What is wrong with a run that cannot be read."""

_KERNELS = KernelLibrary("statecore.images.merged_source")

warm = _KERNELS.warm
"""See :meth:`KernelLibrary.warm`."""

run = _KERNELS.run
"""See :meth:`KernelLibrary.run`."""
