"""Packed records are what they were when they are unpacked, and the last of each key is found."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from statecore.images.key_table import Columns
from statecore.images.packed_records import divided, last_writes, packed_row, sampled_keys, unpacked

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
@given(ROWS, KEYS)
def test_packed_records_are_divided_at_a_key_and_stay_in_their_order(rows: list[Row], first: bytes) -> None:
    parts = divided(packed(rows), first)
    below, above = ([row for made in unpacked(part) for row in rows_of(made)] for part in parts)
    assert below == [row for row in rows if row[0] < first]
    assert above == [row for row in rows if row[0] >= first]


@settings(deadline=None)
@given(ROWS, st.integers(1, 100))
def test_keys_are_sampled_from_all_over(rows: list[Row], count: int) -> None:
    found = sampled_keys(packed(rows), count)
    assert len(found) <= count + 1
    assert found[:1] == [row[0] for row in rows][:1]
    places = iter(row[0] for row in rows)
    assert all(key in places for key in found), "in their order"
    if count == 100 and rows and max(len(key) + len(value or b"") for key, value, _ in rows) < 50:
        assert len(found) >= min(len(rows), count) // 4
