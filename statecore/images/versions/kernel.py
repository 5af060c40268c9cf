"""The door to the kernels of versioned stores; what they do is in :mod:`statecore.images.versions.source`.

Kept as machine code on disk like those of :mod:`statecore.images.kernel`, in a file of their own: a job without
versioned stores never loads it.
"""

from __future__ import annotations

import statecore.extras.pipeline

from typing import Any

import numpy as np
import numpy.typing as npt

from statecore.kernels.library import KernelLibrary

RUN_WORDS = 11
"""Words that describe a run of records to ``replay``."""

ROW_WORDS = 6
"""Words of a row of the key being replayed."""

NODE_WORDS = 4
"""Words of a version of the key being replayed."""

OUT_WORDS = 4
"""Words that describe a finished row: segment, place in the arena, bytes of key, bytes of value."""

DONE, NEEDS_ROOM, NEEDS_POOL = 0, 1, 2
"""Why ``replay`` came back: all keys are done; the finished rows must be taken away; its own memory must grow."""

_NAMES = (
    "count_records",
    "place_records",
    "describe_records",
    "gather_values",
    "gather_keys",
    "replay",
    "gather_rows",
)
_DEPENDS = (
    __name__,
    "statecore.images.kernel",
    "statecore.kernels.memory",
    "statecore.images.table_source",
    "statecore.images.versions.put_source",
    "statecore.images.versions.sort_source",
)
_KERNELS = KernelLibrary("statecore.images.versions.source", _NAMES, _DEPENDS)

warm = _KERNELS.warm
"""See :meth:`KernelLibrary.warm`."""

run = _KERNELS.run
"""See :meth:`KernelLibrary.run`."""


def state(**words: int | npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """A state for ``replay`` with these words set, the rest zero."""
    made = np.zeros(len(WORD), np.int64)
    for name, word in words.items():
        made[WORD[name]] = word if isinstance(word, int) else int(word.ctypes.data)
    return made


WORD = {
    name: number
    for number, name in enumerate(
        (
            "runs",  # address of the descriptions of the runs
            "heap",  # address of the numbers of the runs that have keys left, the one with the smallest key first
            "heap_size",
            "phase",  # 0 between keys, 1 within a key's records, 2 with a key's rows to be finished
            "record",  # next record of the run on top of the heap
            "key",  # address and length of the key being replayed
            "key_length",
            "latest_from",  # its latest value: validFrom, or -1 where there is none; address; length
            "latest_address",
            "latest_length",
            "rows",  # address of the rows' memory; how many fit; how many were ever used; first free one; free ones
            "rows_room",
            "rows_used",
            "rows_free",
            "rows_freed",
            "nodes",  # the same for versions
            "nodes_room",
            "nodes_used",
            "nodes_free",
            "nodes_freed",
            "first_row",  # the key's row of the newest segment, or -1
            "retention",
            "interval",
            "first_live",  # first segment that is kept in the end
            "out",  # finished rows: address of their descriptions; how many fit; how many there are
            "out_room",
            "out_count",
            "arena",  # their bytes: address, room, used
            "arena_room",
            "arena_used",
            "needed_rows",  # what the current key needs of both
            "needed_bytes",
        )
    )
}
"""Which word of the state is which."""
