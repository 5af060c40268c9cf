"""Amounts of memory, as people and programs write them."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statecore.spec.units import SIZE_PATTERN, format_size, parse_size


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("65536", 65536),
        ("512m", 512 << 20),
        ("512M", 512 << 20),
        ("512MiB", 512 << 20),
        ("512Mi", 512 << 20),
        ("64mb", 64 << 20),
        ("2g", 2 << 30),
        ("2GiB", 2 << 30),
        ("8KB", 8 << 10),
    ],
)
def test_a_unit_is_a_letter_or_its_name(text: str, size: int) -> None:
    assert parse_size(text) == size
    assert re.search(SIZE_PATTERN, text)


@pytest.mark.parametrize("text", ["", "0", "-1", "m", "5t", "1.5g", "512 m", "512b", "512i", "512bm", "1mm", "5m\n"])
def test_anything_else_is_none(text: str) -> None:
    assert parse_size(text) is None


@given(st.integers(1, 1 << 50))
def test_valid_values_are_read(size: int) -> None:
    assert parse_size(format_size(size)) == size
