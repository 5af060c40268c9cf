from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from statecore.errors import Corrupted
from statecore.formats.headers import join_headers, misfit_of_headers, split_headers, without_headers
from statecore.formats.kinds import StoreKind
from statecore.formats.registry import row_format
from tests.unit.formats.arrays import SHAPES, VALUES, Shape, column, int64, records, rows_of, times

Headers = Sequence[tuple[str, bytes | None]]

NAMES = st.one_of(st.sampled_from(["a", "trace", "ключ", ""]), st.text(max_size=5))
CONTENTS = st.one_of(st.none(), st.just(b""), st.binary(max_size=12), st.integers(60, 70).map(bytes))
HEADERS = st.one_of(st.just([]), st.lists(st.tuples(NAMES, CONTENTS), max_size=4))
STAMPS = st.integers(0, 2**63 - 1)
KIND = StoreKind.HEADERS_KEY_VALUE


def varint(value: int, extra: int = 0) -> bytes:
    """A number as Kafka writes it, or in some bytes more than it needs."""
    raw = (value << 1) ^ (value >> 31)
    digits = []
    while raw > 0x7F:
        digits.append(raw & 0x7F | 0x80)
        raw >>= 7
    digits.append(raw)
    for _ in range(min(extra, 5 - len(digits))):
        digits[-1] |= 0x80
        digits.append(0)
    return bytes(digits)


def wire(headers: Headers, extra: int = 0, null: int = -1) -> bytes:
    """Headers as a record batch has them."""
    parts = [varint(len(headers), extra)]
    for name, content in headers:
        key = name.encode()
        parts += [varint(len(key), extra), key]
        parts += [varint(null)] if content is None else [varint(len(content), extra), content]
    return b"".join(parts)


def block(headers: Headers) -> bytes:
    """Headers as Kafka Streams writes them in front of a value (``HeadersSerializer``)."""
    body = wire(headers) if headers else b""
    return varint(len(body)) + body


def well_formed(data: bytes) -> bool:
    """Whether these are the headers of a record, by ``DefaultRecord.readHeaders``."""

    def number(place: int) -> tuple[int, int]:
        raw = 0
        for digit in range(5):
            raw |= (data[place + digit] & 0x7F) << 7 * digit
            if data[place + digit] < 0x80:
                raw &= 0xFFFFFFFF
                return (raw >> 1) ^ -(raw & 1), place + digit + 1
        raise IndexError

    try:
        count, place = number(0)
        if count < 0:
            return False
        for _ in range(count):
            length, place = number(place)
            if length < 0:
                return False
            place += length
            length, place = number(place)
            place += max(length, 0)
    except IndexError:
        return False
    return place == len(data)


def test_a_block_has_the_bytes_kafka_streams_wrote() -> None:
    headers = [("hk1", b"abc"), ("hk2", None)]
    rows = join_headers(column([b"v0", b"v0"]), column([wire(headers), wire([])]), times([0x000001A1FD5664E0] * 2))
    assert [row.hex(" ") for row in rows.to_pylist()] == [
        "1c 04 06 68 6b 31 06 61 62 63 06 68 6b 32 01 00 00 01 a1 fd 56 64 e0 76 30",
        "00 00 00 01 a1 fd 56 64 e0 76 30",
    ]


@settings(deadline=None)
@given(st.lists(st.tuples(HEADERS, VALUES, STAMPS), max_size=12), SHAPES, st.booleans())
def test_rows_are_headers_timestamp_and_value_and_go_back(
    rows: list[tuple[Headers, bytes | None, int]], shape: Shape, stamped: bool
) -> None:
    kind = StoreKind.HEADERS_KEY_VALUE if stamped else StoreKind.HEADERS_SESSION
    form = row_format(kind)
    values, stamps = [value for _, value, _ in rows], [stamp for _, _, stamp in rows]
    keys: list[bytes | None] = [b"k%d" % row + bytes(16) for row in range(len(rows))]
    batch = records(keys, values, stamps, [wire(headers) for headers, _, _ in rows], shape)
    assert form.check(batch) is None
    written = form.row_values(batch)
    written.validate(full=True)
    assert written.to_pylist() == [
        None if value is None else block(headers) + (int64(stamp) if stamped else b"") + value
        for headers, value, stamp in rows
    ]
    read = form.decode(batch.keys, column(written.to_pylist(), shape))
    assert read.schema.names[-3 if stamped else -2 :] == [*(["timestamp"] if stamped else []), "headers", "value"]
    assert [row[-2:] for row in rows_of(read)] == [
        (None, None) if value is None else ([{"key": key, "value": content} for key, content in headers], value)
        for headers, value, _ in rows
    ]
    if stamped:
        assert read.column("timestamp").to_pylist() == [None if value is None else stamp for _, value, stamp in rows]


