"""How messages print counts, offsets and lists."""

from __future__ import annotations

import pytest

from statecore.words import format_bytes, known_number, number_of, offset_list, shortened_list


def test_counts_have_separators_and_offsets_have_none() -> None:
    assert [number_of(1, "task"), number_of(1234, "task")] == ["1 task", "1,234 tasks"]
    assert [known_number(1234567), known_number(0), known_number(None)] == ["1,234,567", "0", "unknown"]
    assert offset_list([1234567]) == "1234567"


@pytest.mark.parametrize(
    ("offsets", "text"), [([], ""), ([5, -4], "5, unknown"), ([1000, 2, 3, 4, 5], "1000, 2, 3, 4, ...")]
)
def test_few_offsets_are_listed(offsets: list[int], text: str) -> None:
    assert offset_list(offsets) == text


def test_a_long_list_ends_with_the_number_of_the_others() -> None:
    assert shortened_list(["a", "b", "c"], 2) == "a, b and 1 more"


def test_a_size_has_its_largest_unit_and_no_fraction() -> None:
    assert [format_bytes(count) for count in (0, 1023, 1024, 5 << 29, 3 << 60)] == [
        "0 B",
        "1023 B",
        "1 KiB",
        "2 GiB",
        "3072 PiB",
    ]
