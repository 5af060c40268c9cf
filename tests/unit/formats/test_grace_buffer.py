import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from statecore.errors import Corrupted
from statecore.formats.kinds import StoreKind
from statecore.formats.registry import row_format
from statecore.formats.segments import default_segment_interval
from tests.harness.raising import raises
from tests.unit.formats.arrays import KEYS, SHAPES, TIMES, VALUES, Shape, column, int32, int64, records, rows_of

FORM = row_format(StoreKind.GRACE_BUFFER)
HEADERS = st.lists(st.tuples(st.text(max_size=4), VALUES), max_size=3)
PIECES = st.one_of(st.none(), st.binary(max_size=6))
BUFFERED = st.tuples(st.text(max_size=5), HEADERS, PIECES, st.one_of(st.just(-2), PIECES), PIECES)
ROWS = st.lists(st.tuples(KEYS, TIMES, st.integers(0, 2**31 - 1), st.one_of(st.none(), BUFFERED)), max_size=10)

Headers = list[tuple[str, bytes | None]]
Buffered = tuple[str, Headers, bytes | None, bytes | int | None, bytes | None]


def buffer_key(key: bytes, time: int, sequence: int) -> bytes:
    return b"\0" + int64(time) + key + int32(sequence)


KEY = buffer_key(b"k", 5, 1)


def piece(data: bytes | None) -> bytes:
    return int32(-1) if data is None else int32(len(data)) + data


def buffer_value(
    topic: str = "in", headers: Headers | None = None, prior: bytes | None = None, old: bytes | int | None = None,
    new: bytes | None = b"v", *, count: int | None = None,
) -> bytes:  # fmt: skip
    """A buffered record as ``BufferValue.serialize`` writes it."""
    parts = [int64(7), int64(8), piece(topic.encode()), int32(3), int32(len(headers or []) if count is None else count)]
    for key, value in headers or []:
        parts += [piece(key.encode()), piece(value)]
    return b"".join([*parts, piece(prior), int32(old) if isinstance(old, int) else piece(old), piece(new)])


def readable(value: bytes) -> bool:
    """Whether this is a buffered record and eight bytes more."""
    record, place, fits = value[:-8], 16, True

    def number() -> int:
        nonlocal place, fits
        place += 4
        fits &= place <= len(record)
        return int.from_bytes(record[place - 4 : place], "big", signed=True)

    def skip(least: int) -> None:
        nonlocal place, fits
        length = number()
        fits &= length >= least and length <= len(record) - place
        place += max(length, 0) if fits else 0

    skip(0)
    number()
    count = number()
    fits &= count >= -1
    for _ in range(count if fits else 0):
        skip(0)
        skip(-1)
        if not fits:
            return False
    for least in (-1, -2, -1):
        skip(least)
    return fits and place == len(record)


def test_a_key_has_the_bytes_kafka_streams_wrote() -> None:
    key = bytes.fromhex("00 000001a1fd5e3b20 6b34 0000006c")
    assert key == buffer_key(b"k4", 0x000001A1FD5E3B20, 0x6C)
    batch = records([key], [buffer_value(new=b"order") + int64(0)])
    assert FORM.check(batch) is None
    assert FORM.row_keys(batch.keys).to_pylist() == [key]
    assert FORM.row_values(batch).to_pylist() == [buffer_value(new=b"order")]
    read = FORM.decode(batch.keys, FORM.row_values(batch))
    assert read.schema.names == ["key", "sequence", "timestamp", "headers", "value"]
    assert rows_of(read) == [(b"k4", 0x6C, 0x000001A1FD5E3B20, [], b"order")]


@settings(deadline=None)
@given(ROWS, SHAPES)
def test_rows_are_the_changelogs_without_the_buffers_time(
    rows: list[tuple[bytes, int, int, Buffered | None]], shape: Shape
) -> None:
    keys = [buffer_key(*row[:3]) for row in rows]
    values = [None if row[3] is None else buffer_value(*row[3]) for row in rows]
    batch = records(keys, [None if value is None else value + int64(0) for value in values], shape=shape)
    assert FORM.check(batch) is None
    assert FORM.row_keys(batch.keys).to_pylist() == keys
    assert FORM.row_values(batch).to_pylist() == values
    read = FORM.decode(batch.keys, column(values, shape))
    assert rows_of(read) == [
        (key, sequence, time, None, None)
        if record is None
        else (key, sequence, time, [{"key": name, "value": content} for name, content in record[1]], record[4])
        for key, time, sequence, record in rows
    ]


