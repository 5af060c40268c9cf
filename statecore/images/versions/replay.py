"""Replays all records of a partition, key by key, in bounded memory, with the kernel ``replay``.

Records are in mapped files; memory holds the versions of one key and the arena of finished rows.
"""

from __future__ import annotations

import statecore.extras.pipeline

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from statecore.formats.segments import Segmentation
from statecore.images.versions import kernel
from statecore.images.versions.kernel import DONE, NEEDS_POOL, NODE, OUT, ROW, RUN, STATE, Run, State
from statecore.images.versions.sorted_records import MappedRecords
from statecore.kernels.library import address_of

_FIRST_POOL = 256
_SMALLEST_ARENA = 1 << 12
# Bytes of the arena for each row: finished rows are seldom smaller.
_ARENA_PER_ROW = 64


class Rows(NamedTuple):
    """Finished rows, ordered by key; those of one key from the latest to the oldest."""

    # four numbers for each row: segment id (-1: latest), position in the arena, bytes of the key (segment id included),
    # bytes of the value, which follows the key
    described: npt.NDArray[np.int64]
    arena: npt.NDArray[np.uint8]


def replay(
    runs: Sequence[tuple[int, MappedRecords]],
    segmentation: Segmentation,
    *,
    first_live: int,
    arena_bytes: int,
) -> Iterator[Rows]:
    """Yield the rows of a versioned store that has processed these records, in reused buffers.

    Args:
        runs: each with the stream time before its range.
        segmentation: history retention and interval of the store's segments.
        first_live: the first segment that has not expired.
        arena_bytes: bytes of finished rows that are yielded together, unless one key has more.
    """
    arena = np.empty(max(_SMALLEST_ARENA, arena_bytes), np.uint8)
    out = np.empty((len(arena) // _ARENA_PER_ROW, len(OUT)), np.int64)
    rows, nodes = np.empty((_FIRST_POOL, len(ROW)), np.int64), np.empty((_FIRST_POOL, len(NODE)), np.int64)
    described = np.array([_described(before, run) for before, run in runs], np.int64).reshape(-1, len(RUN))
    heap = np.empty(len(runs), np.int64)
    beginning = State(
        runs=address_of(described),
        heap=address_of(heap),
        heap_size=len(runs),
        retention=segmentation.retention_ms,
        interval=segmentation.interval_ms,
        first_live=first_live,
        rows=address_of(rows),
        rows_room=len(rows),
        nodes=address_of(nodes),
        nodes_room=len(nodes),
        arena=address_of(arena),
        arena_room=len(arena),
        out=address_of(out),
        out_room=len(out),
    )
    state = np.array(beginning, np.int64)
    first = 1
    while True:
        code = kernel.run("replay", state=state, first=first)
        first = 0
        if code == NEEDS_POOL:
            rows, nodes = np.concatenate([rows, np.empty_like(rows)]), np.concatenate([nodes, np.empty_like(nodes)])
            state[STATE.rows], state[STATE.rows_room] = address_of(rows), len(rows)
            state[STATE.nodes], state[STATE.nodes_room] = address_of(nodes), len(nodes)
            continue
        count = int(state[STATE.out_count])
        if count:
            yield Rows(out[:count], arena[: int(state[STATE.arena_used])])
            state[STATE.out_count] = state[STATE.arena_used] = 0
        if code == DONE:
            return
        if not count:  # a key larger than the arena
            arena = np.empty(max(len(arena), int(state[STATE.needed_bytes])), np.uint8)
            out = np.empty((max(len(out), int(state[STATE.needed_rows])), len(OUT)), np.int64)
            state[STATE.arena], state[STATE.arena_room] = address_of(arena), len(arena)
            state[STATE.out], state[STATE.out_room] = address_of(out), len(out)


def _described(before: int, run: MappedRecords) -> Run:
    parts = run.records
    return Run(
        keys=address_of(parts.keys),
        key_offsets=address_of(parts.key_offsets),
        first_records=address_of(parts.first_records),
        timestamps=address_of(parts.timestamps),
        stream_times=address_of(parts.stream_times),
        places=address_of(parts.places),
        values=address_of(run.values),
        key_count=len(parts.key_offsets) - 1,
        stream_time=before,
    )
