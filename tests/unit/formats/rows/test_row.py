"""One row at a time is what the columns say: both ways, for every kind, on rows made up, damaged, and of Kafka Streams.

The columnar formats are compared with Kafka Streams elsewhere; here they are the measure.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statecore.errors import Corrupted, Invalid
from statecore.formats.kinds import WINDOWED_KINDS, StoreKind
from statecore.formats.registry import row_format
from statecore.formats.rows.headers import Header, parse_headers, replace_as_java, wire_headers
from statecore.formats.rows.keys import EMIT_FINAL_SESSION_KINDS, SESSION_KINDS, WINDOW_KINDS, SessionKey, WindowKey
from statecore.formats.rows.row import decode_row, rows_of_record
from tests.harness.raising import raises
from tests.unit.formats.arrays import KEY_TIMES, KEYS, TIMES, column, int32, int64, records

GOLDEN = sorted((Path(__file__).parents[3] / "golden").glob("*.json"))
KINDS = [kind for kind in StoreKind if kind.can_be_built]
OF_RECORDS = [kind for kind in KINDS if not kind.is_versioned]
EVERY = pytest.mark.parametrize("kind", KINDS, ids=str)

HEADERS = st.lists(st.tuples(st.text(max_size=4), st.none() | st.binary(max_size=6)), max_size=3)
SEQUENCES = st.one_of(st.integers(0, 3), st.integers(0, 2**31 - 1))


def sized(data: bytes | None) -> bytes:
    return int32(-1) if data is None else int32(len(data)) + data


@st.composite
def window_keys(draw: st.DrawFn) -> bytes:
    return draw(KEYS) + int64(draw(KEY_TIMES)) + int32(draw(SEQUENCES))


@st.composite
def session_keys(draw: st.DrawFn) -> bytes:
    times = sorted([draw(KEY_TIMES), draw(KEY_TIMES)])
    return draw(KEYS) + int64(times[1]) + int64(times[0])


@st.composite
def list_records(draw: st.DrawFn) -> tuple[bytes, bytes]:
    left = bytes([draw(st.booleans())])
    values = draw(st.lists(st.none() | st.binary(max_size=4), max_size=3))
    pieces = [int32(-1) if value is None else sized(left + value) for value in values]
    return int64(draw(TIMES)) + left + draw(KEYS), b"\1" + int32(len(values)) + b"".join(pieces)


@st.composite
def buffer_records(draw: st.DrawFn) -> tuple[bytes, bytes]:
    key = b"\0" + int64(draw(TIMES)) + draw(KEYS) + int32(draw(SEQUENCES))
    headers = draw(st.none() | HEADERS)
    pieces = [int64(draw(TIMES)), int64(7), sized(b"topic"), int32(1), int32(-1 if headers is None else len(headers))]
    pieces += [sized(name.encode()) + sized(value) for name, value in headers or []]
    pieces += [
        sized(None),
        draw(st.sampled_from([int32(-1), int32(-2)])),
        sized(draw(st.none() | st.binary(max_size=5))),
    ]
    return key, b"".join(pieces) + int64(0)


def record_of(kind: StoreKind) -> st.SearchStrategy[tuple[bytes, bytes]]:
    """Key and value of a changelog's record."""
    if kind is StoreKind.LIST:
        return list_records()
    if kind is StoreKind.GRACE_BUFFER:
        return buffer_records()
    keys = window_keys() if kind in WINDOW_KINDS else session_keys() if kind in SESSION_KINDS else KEYS
    return st.tuples(keys, st.binary(max_size=12))


def of_columns(
    kind: StoreKind, key: bytes, value: bytes | None, timestamp: int, headers: Sequence[Header]
) -> list[tuple[bytes, bytes | None]] | None:
    """The rows that the columnar format makes of one record; ``None`` where it refuses it."""
    form = row_format(kind)
    wire = wire_headers([(name.encode(), content) for name, content in headers])
    batch = records([key], [value], [timestamp], [wire])
    if form.check(batch) is not None:
        return None
    row_keys = form.row_keys(batch.keys)
    (row,) = form.row_values(batch).to_pylist()
    if form.stamped and row is not None:
        row = int64(timestamp) + row
    index = form.index_keys(row_keys)
    rows = [(row_keys[0].as_py(), row)]
    return rows if index is None else [*rows, (index[0].as_py(), None if row is None else b"")]