@settings(deadline=None)
@given(st.lists(st.tuples(HEADERS, st.integers(0, 4), st.integers(-9, -1)), min_size=1, max_size=6), SHAPES)
def test_numbers_in_more_bytes_than_needed_are_written_as_kafka_streams_would(
    rows: list[tuple[Headers, int, int]], shape: Shape
) -> None:
    headers = column([wire(*row) for row in rows], shape, padding=b"\0")
    assert misfit_of_headers(headers) is None
    written = join_headers(column([b"v"] * len(rows)), headers)
    assert written.to_pylist() == [block(parts) + b"v" for parts, _, _ in rows]


def test_only_the_low_32_bits_of_a_number_count() -> None:
    # Java shifts the fifth byte's high bits out of an int.
    headers = column([b"\x82\x80\x80\x80\x10\x02k\x02v"])
    assert misfit_of_headers(headers) is None
    assert join_headers(column([b""]), headers).to_pylist() == [block([("k", b"v")])]


@pytest.mark.parametrize("odd", ["8200 02 6b 02 76", "02 8200 6b 02 76", "02 02 6b 8200 76"])
def test_a_single_number_in_more_bytes_than_needed_is_seen(odd: str) -> None:
    written = join_headers(column([b""]), column([bytes.fromhex(odd)]))
    assert written.to_pylist() == [block([("k", b"v")])]


@pytest.mark.parametrize(
    ("key", "kept"),
    [
        (b"a\xffb", "a\ufffdb"),
        (b"\xe2\x82", "\ufffd"),
        (b"\xed\xa0\x80", "\ufffd"),  # a surrogate, whole or cut short, is one character to Java
        (b"\xed\xa0A", "\ufffdA"),
        (b"\xf0\x9f\x92\xa9", "\U0001f4a9"),
    ],
)
def test_keys_pass_through_a_java_string(key: bytes, kept: str) -> None:
    raw = varint(1) + varint(len(key)) + key + varint(-1)
    headers = column([wire([("b", b"x")]), raw])
    assert misfit_of_headers(headers) is None
    assert join_headers(column([b"", b""]), headers).to_pylist() == [block([("b", b"x")]), block([(kept, None)])]


@settings(max_examples=300, deadline=None)
@given(st.lists(HEADERS, min_size=1, max_size=5), st.data(), SHAPES)
def test_the_first_malformed_headers_are_found(rows: list[Headers], data: st.DataObject, shape: Shape) -> None:
    wires = [wire(headers) for headers in rows]
    row = data.draw(st.integers(0, len(wires) - 1))
    at = data.draw(st.integers(0, len(wires[row]) - 1))
    damage = data.draw(st.sampled_from(["cut", "change", "append", "empty"]))
    byte = bytes([data.draw(st.integers(0, 255))])
    broken = {
        "cut": wires[row][:at],
        "change": wires[row][:at] + byte + wires[row][at + 1 :],
        "append": wires[row] + byte,
        "empty": b"",
    }[damage]
    assume(not well_formed(broken))
    behind = data.draw(st.booleans())
    misfit = misfit_of_headers(column([*wires[:row], broken, *wires[row:], *([broken] * behind)], shape, b"\0"))
    assert misfit is not None
    assert misfit.row == row
    assert misfit.why.startswith("has malformed headers: ")


@settings(deadline=None)
@given(st.binary(max_size=14))
def test_header_checks_agree_with_kafka_on_any_bytes(data: bytes) -> None:
    assert (misfit_of_headers(column([b"\0", data])) is None) == well_formed(data)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ("", "they end within their count"),
        ("01", "their count is -1"),
        ("0000", "1 bytes follow them"),
        ("0206616201", "they end within the length of value 0"),
        ("020661", "key 0 has 3 bytes and 1 are left"),
        ("0201", "the length of key 0 is -1"),
        ("02026108", "value 0 has 4 bytes and 0 are left"),
        ("808080808000", "their count has more than five bytes"),
        ("0202610162", "1 bytes follow them"),
    ],
)
def test_invalid_headers_are_reported(data: str, why: str) -> None:
    misfit = misfit_of_headers(column([b"\0", bytes.fromhex(data)]))
    assert misfit == (1, f"has malformed headers: {why}")


