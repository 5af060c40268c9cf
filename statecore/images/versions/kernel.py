"""The door to the kernels of versioned stores; what they do is in :mod:`statecore.images.versions.source`.

Kept as machine code on disk like those of :mod:`statecore.images.kernels.kernel`, in a file of their own: a job without
versioned stores never loads it.
"""

from __future__ import annotations

import statecore.extras.pipeline

from typing import NamedTuple

from statecore.kernels.library import KernelLibrary
from statecore.kernels.words import numbered


class Run(NamedTuple):
    """A run that is being replayed: where its parts lie (:mod:`statecore.images.versions.sorted_records`)."""

    keys: int = 0
    key_offsets: int = 0
    first_records: int = 0
    timestamps: int = 0
    stream_times: int = 0
    places: int = 0
    values: int = 0
    key_count: int = 0
    stream_time: int = 0
    """Stream time of the ranges before it."""
    at: int = 0
    """The key it is at."""
    prefix: int = 0
    """The first eight bytes of that key as a number that orders like them."""


class Row(NamedTuple):
    """The row of one segment of the key being replayed."""

    segment: int = 0
    valid_to: int = 0
    """Of its newest version."""
    valid_from: int = 0
    """Of its oldest version."""
    head: int = 0
    """Its newest version, as an index; -1 stands for none."""
    tail: int = 0
    """Its oldest version."""
    following: int = 0
    """The row of the next older segment."""


class Node(NamedTuple):
    """A version of the key being replayed."""

    valid_from: int = 0
    address: int = 0
    """Where its value lies."""
    length: int = 0
    """Bytes of its value; -1: a tombstone."""
    older: int = 0
    """The next older version of the same row."""


class Out(NamedTuple):
    """A finished row."""

    segment: int = 0
    """-1: a latest value."""
    place: int = 0
    """Where in the arena its key begins."""
    key_bytes: int = 0
    value_bytes: int = 0
    """Of its value, which follows the key."""


class State(NamedTuple):
    """The state of a replay."""

    runs: int = 0
    """Address of the runs."""
    heap: int = 0
    """Address of the numbers of the runs that have keys left, the one with the smallest key first."""
    heap_size: int = 0
    phase: int = 0
    """0 between keys, 1 within a key's records, 2 with a key's rows to be finished."""
    record: int = 0
    """Next record of the run on top of the heap."""
    key: int = 0
    """Address and length of the key being replayed."""
    key_length: int = 0
    latest_from: int = 0
    """Its latest value: valid from when, or -1 where there is none; address; length."""
    latest_address: int = 0
    latest_length: int = 0
    rows: int = 0
    """Address of the rows' memory; how many fit; how many were ever used; the first free one; how many are free."""
    rows_room: int = 0
    rows_used: int = 0
    rows_free: int = 0
    rows_freed: int = 0
    nodes: int = 0
    """The same for versions."""
    nodes_room: int = 0
    nodes_used: int = 0
    nodes_free: int = 0
    nodes_freed: int = 0
    first_row: int = 0
    """The key's row of the newest segment, or -1."""
    retention: int = 0
    interval: int = 0
    first_live: int = 0
    """First segment that is kept in the end."""
    out: int = 0
    """Finished rows: their address; how many fit; how many there are."""
    out_room: int = 0
    out_count: int = 0
    arena: int = 0
    """Their bytes: address, room, used."""
    arena_room: int = 0
    arena_used: int = 0
    needed_rows: int = 0
    """What the current key needs of both."""
    needed_bytes: int = 0


RUN, ROW, NODE, OUT, STATE = numbered(Run), numbered(Row), numbered(Node), numbered(Out), numbered(State)

DONE, NEEDS_ROOM, NEEDS_POOL = 0, 1, 2
"""Why ``replay`` came back: all keys are done; the finished rows must be taken away; its own memory must grow."""

_KERNELS = KernelLibrary("statecore.images.versions.source")

warm = _KERNELS.warm
"""See :meth:`KernelLibrary.warm`."""

run = _KERNELS.run
"""See :meth:`KernelLibrary.run`."""
