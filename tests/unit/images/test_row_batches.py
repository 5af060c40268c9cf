"""Packed records are what they were when they are unpacked, and the last of each key is found."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from statecore.images.key_table import Columns
from statecore.images.row_batches import last_writes, packed_row, record_bytes, unpacked, whole_records

Row = tuple[bytes, bytes | None, int]
KEYS = st.one_of(st.binary(max_size=3), st.integers(0, 300).map(lambda number: b"common-prefix-%04d" % number))
VALUES = st.one_of(st.none(), st.binary(max_size=20), st.integers(1, 3000).map(lambda size: b"v" * size))
ROWS = st.lists(st.tuples(KEYS, VALUES, st.integers(-(1 << 63), (1 << 63) - 1)), max_size=80)


def columns(rows: list[Row]) -> Columns:
    keys, values, stamps = zip(*rows, strict=True) if rows else ((), (), ())
    return Columns(pa.array(keys, pa.binary()), pa.array(values, pa.binary()), pa.array(stamps, pa.int64()))


def rows_of(made: Columns) -> list[Row]:
    return list(zip(*(column.to_pylist() for column in made), strict=True))


def packed(rows: list[Row]) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    whole = columns(rows)
    return np.concatenate([np.empty(0, np.uint8), *(packed_row(whole, number) for number in range(len(rows)))])


@settings(deadline=None)
@given(ROWS)
def test_packed_records_are_unpacked_as_they_were(rows: list[Row]) -> None:
    assert [row for made in unpacked(packed(rows)) for row in rows_of(made)] == rows


@settings(deadline=None)
@given(ROWS)
def test_the_last_writes_of_packed_records_are_those_of_a_dict(rows: list[Row]) -> None:
    last = {key: (key, value, stamp) for key, value, stamp in rows}
    found = [row for made in unpacked(last_writes(packed(rows))) for row in rows_of(made)]
    assert {key: (key, value, stamp) for key, value, stamp in found} == last
    assert len(found) == len(last)
    places = [max(number for number, row in enumerate(rows) if row[0] == key) for key, _, _ in found]
    assert places == sorted(places)


@settings(deadline=None)
@given(ROWS, st.integers(0, 60))
def test_a_truncated_record_is_incomplete(rows: list[Row], missing: int) -> None:
    data = packed(rows)
    ends = np.cumsum([0, *(len(packed([row])) for row in rows)])
    assert whole_records(data[: max(0, len(data) - missing)]) == max(
        end for end in ends if end <= max(0, len(data) - missing)
    )
    assert [record_bytes(data[end:]) for end in ends[:-1]] == np.diff(ends).tolist()