def test_a_negative_timestamp_is_refused_though_it_is_behind_the_headers() -> None:
    misfit = row_format(KIND).check(records([b"a", b"b"], timestamps=[0, -1]))
    assert misfit is not None
    assert misfit.row == 1
    assert "timestamp -1" in misfit.why


def test_the_first_of_several_misfits_is_named() -> None:
    form = row_format(StoreKind.HEADERS_WINDOW)
    keys: list[bytes | None] = [bytes(12), b"short", bytes(12)]
    misfits = [
        form.check(records(keys, timestamps=[-1, 0, 0], headers=[b"\0", b"\0", b""])),
        form.check(records(keys, headers=[b"", b"\0", b"\0"])),
        form.check(records(keys, headers=[b"\0", b"\0", b""])),
    ]
    assert [misfit.row for misfit in misfits if misfit is not None] == [0, 0, 1]


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (b"", "does not begin with headers"),
        (b"\x01", "does not begin with headers"),
        (b"\x00" + bytes(7), "less than 8 bytes after its headers"),
        (b"\x04\x00\x00" + bytes(7), "less than 8 bytes after its headers"),
        (b"\x04\x00\x00" + bytes(8), "malformed headers: 1 bytes follow them"),
        (varint(5) + b"\x02\x02\xff\x02a" + bytes(8), "a header whose key is not UTF-8"),
    ],
)
def test_a_row_with_broken_headers_is_corrupt(value: bytes, why: str) -> None:
    rows = column([block([]) + bytes(8), block([("a", b"b")]) + bytes(8), value])
    with pytest.raises(Corrupted, match=f"Row 2 .*{why}") as caught:
        row_format(KIND).decode(column([b"a", b"b", b"c"]), rows)
    assert caught.value.context["kind"] == "headers-key-value"


def test_no_rows_have_no_headers() -> None:
    empty = column([])
    assert join_headers(empty, empty, times([])).to_pylist() == []
    headers, rest = split_headers(empty, KIND, rest=8)
    assert (headers.to_pylist(), rest.to_pylist()) == ([], [])


def test_thousands_of_headers_in_one_record() -> None:
    many = [(f"key-{number}", bytes([number % 256])) for number in range(3000)]
    written = join_headers(column([b"v", b"w"]), column([wire(many), wire(many[:2])]))
    assert written.to_pylist() == [block(many) + b"v", block(many[:2]) + b"w"]
    headers, rest = split_headers(written, KIND, rest=0)
    assert [entry["key"] for entry in headers[0].as_py()] == [key for key, _ in many]
    assert (len(headers[1]), rest.to_pylist()) == (2, [b"v", b"w"])


def test_columns_are_required_where_the_format_needs_them() -> None:
    with pytest.raises(ValueError, match="without a column of headers"):
        row_format(KIND).row_values(records([b"a"])._replace(headers=None))
    assert row_format(KIND).needs_headers
    assert not row_format(StoreKind.HEADERS_EMIT_FINAL_SESSION).needs_headers
    assert pa.types.is_large_binary(join_headers(column([b"a"]), column([b"\0"])).type)


@settings(deadline=None)
@given(st.lists(st.tuples(HEADERS, STAMPS, st.binary(max_size=20), st.booleans()), max_size=8), SHAPES)
def test_values_without_headers_are_what_is_behind_them(
    given_rows: list[tuple[Headers, int, bytes, bool]], shape: Shape
) -> None:
    behind = [stamp.to_bytes(8) + value for _, stamp, value, _ in given_rows]
    whole = [
        rest if bare else block(headers) + rest for rest, (headers, _, _, bare) in zip(behind, given_rows, strict=True)
    ]
    bare = np.array([bare for *_, bare in given_rows], bool)
    found, having = without_headers(column(whole, shape), KIND, rest=8, bare=bare)
    assert found.to_pylist() == behind
    assert having.tolist() == [bool(headers) and not bare for headers, _, _, bare in given_rows]


@pytest.mark.parametrize("value", [b"", b"\x80", b"\x01", b"\x04\x02", b"\0" + bytes(7), b"\x04ab" + bytes(7)])
def test_a_value_that_does_not_begin_with_headers_cannot_lose_them(value: bytes) -> None:
    with pytest.raises(Corrupted, match=r"Row 1.*headers"):
        without_headers(column([b"\0" + bytes(8), value]), KIND, rest=8)
