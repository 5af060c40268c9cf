"""The door to the kernels that merge runs; what they do is in :mod:`statecore.images.merged_source`.

Kept as machine code on disk like those of :mod:`statecore.images.kernel`, in a file of their own: a job whose stores
have one run each never loads it.
"""

from __future__ import annotations

from statecore.kernels.library import KernelLibrary

LONGEST_KEY = 240
"""Bytes of the longest key that is read: what the columnar writer writes at most."""

KEY_ROOM = 256
"""Bytes of the memory of one key: the longest and one word, because keys are copied by words."""

CURSOR = {
    name: number
    for number, name in enumerate(
        (
            "file",  # address of the file's bytes
            "limit",  # data blocks end before this place in the file
            "index",  # address of the next index entry
            "index_end",
            "next_block",  # where in the file the next data block must begin
            "at",  # address of the next entry of the current block
            "end",
            "key",  # memory of the current key
            "key_length",
            "value",
            "value_length",
            "is_value",  # 0: a delete
            "entries",  # entries read
        )
    )
}
"""Which word of the description of a run is which."""

STATE = {
    name: number
    for number, name in enumerate(
        (
            "sum_a",  # the two sums of the digest
            "sum_b",
            "rows",  # rows with a value, and bytes of their keys and values
            "bytes",
            "heap_size",  # runs that have rows left
            "last_length",  # bytes of the key that was read last; -1 before the first
            "damaged",  # number of the run that cannot be read
            "damage",  # in what way: one of DAMAGE
        )
    )
}
"""Which word of the state of a merge is which."""

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

_NAMES = ("begin", "merge")
_DEPENDS = (
    __name__,
    "statecore.images.sst_source",
    "statecore.kernels.memory",
)
_KERNELS = KernelLibrary("statecore.images.merged_source", _NAMES, _DEPENDS)

warm = _KERNELS.warm
"""See :meth:`KernelLibrary.warm`."""

run = _KERNELS.run
"""See :meth:`KernelLibrary.run`."""