def columns_of(kind: StoreKind, key: bytes, value: bytes) -> list[dict[str, Any]] | str:
    """What the columnar format reads in one row; what is wrong with the row where it reads none."""
    try:
        found = row_format(kind).decode(column([key]), column([value])).to_pylist()
    except Corrupted as error:
        return error.what.removeprefix("Row 0 ")
    for row in found:
        if "headers" in row:
            row["headers"] = [(one["key"], one["value"]) for one in row["headers"]]
    return found


def one_of(kind: StoreKind, key: bytes, value: bytes) -> list[dict[str, Any]] | str:
    try:
        found = decode_row(kind, key, value)
    except Corrupted as error:
        return error.what.removeprefix("A row ")
    return [{**row, **({"headers": list(row["headers"])} if "headers" in row else {})} for row in found]


@pytest.mark.parametrize("kind", OF_RECORDS, ids=str)
@settings(deadline=None, max_examples=25)
@given(data=st.data())
def test_a_record_becomes_the_rows_of_the_columns_and_they_are_read_alike(kind: StoreKind, data: st.DataObject) -> None:
    key, value = data.draw(record_of(kind))
    headers, timestamp = data.draw(HEADERS), data.draw(TIMES)
    expected = of_columns(kind, key, value, timestamp, headers)
    assert expected is not None
    made = rows_of_record(kind, key, value, timestamp, headers)
    assert made == expected
    assert rows_of_record(kind, key, None, timestamp, headers) == of_columns(kind, key, None, timestamp, headers)
    for row_key, row_value in made:
        assert row_value is not None
        assert one_of(kind, row_key, row_value) == columns_of(kind, row_key, row_value)


def damaged(data: st.DataObject, whole: bytes) -> bytes:
    """The bytes with something wrong in them, mostly."""
    at = data.draw(st.integers(0, len(whole)))
    byte = bytes([data.draw(st.integers(0, 255))])
    return data.draw(
        st.sampled_from([whole, whole[:at], whole[:at] + byte + whole[at + 1 :], whole + byte, byte + whole, b""])
    )


@pytest.mark.parametrize("kind", OF_RECORDS, ids=str)
@settings(deadline=None, max_examples=50)
@given(data=st.data())
def test_what_the_columns_refuse_is_refused(kind: StoreKind, data: st.DataObject) -> None:
    key, value = data.draw(record_of(kind))
    made = rows_of_record(kind, key, value, 5, data.draw(HEADERS)) if kind not in WINDOWED_KINDS else None
    key, value = damaged(data, key), damaged(data, value)
    timestamp = data.draw(st.sampled_from([-1, 0, 5, 2**63 - 1]))
    expected = of_columns(kind, key, value, timestamp, ())
    if expected is None:
        with raises(Invalid, "record-kind-mismatch", kind=kind.value) as caught:
            rows_of_record(kind, key, value, timestamp)
        assert caught.value.context["kind"] == kind.value
    else:
        assert rows_of_record(kind, key, value, timestamp) == expected
    for row_key, row_value in made or rows_of_record(kind, *valid_record(kind), 5):
        assert row_value is not None
        broken = (damaged(data, row_key), damaged(data, row_value))
        assert_read_alike(kind, *broken)


def valid_record(kind: StoreKind) -> tuple[bytes, bytes]:
    return (b"k" + int64(9) + (int32(0) if kind in WINDOW_KINDS else int64(3)), b"value")


def assert_read_alike(kind: StoreKind, key: bytes, value: bytes) -> None:
    """Both read the same in a row, or both refuse it; what they say differs only where several things are wrong."""
    one, columns = one_of(kind, key, value), columns_of(kind, key, value)
    if isinstance(columns, str):
        assert isinstance(one, str), (columns, one)
    else:
        assert one == columns


