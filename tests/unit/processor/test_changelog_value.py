"""One record's row in plain Python, held against the columnar formats that the pipeline writes."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statecore.errors import Corrupted, Invalid
from statecore.formats.key_value import put_on_timestamps
from statecore.formats.kinds import StoreKind
from statecore.formats.registry import row_format
from statecore.formats.row_format import Records
from statecore.processor.changelog_value import check_kind, read_headers, record_of, row_of

KINDS = (StoreKind.KEY_VALUE, StoreKind.TIMESTAMPED_KEY_VALUE, StoreKind.HEADERS_KEY_VALUE)
HEADERS = st.lists(st.tuples(st.text(max_size=70), st.none() | st.binary(max_size=70)), max_size=70)


def varint(number: int) -> bytes:
    left = (number << 1) ^ (number >> 63)
    out = b""
    while left > 0x7F:
        out += bytes([left & 0x7F | 0x80])
        left >>= 7
    return out + bytes([left])


def on_the_wire(headers: list[tuple[str, bytes | None]]) -> bytes:
    out = varint(len(headers))
    for name, value in headers:
        key = name.encode()
        out += varint(len(key)) + key + (varint(-1) if value is None else varint(len(value)) + value)
    return out


@settings(deadline=None)
@given(
    st.sampled_from(KINDS),
    st.none() | st.binary(max_size=20),
    st.integers(0, (1 << 63) - 1),
    HEADERS,
)
def test_a_row_is_what_the_columns_have_and_its_record_what_it_was(
    kind: StoreKind, value: bytes | None, timestamp: int, headers: list[tuple[str, bytes | None]]
) -> None:
    columnar = row_format(kind)
    wire = on_the_wire(headers)
    records = Records(
        pa.array([b"k"], pa.binary()),
        pa.array([value], pa.binary()),
        pa.array([timestamp], pa.int64()),
        pa.array([wire], pa.binary()),
    )
    assert columnar.check(records) is None
    values = columnar.row_values(records)
    expected = (put_on_timestamps(values, records.timestamps) if columnar.stamped else values)[0].as_py()
    row = row_of(kind, value, timestamp, headers)
    assert row == expected
    assert list(read_headers(wire)) == headers
    back = record_of(kind, row)
    assert back.value == value
    if value is not None and kind is not StoreKind.KEY_VALUE:
        assert back.timestamp == timestamp
    if value is not None and kind is StoreKind.HEADERS_KEY_VALUE:
        assert list(back.headers) == headers


@pytest.mark.parametrize(
    ("kind", "row"),
    [
        (StoreKind.TIMESTAMPED_KEY_VALUE, b"1234567"),
        (StoreKind.HEADERS_KEY_VALUE, b""),
        (StoreKind.HEADERS_KEY_VALUE, b"\x00123"),
        (StoreKind.HEADERS_KEY_VALUE, b"\x04\x02\x7f" + bytes(8)),
        (StoreKind.HEADERS_KEY_VALUE, b"\xff\xff\xff\xff\xff\xff"),
        (StoreKind.HEADERS_KEY_VALUE, b"\x01" + bytes(8)),
    ],
)
def test_what_is_no_row_of_the_kind_is_refused(kind: StoreKind, row: bytes) -> None:
    with pytest.raises(Invalid, match="is no row"):
        record_of(kind, row)


@pytest.mark.parametrize("data", [b"", b"\x02", b"\x01", b"\x02\x02", b"\x00\x00", b"\x02\x01\x02a"])
def test_headers_that_are_not_whole(data: bytes) -> None:
    with pytest.raises(Corrupted, match="not whole"):
        read_headers(data)


@pytest.mark.parametrize("kind", [kind for kind in StoreKind if kind not in KINDS])
def test_kinds_that_cannot_be_kept_up_record_by_record(kind: StoreKind) -> None:
    with pytest.raises(Invalid, match=r"statecore restore"):
        check_kind(kind)
