"""Records on disk lie in the range of their key."""

from __future__ import annotations

from bisect import bisect_right
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statecore.images.row_batches import packed_row, unpacked, whole_records
from statecore.images.spill import Spill
from tests.unit.images.test_row_batches import KEYS, ROWS, Row, columns, rows_of


def of(rows: list[Row], firsts: list[bytes]) -> list[list[Row]]:
    """The rows of each range."""
    bounds = [b"", *firsts]
    found: list[list[Row]] = [[] for _ in bounds]
    for row in rows:
        found[bisect_right(bounds, row[0]) - 1].append(row)
    return found


def taken(made: Spill, number: int) -> list[Row]:
    return [row for part in unpacked(made.take(number)) for row in rows_of(part)]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(ROWS, max_size=6), st.lists(KEYS, min_size=1, max_size=6, unique=True), st.sampled_from([32, 100, 4096])
)
def test_records_lie_in_the_range_of_their_key_in_the_order_they_came(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[Row]], keys: list[bytes], block: int
) -> None:
    firsts = sorted(set(keys) - {b""})
    made = Spill(tmp_path_factory.mktemp("spill"), block)
    half = len(batches) // 2
    for batch in batches[:half]:
        made.add(columns(batch))
    made.divide(0, firsts[::2])  # what has come already is divided, too
    for batch in batches[half:]:
        made.add(columns(batch))
    for number in reversed(range(len(firsts[::2]))):
        made.divide(number + 1, firsts[2 * number + 1 : 2 * number + 2])
    every = [row for batch in batches for row in batch]
    assert [one.first for one in made.ranges] == [b"", *firsts]
    wanted = of(every, firsts)
    for number in range(len(firsts), 0, -1):
        assert taken(made, number) == wanted[number]
        assert not taken(made, number)
        made.remove(number, 1)
    assert taken(made, 0) == wanted[0]
    made.close()


@settings(max_examples=40, deadline=None)
@given(ROWS, st.sampled_from([32, 100, 4096]), st.integers(1, 5000))
def test_a_range_that_is_squeezed_has_the_last_writes_of_each_piece(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Row], block: int, size: int
) -> None:
    made = Spill(tmp_path_factory.mktemp("spill"), block)
    made.add(columns(rows))
    made.squeeze(0, size)
    found = taken(made, 0)
    assert {row[0]: row for row in found} == {row[0]: row for row in rows}
    places = iter(rows)
    assert all(row in places for row in found), "some of them, in their order"
    made.add(columns([rows[0]] * 50 if rows else []))
    made.squeeze(0, 1 << 20)
    assert len(left := taken(made, 0)) <= 2, "of its blocks, and of its buffer"
    assert set(left) == set(rows[:1])
    made.close()


@settings(max_examples=40, deadline=None)
@given(ROWS, ROWS, KEYS.filter(bool), st.sampled_from([32, 100, 4096]))
def test_the_records_of_a_range_that_ends_are_behind_those_of_another(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Row], more: list[Row], first: bytes, block: int
) -> None:
    made = Spill(tmp_path_factory.mktemp("spill"), block)
    made.divide(0, [first])
    made.add(columns(rows))
    made.move(1, 0)
    made.remove(1, 1)
    made.add(columns(more))
    assert taken(made, 0) == [row for part in of(rows, [first]) for row in part] + more
    made.close()


def test_the_disk_has_room_back_as_ranges_end(tmp_path: Path) -> None:
    def held() -> int:
        return sum(file.size for file in made._files if file._finalizer.alive)

    made = Spill(tmp_path, 4096)
    made.divide(0, [b"%04d" % number for number in range(500, 10_000, 500)])
    made.add(columns([(b"%04d" % (number % 10_000), b"v" * 200, 1) for number in range(20_000)]))
    whole = held()
    assert whole > 3 << 20
    for _ in range(10):
        made.take(0)
        made.remove(0, 1)
    assert held() < 0.7 * whole
    made.close()


def test_a_large_record_is_collected_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its bytes are looked at when it is whole, not again for each piece that is read of it."""
    made, looked = Spill(tmp_path, 32), []
    rows: list[Row] = [(b"a", b"small", 1), (b"b", bytes(100_000), 2), (b"c", b"small", 3)]
    for row in rows:
        made.add(columns([row]))

    def counted(data: npt.NDArray[np.uint8]) -> int:
        looked.append(len(data))
        return whole_records(data)

    monkeypatch.setattr("statecore.images.spill.whole_records", counted)
    made.squeeze(0, 320)
    assert taken(made, 0) == rows
    assert sum(looked) < 2 * 100_000
    made.close()


def test_a_range_takes_packed_records_whatever_its_buffer_holds(tmp_path: Path) -> None:
    rows: list[Row] = [(b"%d" % size, bytes(size), size) for size in (1, 40, 3, 70, 200, 5)]
    for first in range(len(rows) + 1):
        made = Spill(tmp_path, 64)
        for row in rows[:first]:
            made.add(columns([row]))
        for row in rows[first:]:
            made.put(0, packed_row(columns([row]), 0))
        assert taken(made, 0) == rows
        made.close()
