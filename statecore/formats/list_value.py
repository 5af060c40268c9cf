"""Rows of the list stores behind left and outer stream-stream joins: values without a join partner so far.

Key (``TimestampedKeyAndJoinSideSerializer``) and value (``ListSerializer`` over ``LeftOrRightValueSerializer``), the
same in the changelog and in the store, all numbers big-endian::

    key     ┌───────────────────────┬─────────────────────────┬────────────────┐
            │ timestamp, int64 ms   │ side: 01 left, 00 right │ key            │
            └───────────────────────┴─────────────────────────┴────────────────┘
    value   ┌────┬────────────────┬───────────────────────────────────────────────────────────────────────┐
            │ 01 │ count, int32   │ per element: length, int32 (-1 for a null); side, one byte; value     │
            └────┴────────────────┴───────────────────────────────────────────────────────────────────────┘

    000001a1fd5664e0 01 6b30   ->   01 00000001 00000003 01 7630

Every record carries the whole list. The first byte says that elements have their own lengths. The store's format does
not depend on ``dsl.store.format``: Kafka Streams 4.3.1 keeps it plain (``OuterStreamJoinStoreFactory``; a variant with
headers is planned for 4.4). Decoding returns a row for each element, as the store's iterators do, and its value without
the side byte.
"""

from __future__ import annotations

import statecore.extras.pipeline

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from statecore.formats.columns import (
    Mask,
    bytes_at,
    cut,
    first_misfit,
    first_of,
    int64_array,
    numbers,
    require,
    require_length,
    slices,
    with_nulls,
)
from statecore.formats.kinds import StoreKind
from statecore.formats.row_format import (
    Bytes,
    Misfit,
    Numbers,
    Records,
    RowFormat,
    binary_parts,
    int64_at,
    key_lengths,
    valid_mask,
)
from statecore.formats.rows.lists import KEY_BYTES, VARIABLE_SIZE, parse_list

_SIDE_AT = 8


class ListFormat(RowFormat):
    """Rows of list stores, which have no segments."""

    def check(self, records: Records) -> Misfit | None:
        return first_misfit(super().check(records), _misfit_of_keys(records.keys), _misfit_of_lists(records.values))

    def decode(self, keys: pa.Array, values: pa.Array) -> pa.RecordBatch:
        require_length(self.kind, keys, KEY_BYTES, "key")
        sides = bytes_at(keys, _SIDE_AT, 1)[:, 0]
        require(self.kind, (sides > 1) | (int64_at(keys, 0) < 0), "has a key without a side or with a negative time")
        broken = np.zeros(len(values), bool)
        parts = list(_rounds(values, broken))
        require(self.kind, broken, "has a value that is not a list of a join's values")
        columns = [np.concatenate(column) for column in zip(*parts, strict=True)] or [np.empty(0, np.int64)] * 3
        order = np.argsort(columns[0], kind="stable")
        rows, places, lengths = (column[order] for column in columns)
        elements = slices(binary_parts(values)[1], places + (lengths > 0), places + np.maximum(lengths, 0))
        names = pa.array(["right", "left"]).take(int64_array(sides[rows].astype(np.int64)))
        result = {
            "key": cut(keys, front=KEY_BYTES).take(int64_array(rows)),
            "side": names,
            "timestamp": int64_array(int64_at(keys, 0)[rows]),
            "value": with_nulls(elements, lengths < 0),
        }
        return pa.RecordBatch.from_arrays(list(result.values()), list(result))


class _Round(NamedTuple):
    """One element of each row: position and length with its side byte; a length below 0 is a null."""

    rows: Numbers
    places: Numbers
    lengths: Numbers


def _misfit_of_keys(keys: pa.Array) -> Misfit | None:
    lengths = key_lengths(keys)
    short = lengths < KEY_BYTES
    present = valid_mask(keys)
    row = first_of(short & present)
    if row is not None:
        return Misfit(row, f"has a key of {lengths[row]} bytes; keys of a join's list have at least {KEY_BYTES}")
    sides = bytes_at(keys, _SIDE_AT, 1)[:, 0]
    times = int64_at(keys, 0)
    row = first_of((sides > 1) | (times < 0) & present)
    if row is None:
        return None
    if sides[row] > 1:
        return Misfit(row, f"has a key whose ninth byte, the side of the join, is {sides[row]:02x}")
    return Misfit(row, f"has a key with the negative time {times[row]}")


def _misfit_of_lists(values: pa.Array) -> Misfit | None:
    broken = np.zeros(len(values), bool)
    for _ in _rounds(values, broken):
        pass
    row = first_of(broken)
    return None if row is None else Misfit(row, f"has a value that {_explained(values[row].as_py())}")


def _rounds(values: pa.Array, broken: Mask) -> Iterator[_Round]:
    """Yield every list's first element, then every list's second, …; malformed lists are marked in ``broken``."""
    offsets, data = binary_parts(values)
    present = valid_mask(values)
    places, ends = offsets[:-1], offsets[1:]
    strategies, _ = numbers(data, places, ends, 1)
    counts, whole = numbers(data, places + 1, ends, 4)
    whole &= (strategies == VARIABLE_SIZE) & (counts >= 0) & ((counts > 0) | (ends - places == 5))
    broken |= present & ~whole
    rows = np.flatnonzero(present & whole & (counts > 0))
    left, places, ends = counts[rows], places[rows] + 5, ends[rows]
    while len(rows):
        lengths, fits = numbers(data, places, ends, 4)
        places = places + 4
        following = places + np.maximum(lengths, 0)
        left -= 1
        fits &= (lengths >= -1) & (lengths != 0) & (following <= ends) & ((left > 0) | (following == ends))
        fits &= (lengths < 0) | (_bytes(data, places) <= 1)
        broken[rows] = ~fits
        yield _Round(rows[fits], places[fits], lengths[fits])
        more = fits & (left > 0)
        rows, left, places, ends = rows[more], left[more], following[more], ends[more]


def _bytes(data: Bytes, places: Numbers) -> Bytes:
    return np.take(data, places, mode="clip") if len(data) else np.zeros(len(places), np.uint8)


def _explained(value: bytes) -> str:
    """Description of what is malformed in a list."""
    try:
        parse_list(value)
    except ValueError as error:
        return str(error)
    raise AssertionError(f"columnar and plain reading of lists disagree on {value.hex()}")


FORMATS: dict[StoreKind, type[RowFormat]] = {StoreKind.LIST: ListFormat}
