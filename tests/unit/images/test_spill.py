"""Records on disk lie in the range of their key."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statecore.images.packed_records import unpacked
from statecore.images.spill import Spill
from tests.unit.images.test_packed_records import KEYS, ROWS, Row, columns, rows_of


@settings(max_examples=40, deadline=None)
@given(
    st.lists(ROWS, max_size=6), st.lists(KEYS, min_size=1, max_size=6, unique=True), st.sampled_from([32, 100, 4096])
)
def test_records_lie_in_the_range_of_their_key_in_the_order_they_came(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[Row]], firsts: list[bytes], block: int
) -> None:
    firsts = sorted(firsts)
    made = Spill(tmp_path_factory.mktemp("spill"), block)
    made.divide(0, firsts[len(firsts) // 2 :])
    made.divide(0, firsts[: len(firsts) // 2])
    below: list[Row] = []
    for batch in batches:
        below += rows_of(made.add(columns(batch)))
    every = [row for batch in batches for row in batch]
    assert below == [row for row in every if row[0] < firsts[0]]
    for number, first in enumerate(firsts):
        end = firsts[number + 1] if number + 1 < len(firsts) else None
        found = [row for part in unpacked(made.take(number)) for row in rows_of(part)]
        assert found == [row for row in every if row[0] >= first and (end is None or row[0] < end)]
        assert not len(made.take(number))
    made.close()
