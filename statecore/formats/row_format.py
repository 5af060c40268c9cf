"""What a changelog record of one kind becomes in the database, columnar, and how its rows are read back.

Each kind has one :class:`RowFormat` (:mod:`statecore.formats.registry`); the module that defines it draws its bytes. A
record goes through it in two steps, so that work on values is only done where it must be::

    batch of the changelog ── check ── row_keys, row_values ──▶ last write per key ── stamped? ──▶ row
                              every record                       survivors only       int64 timestamp o value

Arrow in, Arrow out; nothing here loops over records.
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
    """The columns of a batch of the changelog.

    Attributes:
        keys: record keys, binary; null where the record has none.
        values: record values, binary; null for tombstones.
        timestamps: record timestamps, int64 ms, no nulls.
        headers: the raw wire headers, binary without nulls, where the format needs them, else ``None``.
    """

    keys: pa.Array
    values: pa.Array
    timestamps: pa.Array
    headers: pa.Array | None = None


class Misfit(NamedTuple):
    """The first record of a batch that cannot belong to a store of the kind.

    Attributes:
        row: its place in the batch.
        why: what is wrong with it, as the end of a sentence: "has a key of 7 bytes; window keys have at least 12".
    """

    row: int
    why: str


class RowFormat:
    """The rows of one kind of store; this class itself is the format of plain key-value stores.

    Attributes:
        kind: what the store is.
        stamped: whether the record's timestamp goes in front of the value when the row is written.
        needs_headers: whether the record's headers are part of the row.
        indexed: whether further rows lie beside these, those of :meth:`index_keys`.
        time_at: where in a row's key the int64 of its segment's time (ms) begins, from the end when negative; ``None``
            when the rows do not lie in segments.
        key_time_at: the same in the changelog's key.
    """

    stamped: bool = False
    needs_headers: bool = False
    indexed: bool = False
    time_at: int | None = None
    key_time_at: int | None = None

    def __init__(self, kind: StoreKind) -> None:
        self.kind = kind

    def check(self, records: Records) -> Misfit | None:
        """The first record that is not one of this kind, or ``None``. Records with a null key are skipped."""
        return negative_timestamp(records.timestamps) if self.stamped else None

    def row_keys(self, keys: pa.Array) -> pa.Array:
        """Keys of the rows for keys of the changelog; nulls stay null."""
        return keys

    def row_values(self, records: Records) -> pa.Array:
        """Values of the rows, without the timestamp that :attr:`stamped` puts in front; nulls (deletes) stay null."""
        return records.values

    def index_keys(self, row_keys: pa.Array) -> pa.Array | None:
        """Keys of further rows with empty values that lie beside these; ``None`` where not :attr:`indexed`."""
        del row_keys
        return None

    def decode(self, keys: pa.Array, values: pa.Array) -> pa.RecordBatch:
        """Rows as a person reads them: a column ``key``, a column ``value``, and between them what the kind keeps.

        Columns, in this order, as far as the kind has them: ``key`` (binary, as the application's serializer wrote it),
        ``window_start``, ``session_start``, ``session_end`` (int64 ms), ``sequence`` (int32), ``side`` (string, of a
        join: ``left`` or ``right``), ``timestamp`` (int64 ms), ``valid_from``, ``valid_to`` (int64 ms; null = still
        valid), ``headers`` (list of struct ``key`` string, ``value`` binary), ``value`` (binary). Rows that only index
        others are left out; a row of several versions, or of several values, becomes several.

        Args:
            keys: keys of rows of a database, binary or large binary without nulls.
            values: their values. A null value (a delete) stays one; list stores have none.

        Raises:
            Corrupted: a row is not one of this kind.
        """
        columns = {**self.key_columns(keys), **self.value_columns(values)}
        return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))

    def key_columns(self, keys: pa.Array) -> dict[str, pa.Array]:
        """The columns of :meth:`decode` that come from the keys.

        Raises:
            Corrupted: a key is not one of this kind.
        """
        return {"key": keys}

    def value_columns(self, values: pa.Array) -> dict[str, pa.Array]:
        """The columns of :meth:`decode` that come from the values.

        Raises:
            Corrupted: a value is not one of this kind.
        """
        return {"value": values}

    def times(self, keys: pa.Array) -> Numbers:
        """The segment's time in ms for each changelog key, -1 for null keys. Only where :attr:`key_time_at` is set."""
        if self.key_time_at is None:
            raise ValueError(f"stores of kind {self.kind.value} have no segments")
        return int64_at(keys, self.key_time_at)


def negative_timestamp(timestamps: pa.Array) -> Misfit | None:
    """The first record with a timestamp before 1970, which no Kafka Streams writes and its stores cannot order."""
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
    """Which elements are not null."""
    if not array.null_count:
        return np.ones(len(array), bool)
    return np.frombuffer(array.is_valid().cast(pa.uint8()).buffers()[1], np.uint8)[: len(array)] != 0


def binary_parts(array: pa.Array) -> tuple[Numbers, Bytes]:
    """Offsets (one more than elements, counting from ``data``) and data of a binary or large binary array.

    Views of the array's buffers where they are 64-bit already. ``to_numpy`` would import pandas, most of a worker's
    start.
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
    """The numbers of an int64 array without nulls, as a view of its buffer."""
    if not len(array):
        return np.empty(0, np.int64)
    return np.frombuffer(array.buffers()[1], np.int64)[array.offset : array.offset + len(array)]


def int64_at(keys: pa.Array, at: int) -> Numbers:
    """The big-endian int64 at a place of each key, counted from its end when negative; -1 for nulls.

    Every key that is not null must be long enough (:meth:`RowFormat.check` sees to that).
    """
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
    # Every 8 bytes of the data seen as a number: reading at any place, aligned or not.
    words = np.lib.stride_tricks.as_strided(data, (len(data) - 7, 8), (1, 1))
    return words[places].reshape(-1).view(">i8").astype(np.int64)