@EVERY
@settings(deadline=None, max_examples=40)
@given(key=st.binary(max_size=40), value=st.binary(max_size=60))
def test_row_and_column_checks_agree_on_any_bytes(kind: StoreKind, key: bytes, value: bytes) -> None:
    assert_read_alike(kind, key, value)
    assert_read_alike(kind, b"\0" * 9 + key, value)


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_rows_of_kafka_streams_are_read_and_written_as_it_does(path: Path) -> None:
    golden = json.loads(path.read_text())
    kind = StoreKind(golden["kind"])
    stored: dict[bytes, bytes] = {}
    for families in golden.get("segments", {"": golden.get("families")}).values():
        for key, value in families[kind.data_column_family]:
            row = bytes.fromhex(key), bytes.fromhex(value)
            assert one_of(kind, *row) == columns_of(kind, *row)
            stored[row[0]] = row[1]
    assert len(stored) > 5
    if kind.is_versioned:
        return
    made: dict[bytes, bytes] = {}
    for record in golden["records"]:
        content = None if record["value"] is None else bytes.fromhex(record["value"])
        headers = [(name, None if one is None else bytes.fromhex(one)) for name, one in record["headers"]]
        key = bytes.fromhex(record["key"])
        for row_key, row_value in rows_of_record(kind, key, content, record["timestamp"], headers):
            made.pop(row_key, None)
            if row_value is not None:
                made[row_key] = row_value
    assert {key: made.get(key) for key in stored} == stored  # of what was made, expired segments are not in the golden


def test_a_row_that_is_broken_says_how() -> None:
    with pytest.raises(Corrupted, match="value of 7 bytes") as caught:
        decode_row(StoreKind.TIMESTAMPED_KEY_VALUE, b"k", bytes(7))
    assert caught.value.context["kind"] == "timestamped-key-value"


def test_a_versioned_row_does_not_follow_from_one_record() -> None:
    for kind in (StoreKind.VERSIONED_KEY_VALUE, StoreKind.IN_MEMORY, StoreKind.CUSTOM, StoreKind.UNKNOWN):
        with raises(Invalid, "kind-unsupported", kind=kind.value):
            rows_of_record(kind, b"k", b"v", 0)


@settings(deadline=None, max_examples=50)
@given(st.binary(max_size=20))
def test_headers_are_parsed_to_what_they_are_written_from(wire: bytes) -> None:
    try:
        parsed = parse_headers(wire)
    except ValueError:
        return
    assert parse_headers(wire_headers(parsed)) == [(replace_as_java(key), value) for key, value in parsed]


@settings(deadline=None, max_examples=50)
@given(KEYS, KEY_TIMES, SEQUENCES)
def test_keys_of_windows_come_back_from_rows_and_from_their_index(key: bytes, start: int, sequence: int) -> None:
    window = WindowKey(key, start, sequence)
    for kind in WINDOW_KINDS:
        assert WindowKey.from_bytes(window.to_bytes(kind), kind) == window
        index = window.to_index_bytes(kind)
        assert index is None or WindowKey.from_bytes(index, kind) == window
        assert (index is not None) is row_format(kind).indexed


@settings(deadline=None, max_examples=50)
@given(KEYS, KEY_TIMES, KEY_TIMES)
def test_keys_of_sessions_come_back_from_rows_and_from_their_index(key: bytes, one: int, other: int) -> None:
    session = SessionKey(key, min(one, other), max(one, other))
    for kind in SESSION_KINDS:
        assert SessionKey.from_bytes(session.to_bytes(kind), kind) == session
        index = session.to_index_bytes(kind)
        assert (index is None) is (kind not in EMIT_FINAL_SESSION_KINDS)
        assert index is None or SessionKey.from_bytes(index, kind) == session


@pytest.mark.parametrize(
    "key", [WindowKey(b"", -1), WindowKey(b"", 2**63), WindowKey(b"", 0, -1), WindowKey(b"", 0, 2**31)]
)
def test_a_window_that_there_is_not_is_not_written(key: WindowKey) -> None:
    with raises(Invalid, "row-number-invalid"):
        key.to_bytes()


@pytest.mark.parametrize("key", [SessionKey(b"", -1, 0), SessionKey(b"", 2, 1), SessionKey(b"", 0, 2**63)])
def test_a_session_that_there_is_not_is_not_written(key: SessionKey) -> None:
    with raises(Invalid, "row-number-invalid"):
        key.to_bytes()


def test_kinds_without_windows_have_no_keys_of_windows() -> None:
    for call in (
        lambda: WindowKey(b"", 0).to_bytes(StoreKind.SESSION),
        lambda: WindowKey(b"", 0).to_index_bytes(StoreKind.KEY_VALUE),
        lambda: WindowKey.from_bytes(bytes(20), StoreKind.LIST),
        lambda: SessionKey(b"", 0, 0).to_bytes(StoreKind.WINDOW),
        lambda: SessionKey(b"", 0, 0).to_index_bytes(StoreKind.WINDOW),
        lambda: SessionKey.from_bytes(bytes(20), StoreKind.KEY_VALUE),
    ):
        with raises(Invalid, "kind-unsupported"):
            call()
