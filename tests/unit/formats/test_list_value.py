import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from statecore.errors import Corrupted
from statecore.formats.kinds import StoreKind
from statecore.formats.registry import row_format
from tests.unit.formats.arrays import KEYS, SHAPES, TIMES, Shape, column, int32, int64, records, rows_of

ELEMENTS = st.lists(st.one_of(st.none(), st.binary(max_size=6)), max_size=5)
LISTS = st.lists(st.tuples(KEYS, TIMES, st.booleans(), st.one_of(st.none(), ELEMENTS)), max_size=12)
FORM = row_format(StoreKind.LIST)
KEY = int64(5) + b"\1k"

Row = tuple[bytes, int, bool, list[bytes | None] | None]


def list_key(key: bytes, time: int, left: bool) -> bytes:
    return int64(time) + bytes([left]) + key


def list_value(elements: list[bytes | None], left: bool) -> bytes:
    """A list as ``ListSerializer`` writes it."""
    parts = [b"\1", int32(len(elements))]
    for element in elements:
        parts.append(int32(-1) if element is None else int32(1 + len(element)) + bytes([left]) + element)
    return b"".join(parts)


def readable(value: bytes) -> bool:
    """Whether this is a list of a join's values, and nothing behind it."""
    if len(value) < 5 or value[0] != 1:
        return False
    count, place = int.from_bytes(value[1:5], "big", signed=True), 5
    for _ in range(count):
        length = int.from_bytes(value[place : place + 4], "big", signed=True)
        place += 4
        if place > len(value) or length < -1 or length == 0 or length > len(value) - place:
            return False
        if length > 0 and value[place] > 1:
            return False
        place += max(length, 0)
    return count >= 0 and place == len(value)


def test_a_row_has_the_bytes_kafka_streams_wrote() -> None:
    key, value = bytes.fromhex("000001a1fd5664e0 01 6b30"), bytes.fromhex("01 00000001 00000003 01 7630")
    assert (list_key(b"k0", 0x000001A1FD5664E0, True), list_value([b"v0"], True)) == (key, value)
    assert FORM.check(records([key], [value])) is None
    read = FORM.decode(column([key]), column([value]))
    assert read.schema.names == ["key", "side", "timestamp", "value"]
    assert rows_of(read) == [(b"k0", "left", 0x000001A1FD5664E0, b"v0")]


@settings(deadline=None)
@given(LISTS, SHAPES)
def test_a_list_becomes_a_row_for_each_of_its_values(rows: list[Row], shape: Shape) -> None:
    keys = [list_key(*row[:3]) for row in rows]
    values = [None if row[3] is None else list_value(row[3], row[2]) for row in rows]
    batch = records(keys, values, shape=shape)
    assert FORM.check(batch) is None
    assert FORM.row_keys(batch.keys).to_pylist() == keys
    assert FORM.row_values(batch).to_pylist() == values
    stored = [(key, value) for key, value in zip(keys, values, strict=True) if value is not None]
    read = FORM.decode(column([key for key, _ in stored], shape), column([value for _, value in stored], shape))
    assert rows_of(read) == [
        (key, "left" if left else "right", time, element)
        for key, time, left, elements in rows
        for element in elements or []
    ]


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(ELEMENTS, st.booleans()), min_size=1, max_size=4), st.data(), SHAPES)
def test_the_first_value_that_is_no_list_is_found(
    rows: list[tuple[list[bytes | None], bool]], data: st.DataObject, shape: Shape
) -> None:
    values = [list_value(*row) for row in rows]
    row = data.draw(st.integers(0, len(values) - 1))
    at = data.draw(st.integers(0, len(values[row]) - 1))
    byte = bytes([data.draw(st.integers(0, 255))])
    broken = data.draw(
        st.sampled_from([values[row][:at], values[row][:at] + byte + values[row][at + 1 :], values[row] + byte])
    )
    assume(not readable(broken))
    lists = [*values[:row], broken, *values[row:]]
    misfit = FORM.check(records([KEY] * len(lists), lists, shape=shape))
    assert misfit is not None
    assert (misfit.row, misfit.why[:12]) == (row, "has a value ")
    with pytest.raises(Corrupted, match=f"Row {row} "):
        FORM.decode(column([KEY] * len(lists), shape), column(lists, shape))


@settings(deadline=None)
@given(st.one_of(st.binary(max_size=20), st.binary(max_size=20).map(lambda rest: b"\1\0\0\0" + rest)))
def test_list_checks_agree_on_any_bytes(value: bytes) -> None:
    assert (FORM.check(records([KEY], [value])) is None) == readable(value)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("01000000", "has 4 bytes; a list has at least 5"),
        ("0000000000", "begins with 00; a list begins with 01"),
        ("01ffffffff", "is a list of -1 elements"),
        ("0100000001", "is a list of 1 elements that ends within element 0"),
        ("010000000200000002017600000003", "is a list of 2 elements that ends within element 1"),
        ("010000000100000000", "is a list whose element 0 has 0 bytes"),
        ("0100000001fffffffe", "is a list whose element 0 has -2 bytes"),
        ("01000000010000000102", "is a list whose element 0 begins with 02, which is not a side of a join"),
        ("010000000000", "is a list with 1 bytes after it"),
    ],
)
def test_an_invalid_list_is_reported(value: str, why: str) -> None:
    assert FORM.check(records([KEY, KEY], [None, bytes.fromhex(value)])) == (1, f"has a value that {why}")


@pytest.mark.parametrize(
    ("key", "why"),
    [
        (bytes(8), "has a key of 8 bytes; keys of a join's list have at least 9"),
        (int64(1) + b"\2k", "has a key whose ninth byte, the side of the join, is 02"),
        (int64(-1) + b"\1k", "has a key with the negative time -1"),
    ],
)
def test_a_key_that_is_no_lists_is_a_misfit(key: bytes, why: str) -> None:
    assert FORM.check(records([None, KEY, key], [None, None, None])) == (2, why)
    with pytest.raises(Corrupted, match="Row 1 has a key"):
        FORM.decode(column([KEY, key]), column([list_value([], True)] * 2))


def test_a_list_of_many_values() -> None:
    elements: list[bytes | None] = [b"%d" % number for number in range(5000)]
    batch = records([KEY, KEY], [list_value(elements, True), list_value([b"x"], True)])
    assert FORM.check(batch) is None
    assert FORM.decode(batch.keys, batch.values).column("value").to_pylist() == [*elements, b"x"]