def test_every_row_is_in_the_first_segment() -> None:
    interval = default_segment_interval(StoreKind.GRACE_BUFFER, 0)
    times = FORM.times(column([buffer_key(b"k", 0, 1), buffer_key(b"k", 1_795_251_660_000, 1)]))
    assert (times // interval).tolist() == [0, 0]
    assert FORM.time_at == FORM.key_time_at == 1


def test_old_records_without_a_count_of_headers_are_read() -> None:
    value = buffer_value(count=-1)
    assert FORM.check(records([KEY], [value + int64(0)])) is None
    assert rows_of(FORM.decode(column([KEY]), column([value]))) == [(b"k", 1, 5, [], b"v")]


@settings(max_examples=300, deadline=None)
@given(st.lists(BUFFERED, min_size=1, max_size=3), st.data(), SHAPES)
def test_the_first_value_that_is_no_buffered_record_is_found(
    rows: list[Buffered], data: st.DataObject, shape: Shape
) -> None:
    values = [buffer_value(*row) + int64(0) for row in rows]
    row = data.draw(st.integers(0, len(values) - 1))
    at = data.draw(st.integers(0, len(values[row]) - 1))
    byte = bytes([data.draw(st.integers(0, 255))])
    broken = data.draw(
        st.sampled_from([values[row][:at], *(values[row][:at] + byte + values[row][at + skip :] for skip in (0, 1))])
    )
    assume(not readable(broken))
    misfit = FORM.check(records([KEY] * (len(values) + 1), [*values[:row], broken, *values[row:]], shape=shape))
    assert misfit is not None
    assert misfit.row == row


@pytest.mark.parametrize(
    "value",
    [
        buffer_value() + bytes(7),
        buffer_value() + bytes(9),
        buffer_value("a-topic", count=1) + bytes(8),
        buffer_value("a-topic", count=-2) + bytes(8),
        buffer_value(prior=b"a-value", old=-3) + bytes(8),
        bytes(16) + int32(-1) + bytes(40),
        bytes(16) + int32(2**31 - 1) + bytes(40),
        b"x" * 100,
    ],
)
def test_a_value_that_is_no_buffered_record_is_a_misfit(value: bytes) -> None:
    misfit = FORM.check(records([KEY] * 3, [buffer_value() + bytes(8), None, value]))
    assert misfit is not None
    assert (misfit.row, "not a buffered record" in misfit.why) == (2, True)
    with raises(Corrupted, "row-malformed", kind="grace-buffer", row=1):
        FORM.decode(column([KEY, KEY]), column([buffer_value(), value[:-8]]))


def test_a_short_value_is_a_misfit() -> None:
    shortest = buffer_value("", new=None) + bytes(8)
    assert FORM.check(records([KEY], [shortest])) is None
    misfit = FORM.check(records([KEY, KEY], [None, shortest[1:]]))
    assert misfit is not None
    assert (misfit.row, "47 bytes" in misfit.why) == (1, True)
    with pytest.raises(Corrupted, match=r"Row 0 .*39 bytes"):
        FORM.decode(column([KEY]), column([bytes(39)]))


@pytest.mark.parametrize(
    ("key", "why"),
    [
        (bytes(12), "has a key of 12 bytes; buffer keys have at least 13"),
        (b"\1" + KEY[1:], "has a key that begins with 01, not with 00"),
        (buffer_key(b"k", -5, 1), "has a key with the negative buffer time -5"),
    ],
)
def test_a_key_that_is_no_buffers_is_a_misfit(key: bytes, why: str) -> None:
    assert FORM.check(records([None, KEY, key], [None, None, None])) == (2, why)
    with pytest.raises(Corrupted, match="Row 1 has a key"):
        FORM.decode(column([KEY, key]), column([buffer_value()] * 2))
