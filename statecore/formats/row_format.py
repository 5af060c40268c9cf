"""Columnar conversion of changelog records to database rows of one kind, and back.

Each kind has one :class:`RowFormat` (:mod:`statecore.formats.registry`); its module describes the bytes. A record is
converted in two steps, so that values are only processed where needed::

    batch of the changelog ── check ── row_keys, row_values ──▶ last write per key ── stamped? ──▶ row
                              every record                       survivors only       int64 timestamp o value

Arrow in, Arrow out; no loop over records.
"""

from __future__ import annotations

import statecore.extras.pipeline

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statecore.formats.kinds import StoreKind

Numbers = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]


class Records(NamedTuple):
    """Columns of a changelog batch."""

    keys: pa.Array  # record keys, binary; null where the record has none
    values: pa.Array  # record values, binary; null for tombstones
    timestamps: pa.Array  # record timestamps, int64 ms, no nulls
    headers: pa.Array | None = None  # raw wire headers, binary without nulls; None where the format does not need them


class Misfit(NamedTuple):
    """The first record of a batch that cannot belong to a store of the kind."""

    row: int  # its index in the batch
    why: str  # end of a sentence: "has a key of 7 bytes; window keys have at least 12"


class RowFormat:
    """Row format of one store kind; this base class is the format of plain key-value stores."""

    stamped: bool = False  # whether the record's timestamp is prepended to the value
    needs_headers: bool = False  # whether the record's headers are part of the row
    indexed: bool = False  # whether there are index rows, see index_keys
    # position in a row's key of the int64 of its segment's time (ms), from the end when negative; None for stores
    # without segments
    time_at: int | None = None
    key_time_at: int | None = None  # the same for the changelog's key

    def __init__(self, kind: StoreKind) -> None:
        self.kind = kind  # the store's kind

    def check(self, records: Records) -> Misfit | None:
        """First record that cannot belong to this kind, or ``None``. Records with a null key are skipped."""
        return negative_timestamp(records.timestamps) if self.stamped else None

    def row_keys(self, keys: pa.Array) -> pa.Array:
        """Row keys for changelog keys; nulls stay null."""
        return keys

    def row_values(self, records: Records) -> pa.Array:
        """Row values without the timestamp of :attr:`stamped` values; nulls (deletes) stay null."""
        return records.values

    def index_keys(self, row_keys: pa.Array) -> pa.Array | None:
        """Keys of the index rows, whose values are empty; ``None`` unless :attr:`indexed`."""
        del row_keys
        return None

    def decode(self, keys: pa.Array, values: pa.Array) -> pa.RecordBatch:
        """Decode rows into columns: ``key``, ``value``, and between them what the kind stores.

        Columns, in this order, as far as the kind has them: ``key`` (binary, as the application's serializer wrote it),
        ``window_start``, ``session_start``, ``session_end`` (int64 ms), ``sequence`` (int32), ``side`` (string, of a
        join: ``left`` or ``right``), ``timestamp`` (int64 ms), ``valid_from``, ``valid_to`` (int64 ms; null = still
        valid), ``headers`` (list of struct ``key`` string, ``value`` binary), ``value`` (binary). Index rows are left
        out; a row of several versions, or of several values, becomes several.

        Args:
            keys: row keys, binary or large binary without nulls.
            values: row values. A null (a delete) stays null; list stores have none.
        """
        columns = {**self.key_columns(keys), **self.value_columns(values)}
        return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))

    def key_columns(self, keys: pa.Array) -> dict[str, pa.Array]:
        """Columns of :meth:`decode` that come from keys. Raises ``Corrupted`` for a malformed key."""
        return {"key": keys}

    def value_columns(self, values: pa.Array) -> dict[str, pa.Array]:
        """Columns of :meth:`decode` that come from values. Raises ``Corrupted`` for a malformed value."""
        return {"value": values}

    def times(self, keys: pa.Array) -> Numbers:
        """Segment time in ms of each changelog key, -1 for null keys; requires :attr:`key_time_at`."""
        if self.key_time_at is None:
            raise ValueError(f"stores of kind {self.kind.value} have no segments")
        return int64_at(keys, self.key_time_at)


def negative_timestamp(timestamps: pa.Array) -> Misfit | None:
    """First record with a negative timestamp, which Kafka Streams never writes and its stores cannot order."""
    stamps = int64_values(timestamps)
    if not len(stamps) or stamps.min() >= 0:
        return None
    row = int(np.flatnonzero(stamps < 0)[0])
    return Misfit(row, f"has the timestamp {stamps[row]}; the timestamps of a changelog are not negative")


def key_lengths(keys: pa.Array) -> Numbers:
    """Bytes of each key; 0 for nulls."""
    offsets, _ = binary_parts(keys)
    lengths = np.diff(offsets)
    return lengths * valid_mask(keys) if keys.null_count else lengths


def valid_mask(array: pa.Array) -> npt.NDArray[np.bool_]:
    """Mask of the elements that are not null."""
    if not array.null_count:
        return np.ones(len(array), bool)
    return np.frombuffer(array.is_valid().cast(pa.uint8()).buffers()[1], np.uint8)[: len(array)] != 0


def binary_parts(array: pa.Array) -> tuple[Numbers, Bytes]:
    """Offsets (one more than elements, relative to ``data``) and data of a binary or large binary array.

    Views of the array's buffers where offsets are 64-bit. ``to_numpy`` would import pandas, most of a worker's start
    time.
    """
    count = len(array)
    if count == 0:
        return np.zeros(1, np.int64), np.empty(0, np.uint8)
    buffers = array.buffers()
    width = np.int64 if pa.types.is_large_binary(array.type) else np.int32
    offsets = np.frombuffer(buffers[1], width)[array.offset : array.offset + count + 1].astype(np.int64, copy=False)
    data = np.frombuffer(buffers[2], np.uint8) if buffers[2] is not None else np.empty(0, np.uint8)
    return offsets, data


def int64_values(array: pa.Array) -> Numbers:
    """View of the numbers of an int64 array without nulls."""
    if not len(array):
        return np.empty(0, np.int64)
    return np.frombuffer(array.buffers()[1], np.int64)[array.offset : array.offset + len(array)]


def int64_at(keys: pa.Array, at: int) -> Numbers:
    """Big-endian int64 at a position of each key (from its end when negative), which must be there; -1 for nulls."""
    offsets, data = binary_parts(keys)
    if keys.null_count:
        present = valid_mask(keys)
        result = np.full(len(keys), -1, np.int64)
        result[present] = _int64_at(data, (offsets[1:] if at < 0 else offsets[:-1])[present] + at)
        return result
    return _int64_at(data, (offsets[1:] if at < 0 else offsets[:-1]) + at)


def _int64_at(data: Bytes, places: Numbers) -> Numbers:
    if not len(places):
        return np.empty(0, np.int64)
    # View of every 8 consecutive bytes, to read at unaligned positions.
    words = np.lib.stride_tricks.as_strided(data, (len(data) - 7, 8), (1, 1))
    return words[places].reshape(-1).view(">i8").astype(np.int64)
