"""The door to the kernels that merge runs; what they do is in :mod:`statecore.images.kernels.merged_source`.

Kept as machine code on disk like those of :mod:`statecore.images.kernels.kernel`, in a file of their own: a job whose
stores have one run each never loads it.
"""

from __future__ import annotations

from typing import NamedTuple

from statecore.kernels.library import KernelLibrary
from statecore.kernels.words import numbered


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
    block: int = 0
    """Address of the current block's first entry."""
    at: int = 0
    """Address of its next entry."""
    end: int = 0
    key: int = 0
    """Address of the memory of the current key."""
    key_room: int = 0
    """Bytes of that memory. A key needs seven more than it has, because it is copied by words."""
    key_needed: int = 0
    """Bytes of memory that the next key needs, where it did not fit."""
    key_length: int = 0
    value: int = 0
    value_length: int = 0
    is_value: int = 0
    """0: a delete."""
    entries: int = 0
    """Entries read, of those that lie in the range of keys."""
    skipping: int = 0
    """1 while it may stand before the key to begin at."""


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
    last: int = 0
    """Address of the key that was read last; there is as much memory as the key of any run has."""
    last_length: int = -1
    """Its bytes; -1 before the first."""
    begun: int = 0
    """Runs that ``begin`` has stepped to their first row."""
    taken: int = 0
    """Rows that ``take`` has copied since its caller set this to 0."""
    stopped: int = -1
    """Number of the run that could not go on to its next row; -1 where all could."""
    damage: int = 0
    """Why that run cannot be read: one of ``DAMAGE``."""
    low: int = 0
    """Address of the key to begin at."""
    low_length: int = 0
    """Its bytes; 0 to begin with the first key."""
    high: int = 0
    """Address of the key to end before."""
    high_length: int = -1
    """Its bytes; -1 to end with the last key."""


CURSOR, STATE = numbered(Cursor), numbered(State)

DONE, MORE, DAMAGED, NEEDS_ROOM = range(4)
"""What kernels say: all rows are read; so many as were asked for; the run ``stopped`` cannot be read, or its next key
needs more memory than it has: give it that and call again."""

BAD_INDEX, BAD_COMPRESSION, BAD_CHECKSUM, BAD_BLOCK, BAD_ENTRY, BAD_ORDER, BAD_TYPE, SMALL_ROOM = range(2, 10)
"""What stops a run. ``SMALL_ROOM`` is no damage."""

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

_KERNELS = KernelLibrary("statecore.images.kernels.merged_source")

warm = _KERNELS.warm
"""See :meth:`KernelLibrary.warm`."""

run = _KERNELS.run
"""See :meth:`KernelLibrary.run`."""
