"""Python interface of the kernels of versioned stores (:mod:`statecore.images.versions.replay_source`).

Their machine code is in a file of its own, so that jobs without versioned stores do not load it.
"""

from __future__ import annotations

import statecore.extras.pipeline

from typing import NamedTuple

from statecore.kernels.library import KernelLibrary
from statecore.kernels.records import field_indexes


class Run(NamedTuple):
    """Addresses of the parts of a mapped run (:mod:`statecore.images.versions.sorted_records`), and its position."""

    keys: int = 0
    key_offsets: int = 0
    first_records: int = 0
    timestamps: int = 0
    stream_times: int = 0
    places: int = 0
    values: int = 0
    key_count: int = 0
    stream_time: int = 0  # Stream time of the ranges before it
    at: int = 0  # Index of its current key
    prefix: int = 0  # First eight bytes of that key as a number in the same order


class Row(NamedTuple):
    """The row of one segment of the key being replayed."""

    segment: int = 0
    valid_to: int = 0  # End of its newest version
    valid_from: int = 0  # Start of its oldest version
    head: int = 0  # Index of its newest version; -1 for none
    tail: int = 0  # Index of its oldest version
    following: int = 0  # Index of the row of the next older segment


class Node(NamedTuple):
    """A version of the key being replayed."""

    valid_from: int = 0
    address: int = 0  # Address of its value
    length: int = 0  # Bytes of its value; -1: a tombstone
    older: int = 0  # Index of the next older version of the same row


class Out(NamedTuple):
    """A finished row."""

    segment: int = 0  # -1: a latest value
    place: int = 0  # Position of its key in the arena
    key_bytes: int = 0
    value_bytes: int = 0  # Bytes of its value, which follows the key


class State(NamedTuple):
    """The state of a replay."""

    runs: int = 0  # Address of the runs
    heap: int = 0  # Address of the indexes of the runs with remaining keys, the one with the smallest key first
    heap_size: int = 0
    phase: int = 0  # 0 between keys, 1 within a key's records, 2 while a key's rows are finished
    record: int = 0  # Next record of the run on top of the heap
    key: int = 0  # Address and length of the key being replayed
    key_length: int = 0
    latest_from: int = 0  # Its latest value: start of validity, or -1 without one; address; length
    latest_address: int = 0
    latest_length: int = 0
    rows: int = 0  # Row pool: address; capacity; rows ever used; first free row; number of free rows
    rows_room: int = 0
    rows_used: int = 0
    rows_free: int = 0
    rows_freed: int = 0
    nodes: int = 0  # The same for versions
    nodes_room: int = 0
    nodes_used: int = 0
    nodes_free: int = 0
    nodes_freed: int = 0
    first_row: int = 0  # The key's row in the newest segment, or -1
    retention: int = 0
    interval: int = 0
    first_live: int = 0  # First segment that is live at the end
    out: int = 0  # Finished rows: address; capacity; count
    out_room: int = 0
    out_count: int = 0
    arena: int = 0  # Arena of their bytes: address, capacity, used bytes
    arena_room: int = 0
    arena_used: int = 0
    needed_rows: int = 0  # Rows and bytes that the current key needs
    needed_bytes: int = 0


RUN, ROW, NODE, OUT, STATE = (
    field_indexes(Run),
    field_indexes(Row),
    field_indexes(Node),
    field_indexes(Out),
    field_indexes(State),
)

DONE, NEEDS_ROOM, NEEDS_POOL = 0, 1, 2
"""Why ``replay`` returned: all keys are done; the finished rows must be consumed; its pools must grow."""

_KERNELS = KernelLibrary("statecore.images.versions.replay_source")

warm = _KERNELS.warm  # See KernelLibrary.warm
run = _KERNELS.run  # See KernelLibrary.run
