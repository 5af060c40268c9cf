"""Rows are cut into chunks where they alone say, however they come."""

from __future__ import annotations

from itertools import chain

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from statecore.images.chunks import EvenChunks, columns_of
from statecore.images.key_table import Chunk
from tests.unit.images.test_row_batches import Row, rows_of

SIZES = st.lists(st.tuples(st.integers(0, 12), st.one_of(st.none(), st.integers(0, 30))), max_size=40)


def chunk(rows: list[Row]) -> Chunk:
    keys, values = [row[0] for row in rows], [row[1] or b"" for row in rows]
    ends = [np.cumsum([0, *map(len, items)]).astype(np.int64) for items in (keys, values)]
    data = [np.frombuffer(b"".join(items), np.uint8) for items in (keys, values)]
    valid = np.array([row[1] is not None for row in rows], np.uint8)
    return Chunk(ends[0], data[0], ends[1], data[1], valid, np.array([row[2] for row in rows], np.int64))


def expected(rows: list[Row]) -> list[list[Row]]:
    """One row after the other, at most three and 20 bytes of keys and of values at once."""
    found: list[list[Row]] = []
    for row in rows:
        last = [*found[-1], row] if found else []
        sizes = [sum(len(one[part] or b"") for one in last) for part in (0, 1)]  # type: ignore[arg-type]
        if 0 < len(last) <= 3 and max(sizes) <= 20:
            found[-1].append(row)
        else:
            found.append([row])
    return found


@settings(deadline=None)
@given(SIZES, st.lists(st.integers(1, 7), min_size=1))
def test_chunks_do_not_depend_on_the_batches_of_the_input(
    sizes: list[tuple[int, int | None]], at_once: list[int]
) -> None:
    rows: list[Row] = [
        (bytes([number]) * key, None if value is None else bytes([number]) * value, number)
        for number, (key, value) in enumerate(sizes)
    ]
    given_chunks, left = [], rows
    for size in chain(at_once, [len(rows)]):
        if left:
            given_chunks.append(chunk(left[:size]))
            left = left[size:]
    even = EvenChunks(rows=3, bytes_each=20)
    made = [part for given_chunk in given_chunks for part in even.add(given_chunk)]
    made += even.rest()
    assert [rows_of(columns_of(part)) for part in made] == expected(rows)
    assert list(even.rest()) == []
