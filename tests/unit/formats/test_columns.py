import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statecore.formats.columns import (
    bytes_at,
    cut,
    first_misfit,
    fixed,
    int64_array,
    join,
    numbers,
    require_length,
    slices,
    varints,
    with_nulls,
)
from statecore.formats.kinds import StoreKind
from statecore.formats.row_format import Misfit, int64_at, key_lengths, valid_mask
from tests.unit.formats.arrays import SHAPES, Shape, column, int64

ELEMENTS = st.lists(st.one_of(st.none(), st.binary(min_size=9, max_size=20)), max_size=20)


@settings(deadline=None)
@given(ELEMENTS, SHAPES, st.integers(0, 4), st.integers(0, 5))
def test_elements_are_split_read_and_joined(values: list[bytes | None], shape: Shape, front: int, back: int) -> None:
    # The padding is shorter than what is cut: what is outside the slice must not be looked at.
    array = column(values, shape, padding=b"")
    trimmed = cut(array, front, back)
    trimmed.validate(full=True)
    assert trimmed.to_pylist() == [None if value is None else value[front : len(value) - back] for value in values]
    assert bytes_at(array, front, 3).tolist() == [
        [0, 0, 0] if value is None else list(value[front : front + 3]) for value in values
    ]
    assert bytes_at(array, -back - 3, 3).tolist() == [
        [0, 0, 0] if value is None else list(value[len(value) - back - 3 : len(value) - back]) for value in values
    ]
    assert int64_at(array, -9).tolist() == [
        -1 if value is None else int.from_bytes(value[-9:-1], "big", signed=True) for value in values
    ]
    joined = join(array, fixed(bytes_at(array, 0, 2)), trimmed)
    joined.validate(full=True)
    assert joined.to_pylist() == [
        None if value is None else value + value[:2] + value[front : len(value) - back] for value in values
    ]
    assert key_lengths(array).tolist() == [0 if value is None else len(value) for value in values]
    assert valid_mask(array).tolist() == [value is not None for value in values]


def test_a_null_may_have_bytes_of_its_own() -> None:
    # Arrow says nothing of the bytes of a null; some producers leave what was there.
    offsets, data = np.array([0, 3, 12], np.int32), b"abc" + int64(7) + b"x"
    array = pa.Array.from_buffers(pa.binary(), 2, [pa.py_buffer(b"\2"), pa.py_buffer(offsets), pa.py_buffer(data)])
    assert array.to_pylist() == [None, int64(7) + b"x"]
    assert int64_at(array, 0).tolist() == [-1, 7]
    assert key_lengths(array).tolist() == [0, 9]
    assert cut(array, front=8).to_pylist() == [None, b"x"]
    require_length(StoreKind.WINDOW, array, 9, "key")


def test_pieces_of_no_bytes_are_pieces() -> None:
    data = np.frombuffer(b"abcdef", np.uint8)
    places = [np.array([0, 2, 2, 6]), np.array([0, 2, 5, 6])]
    assert slices(data, *places).to_pylist() == [b"", b"", b"cde", b""]
    assert slices(data, np.empty(0, np.int64), np.empty(0, np.int64)).to_pylist() == []
    assert with_nulls(slices(data, *places), np.array([True, False, False, True])).to_pylist() == [
        None,
        b"",
        b"cde",
        None,
    ]


@pytest.mark.parametrize("width", [1, 2, 4, 8])
def test_a_number_needs_room_before_the_rows_end(width: int) -> None:
    data = np.frombuffer(bytes(range(200, 220)), np.uint8)
    places, ends = np.array([0, 5, 19, 20, -1]), np.array([width, 5 + width - 1, 20, 20, 20])
    found, whole = numbers(data, places, ends, width)
    assert whole.tolist() == [True, False, width == 1, False, False]
    assert found[0] == int.from_bytes(bytes(range(200, 200 + width)), "big", signed=True)
    assert found[1] == -1


def test_a_varint_ends_in_its_row_and_has_five_bytes_at_most() -> None:
    data = np.frombuffer(bytes.fromhex("8101 01 808080808000 80"), np.uint8)
    read = varints(data, np.array([0, 0, 2, 3, 9]), np.array([2, 1, 3, 9, 10]))
    assert read.whole.tolist() == [True, False, True, False, False]
    assert read.values[[0, 2]].tolist() == [-65, -1]
    assert read.places[[0, 2]].tolist() == [2, 3]


def test_the_first_misfit_is_that_of_the_first_row() -> None:
    assert first_misfit(None, Misfit(3, "b"), None, Misfit(2, "a")) == (2, "a")
    assert first_misfit(None, None) is None


def test_numbers_with_nulls() -> None:
    assert int64_array(np.array([1, 2]), np.array([False, True])).to_pylist() == [1, None]
