"""Values, lists, versions and buffered records go to bytes and come back; what cannot be a row is refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statecore.errors import Corrupted, Invalid
from statecore.formats.kinds import StoreKind
from statecore.formats.registry import row_format
from statecore.formats.rows.buffered import BufferedRecord, BufferKey, decode_buffered
from statecore.formats.rows.headers import Header
from statecore.formats.rows.lists import ListKey, decode_list, encode_list
from statecore.formats.rows.values import StoredValue, decode_value, encode_value
from statecore.formats.rows.versions import Version, VersionedKey, decode_versions, encode_versions
from tests.harness.encode_buffered import encode_buffered
from tests.harness.raising import raises
from tests.unit.formats.arrays import KEYS, TIMES, column

HEADERS = st.lists(st.tuples(st.text(max_size=4), st.none() | st.binary(max_size=6)), max_size=3)
OWN = (StoreKind.LIST, StoreKind.VERSIONED_KEY_VALUE, StoreKind.GRACE_BUFFER)
SINGLE = [kind for kind in StoreKind if kind.can_be_built and kind not in OWN]


@settings(deadline=None, max_examples=50)
@given(st.binary(max_size=9), TIMES, HEADERS)
def test_a_value_comes_back_with_what_its_kind_keeps(value: bytes, timestamp: int, headers: list[Header]) -> None:
    for kind in SINGLE:
        columns = row_format(kind).value_columns(column([encode_value(kind, value, timestamp, headers)]))
        kept = StoredValue(
            value, timestamp if "timestamp" in columns else None, tuple(headers) if "headers" in columns else None
        )
        assert decode_value(kind, encode_value(kind, value, timestamp, headers)) == kept


def test_a_timestamped_value_has_the_bytes_kafka_streams_wrote() -> None:
    row = bytes.fromhex("000001a1fd5d5a20 0000000000000014")
    assert decode_value(StoreKind.TIMESTAMPED_KEY_VALUE, row) == (
        bytes.fromhex("14").rjust(8, b"\0"),
        0x1A1FD5D5A20,
        None,
    )
    assert encode_value(StoreKind.TIMESTAMPED_KEY_VALUE, row[8:], 0x1A1FD5D5A20) == row
    headers = [("hk1", b"abc"), ("hk2", None)]
    assert encode_value(StoreKind.HEADERS_KEY_VALUE, b"v0", 0x000001A1FD5664E0, headers).hex(" ") == (
        "1c 04 06 68 6b 31 06 61 62 63 06 68 6b 32 01 00 00 01 a1 fd 56 64 e0 76 30"
    )


@pytest.mark.parametrize("timestamp", [None, -1, 2**63])
def test_a_value_is_not_written_without_a_time_that_there_is(timestamp: int | None) -> None:
    for kind in (StoreKind.TIMESTAMPED_WINDOW, StoreKind.HEADERS_KEY_VALUE):
        with raises(Invalid, "timestamp-missing" if timestamp is None else "row-number-invalid"):
            encode_value(kind, b"v", timestamp)
    assert encode_value(StoreKind.KEY_VALUE, b"v", timestamp) == b"v"


@pytest.mark.parametrize("kind", [*OWN, StoreKind.IN_MEMORY, StoreKind.CUSTOM, StoreKind.UNKNOWN])
def test_rows_of_other_shapes_have_no_single_value(kind: StoreKind) -> None:
    with raises(Invalid, "kind-unsupported", kind=kind.value):
        encode_value(kind, b"v", 0)
    with raises(Invalid, "kind-unsupported", kind=kind.value):
        decode_value(kind, b"v")


@settings(deadline=None, max_examples=50)
@given(KEYS, TIMES, st.booleans(), st.lists(st.none() | st.binary(max_size=4), max_size=4))
def test_lists_come_back(key: bytes, timestamp: int, left: bool, values: list[bytes | None]) -> None:
    place = ListKey(key, timestamp, left)
    assert ListKey.from_bytes(place.to_bytes()) == place
    assert decode_list(encode_list(values, left=left)) == values


def test_a_list_that_is_none_says_why() -> None:
    with pytest.raises(Corrupted, match="begins with 00"):
        decode_list(bytes(5))
    with raises(Invalid, "row-number-invalid"):
        ListKey(b"k", -1, True).to_bytes()


@settings(deadline=None, max_examples=50)
@given(
    st.lists(st.integers(0, 10**15), min_size=2, max_size=6, unique=True),
    st.lists(st.none() | st.binary(max_size=5), min_size=6, max_size=6),
    st.integers(0, 2**40),
    KEYS,
)
def test_versions_come_back_and_the_columns_read_them_alike(
    times: list[int], values: list[bytes | None], segment: int, key: bytes
) -> None:
    spans = list(pairwise(sorted(times)))
    versions = [Version(start, end, value) for (start, end), value in zip(spans, values, strict=False)]
    data = encode_versions(versions)
    assert decode_versions(segment, data) == versions
    place = VersionedKey(key, segment)
    assert VersionedKey.from_bytes(place.to_bytes()) == place
    columns = row_format(StoreKind.VERSIONED_KEY_VALUE).decode(column([place.to_bytes()]), column([data]))
    assert [tuple(row.values()) for row in columns.to_pylist()] == [(key, *version) for version in versions]


@settings(deadline=None, max_examples=50)
@given(TIMES, st.binary(max_size=9))
def test_latest_values_and_lone_tombstones_come_back(time: int, value: bytes) -> None:
    for segment, version in ((-1, Version(time, None, value)), (3, Version(time, time, None))):
        assert decode_versions(segment, encode_versions([version])) == [version]


def test_versions_have_the_bytes_kafka_streams_wrote() -> None:
    older = "000001a1fd57eb80 000001a1fd570120 000001a1fd579d60 00000004 000001a1fd570120 00000004" + b"ver2ver4".hex()
    assert decode_versions(1, bytes.fromhex(older)) == [
        Version(0x1A1FD570120, 0x1A1FD579D60, b"ver2"),
        Version(0x1A1FD579D60, 0x1A1FD57EB80, b"ver4"),
    ]
    assert encode_versions(decode_versions(1, bytes.fromhex(older))) == bytes.fromhex(older)


@pytest.mark.parametrize(
    "versions",
    [
        [],
        [Version(1, None, None)],
        [Version(1, 2, b""), Version(2, None, b"")],
        [Version(1, 2, b""), Version(3, 4, b"")],
        [Version(2, 2, b"")],
        [Version(-1, 2, b"")],
        [Version(3, 2, None)],
    ],
)
def test_what_is_no_row_of_versions_is_not_written(versions: Sequence[Version]) -> None:
    with pytest.raises(Invalid, match="nothing was written"):
        encode_versions(versions)


@settings(deadline=None, max_examples=50)
@given(KEYS, TIMES, TIMES, st.none() | st.binary(max_size=5), st.none() | HEADERS)
def test_buffered_records_come_back(
    key: bytes, time: int, offset: int, value: bytes | None, headers: list[Header] | None
) -> None:
    place = BufferKey(key, time, 7)
    assert BufferKey.from_bytes(place.to_bytes()) == place
    kept = None if headers is None else tuple(headers)
    record = BufferedRecord(value, time, offset, "orders", 3, kept)
    data = encode_buffered(record)
    assert decode_buffered(data) == record
    columns = row_format(StoreKind.GRACE_BUFFER).decode(column([place.to_bytes()]), column([data])).to_pylist()
    assert (columns[0]["key"], columns[0]["value"]) == (key, value)


@pytest.mark.parametrize(
    "call",
    [
        lambda: BufferKey(b"", -1, 0).to_bytes(),
        lambda: BufferKey(b"", 0, 2**31).to_bytes(),
        lambda: VersionedKey(b"", -2).to_bytes(),
    ],
)
def test_numbers_that_no_row_has_are_not_written(call: Callable[[], bytes]) -> None:
    with raises(Invalid, "row-number-invalid"):
        call()
