"""Python interface of the kernels that merge runs (:mod:`statecore.images.kernels.merged_source`).

Their machine code is in a file of its own, so that jobs with one run per store do not load it.
"""

from __future__ import annotations

from typing import NamedTuple

from statecore.kernels.library import KernelLibrary
from statecore.kernels.records import field_indexes


class Cursor(NamedTuple):
    """Read position in a run."""

    file: int = 0  # Address of the file's bytes
    limit: int = 0  # End of the data blocks in the file
    index_at: int = 0  # Address of the next index entry
    index_end: int = 0
    next_block: int = 0  # Position in the file where the next data block must begin
    block: int = 0  # Address of the current block's first entry
    at: int = 0  # Address of its next entry
    end: int = 0
    key: int = 0  # Address of the buffer of the current key
    key_room: int = 0  # Bytes of that buffer. A key needs seven more than its length, because it is copied by words.
    key_needed: int = 0  # Bytes that the next key needs, where it did not fit
    key_length: int = 0
    value: int = 0
    value_length: int = 0
    is_value: int = 0  # 0: a delete
    entries: int = 0  # Entries read inside the key range
    skipping: int = 0  # 1 while it may be before the first key of the range


class State(NamedTuple):
    """State of a merge."""

    sum_a: int = 0  # The two sums of the digest
    sum_b: int = 0
    rows: int = 0  # Rows with a value, and the bytes of their keys and values
    bytes: int = 0
    heap_size: int = 0  # Runs with remaining rows
    last: int = 0  # Address of the last key; its buffer is as large as the largest key buffer of any run
    last_length: int = -1  # Its bytes; -1 before the first
    begun: int = 0  # Runs that begin has moved to their first row
    taken: int = 0  # Rows copied by take since its caller set this to 0
    stopped: int = -1  # Index of the run that could not advance to its next row; -1 if all could
    damage: int = 0  # Why that run cannot be read: one of DAMAGE
    low: int = 0  # Address of the first key of the range
    low_length: int = 0  # Its bytes; 0 for no lower bound
    high: int = 0  # Address of the key at which the range ends
    high_length: int = -1  # Its bytes; -1 for no upper bound


CURSOR, STATE = field_indexes(Cursor), field_indexes(State)

DONE, MORE, DAMAGED, NEEDS_ROOM = range(4)
"""Results of kernels: all rows are read; the limit is reached; the run ``stopped`` is damaged; or its next key needs a
larger buffer, after which the kernel is called again.
"""

BAD_INDEX, BAD_COMPRESSION, BAD_CHECKSUM, BAD_BLOCK, BAD_ENTRY, BAD_ORDER, BAD_TYPE, SMALL_ROOM = range(2, 10)
"""Causes that stop a run. ``SMALL_ROOM`` is not damage."""

DAMAGE = {
    BAD_INDEX: "has an index that does not match its blocks",
    BAD_COMPRESSION: "has a compressed block",
    BAD_CHECKSUM: "has a block whose checksum differs",
    BAD_BLOCK: "has a block without entries or with too many restarts",
    BAD_ENTRY: "has an entry that does not fit into its block",
    BAD_ORDER: "has keys that do not ascend",
    BAD_TYPE: "has an entry that is neither a value nor a delete of sequence number 0",
}
"""Messages for damaged runs."""

_KERNELS = KernelLibrary("statecore.images.kernels.merged_source")

warm = _KERNELS.warm  # See KernelLibrary.warm
run = _KERNELS.run  # See KernelLibrary.run
