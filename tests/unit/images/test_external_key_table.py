"""Keys that memory has no room for: any records, in any order, are those of a dict; memory and disk are bounded."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from statecore.images.chunks import chunks_of, columns_of
from statecore.images.external_key_table import ExternalKeyTable
from statecore.images.key_table import Columns, KeyTable
from tests.harness.case_selection import one_of
from tests.unit.images.test_row_batches import Row, columns, rows_of


class Grown:
    """A table under a small budget that is fed until it is on disk."""

    def __init__(self, path: Path, budget: int, rows: list[Row]) -> None:
        table = KeyTable(timestamps=True)
        table.add(*columns(rows))
        self.spilled = ExternalKeyTable(path, budget, table, lambda: KeyTable(timestamps=True))
        self.last = {row[0]: row for row in rows}
        self.largest = self.largest_file = 0

    def add(self, rows: list[Row]) -> None:
        self.spilled.add(columns(rows))
        self.last |= {row[0]: row for row in rows}
        self.largest = max(self.largest, self.spilled._spill.memory)
        self.largest_file = max(self.largest_file, self.spilled._spill.file_bytes)

    def found(self) -> list[Row]:
        every = []
        for table in self.spilled.tables():
            self.largest = max(self.largest, self.spilled._spill.memory + table.bytes)
            ids = table.in_key_order(table.survivors(tombstones=True))
            every += [row for chunk in chunks_of(table, ids) for row in rows_of(columns_of(chunk))]
        self.spilled.close()
        return every

    def wanted(self) -> list[Row]:
        return [self.last[key] for key in sorted(self.last)]


@pytest.mark.parametrize("keys", one_of([12_000, 60_000]))
def test_memory_follows_the_budget_and_the_files_what_is_wanted_of_them(tmp_path: Path, keys: int) -> None:
    chance, budget = Random(keys), 2 << 20
    batches = [[(b"%08d" % chance.randrange(keys), chance.randbytes(100), 7) for _ in range(1000)] for _ in range(200)]
    grown = Grown(tmp_path, budget, batches[0])
    for batch in batches[1:]:
        grown.add(batch)
    wanted = sum(len(key) + len(value or b"") + 16 for key, value, _ in grown.last.values())
    assert wanted < grown.largest_file < 3.5 * wanted + budget
    assert grown.found() == grown.wanted()
    assert grown.largest < budget


@pytest.mark.parametrize("order", ["ascending", "descending", "one after the other"])
def test_keys_that_come_in_an_order_take_no_more_memory_than_others(tmp_path: Path, order: str) -> None:
    numbers = list(range(100_000))
    if order == "descending":
        numbers.reverse()
    if order == "one after the other":  # from both ends at once
        numbers = [number // 2 if number % 2 else 100_000 - number // 2 for number in numbers]
    batches = [
        [(b"key-%08d" % number, b"v" * 100, number) for number in numbers[first : first + 1000]]
        for first in range(0, len(numbers), 1000)
    ]
    grown = Grown(tmp_path, 2 << 20, batches[0])
    for batch in batches[1:]:
        grown.add(batch)
    assert grown.found() == grown.wanted()
    assert grown.largest < 2 << 20


@pytest.mark.parametrize("hot", [[b"key-00000100"], [b"a", b"z"]])
def test_many_records_of_one_key_among_others_take_no_more_memory_than_others(tmp_path: Path, hot: list[bytes]) -> None:
    chance = Random(1)
    grown = Grown(tmp_path, 1 << 20, [(b"key-%08d" % number, b"v" * 100, number) for number in range(500)])
    for turn in range(100):
        some = [(b"key-%08d" % chance.randrange(30_000), b"v" * 50, turn) for _ in range(100)]
        grown.add([*some, *((chance.choice(hot), b"%0200d" % chance.randrange(9), turn) for _ in range(400))])
    assert grown.found() == grown.wanted()
    assert grown.largest < 1 << 20


def test_one_key_whose_values_are_larger_than_the_budget_is_kept(tmp_path: Path) -> None:
    grown = Grown(tmp_path, 1 << 18, [(b"c", b"c", 1)])
    for number in range(10):
        grown.add([(b"a", b"%d" % number * (1 << 19), number), (b"b" * 100_000, None, number)])
    assert grown.found() == grown.wanted()


def test_long_keys_are_not_kept_to_tell_where_ranges_begin(tmp_path: Path) -> None:
    rows: list[Row] = [(b"%06d" % number * 500, b"v", number) for number in range(2000)]
    grown = Grown(tmp_path, 1 << 20, rows[:100])
    for first in range(100, 2000, 100):
        grown.add(rows[first : first + 100])
    assert sum(map(len, grown.spilled._sample)) < (1 << 20) / 16
    assert grown.found() == grown.wanted()


def test_records_without_a_key_are_left_out(tmp_path: Path) -> None:
    grown = Grown(tmp_path, 1 << 18, [(b"c", b"c", 1)])
    with_null = Columns(pa.array([None, b"a"], pa.binary()), pa.array([b"x", b"y"], pa.binary()), pa.array([1, 2]))
    grown.spilled.add(with_null)
    assert grown.found() == [(b"a", b"y", 2), (b"c", b"c", 1)]
