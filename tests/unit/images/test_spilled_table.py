"""Keys that memory has no room for: any records, in any order, are those of a dict; memory and disk are bounded."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from statecore.images.chunks import chunks_of, columns_of
from statecore.images.key_table import KeyTable
from statecore.images.spilled_table import SpilledTable
from tests.unit.images.test_packed_records import Row, columns, rows_of


class Grown:
    """A table under a small budget that is fed until much of it lies on disk."""

    def __init__(self, path: Path, budget: int) -> None:
        self.spilled = SpilledTable(path, budget, lambda: KeyTable(timestamps=True))
        self.table = KeyTable(timestamps=True)
        self.last: dict[bytes, Row] = {}
        self.largest = self.largest_file = 0

    def add(self, rows: list[Row]) -> None:
        self.table.add(*self.spilled.add(columns(rows)))
        if self.table.bytes > self.spilled.room:
            self.table.shrink()
            self.table = self.spilled.take(self.table)
        self.last |= {row[0]: row for row in rows}
        self.largest = max(self.largest, self.table.bytes + self.spilled.memory)
        self.largest_file = max(self.largest_file, self.spilled.file_bytes)

    def found(self) -> list[Row]:
        every = []
        for table in (self.table, *self.spilled.tables()):
            ids = table.in_key_order(table.survivors(tombstones=True))
            every += [row for chunk in chunks_of(table, ids) for row in rows_of(columns_of(chunk))]
        self.spilled.close()
        return every


@pytest.mark.parametrize("keys", [12_000, 60_000])
def test_memory_follows_the_budget_and_the_file_what_is_wanted_of_it(tmp_path: Path, keys: int) -> None:
    chance, budget = Random(keys), 2 << 20
    grown = Grown(tmp_path, budget)
    for _ in range(120):
        grown.add([(b"%08d" % chance.randrange(keys), chance.randbytes(100), 7) for _ in range(1000)])
    assert grown.largest < budget
    wanted = sum(len(key) + len(value or b"") + 16 for key, value, _ in grown.last.values())
    assert wanted < grown.largest_file < 3.5 * wanted + budget
    assert grown.found() == [grown.last[key] for key in sorted(grown.last)]


@pytest.mark.parametrize("order", ["ascending", "descending", "one after the other"])
def test_keys_that_come_in_an_order_are_all_there(tmp_path: Path, order: str) -> None:
    grown = Grown(tmp_path, 1 << 18)
    numbers = list(range(20_000))
    if order == "descending":
        numbers.reverse()
    if order == "one after the other":  # from both ends at once
        numbers = [number // 2 if number % 2 else 20_000 - number // 2 for number in numbers]
    for first in range(0, len(numbers), 500):
        grown.add([(b"key-%08d" % number, b"v%d" % number, number) for number in numbers[first : first + 500]])
    assert grown.found() == [grown.last[key] for key in sorted(grown.last)]


def test_one_key_whose_values_are_larger_than_the_budget_is_kept(tmp_path: Path) -> None:
    grown = Grown(tmp_path, 1 << 18)
    for number in range(10):
        grown.add([(b"a", b"%d" % number * (1 << 19), number), (b"b" * 100_000, None, number)])
    assert grown.found() == [grown.last[key] for key in sorted(grown.last)]


def test_keys_that_descend_take_no_more_memory_than_others(tmp_path: Path) -> None:
    grown = Grown(tmp_path, 2 << 20)
    for first in range(100_000, 0, -1000):
        grown.add([(b"%08d" % number, b"v" * 100, 7) for number in range(first, first - 1000, -1)])
    assert grown.largest < 2 << 20
    assert grown.found() == [grown.last[key] for key in sorted(grown.last)]


def test_a_range_that_much_is_added_to_at_once_is_divided_into_as_many_as_it_takes(tmp_path: Path) -> None:
    grown = Grown(tmp_path, 2 << 20)
    for first in range(0, 200_000, 8000):  # a batch is half the budget
        grown.add([(b"%08d" % number, b"v" * 100, 7) for number in range(first, first + 8000)])
    assert max(one.written for one in grown.spilled._spill.ranges) < 1.5 * (2 << 20) / 8
    assert grown.found() == [grown.last[key] for key in sorted(grown.last)]
