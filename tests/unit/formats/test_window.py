import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statecore.errors import Corrupted
from statecore.formats.kinds import StoreKind
from statecore.formats.registry import row_format
from statecore.formats.window import FARTHEST_AHEAD_MS
from tests.unit.formats.arrays import (
    KEY_TIMES,
    KEYS,
    SHAPES,
    TIMES,
    VALUES,
    Shape,
    column,
    int32,
    int64,
    records,
    rows_of,
)

PLAIN = [StoreKind.WINDOW, StoreKind.JOIN_WINDOW]
KINDS = [*PLAIN, StoreKind.TIMESTAMPED_WINDOW, StoreKind.HEADERS_WINDOW]
SEQUENCES = st.integers(0, 2**31 - 1)
WINDOWS = st.lists(st.tuples(KEYS, KEY_TIMES, SEQUENCES, VALUES, TIMES), max_size=20)

Window = tuple[bytes, int, int, bytes | None, int]


def window_key(key: bytes, start: int, sequence: int) -> bytes:
    return key + int64(start) + int32(sequence)


def test_a_key_has_the_bytes_kafka_streams_wrote() -> None:
    keys = column([bytes.fromhex("6b30 000001a1fd5664e0 00000000")])
    (row,) = rows_of(row_format(StoreKind.WINDOW).decode(keys, column([b"v"])))
    assert row == (b"k0", 0x000001A1FD5664E0, 0, b"v")


@settings(deadline=None)
@given(WINDOWS, SHAPES, st.sampled_from(KINDS))
def test_rows_of_windows_go_back_to_their_parts(rows: list[Window], shape: Shape, kind: StoreKind) -> None:
    form = row_format(kind)
    keys = [window_key(*row[:3]) for row in rows]
    stamps = [row[4] for row in rows]
    batch = records(keys, [row[3] for row in rows], stamps, shape=shape)
    assert form.check(batch) is None
    assert form.times(batch.keys).tolist() == [row[1] for row in rows]
    assert form.row_keys(batch.keys).to_pylist() == keys
    assert form.index_keys(batch.keys) is None
    written = form.row_values(batch).to_pylist()
    if form.stamped:
        written = [
            None if value is None else int64(stamp) + value for value, stamp in zip(written, stamps, strict=True)
        ]
    read = form.decode(batch.keys, column(written, shape))
    middle = {StoreKind.TIMESTAMPED_WINDOW: ["timestamp"], StoreKind.HEADERS_WINDOW: ["timestamp", "headers"]}
    assert read.schema.names == ["key", "window_start", "sequence", *middle.get(kind, []), "value"]
    expected = []
    for key, start, sequence, value, stamp in rows:
        kept = [None if value is None else stamp, None if value is None else []][: len(middle.get(kind, []))]
        expected.append((key, start, sequence, *kept, value))
    assert rows_of(read) == expected


@settings(deadline=None)
@given(st.lists(st.one_of(st.none(), st.just((b"k", 7, 1))), max_size=9), SHAPES)
def test_records_without_a_key_are_skipped(rows: list[Window | None], shape: Shape) -> None:
    keys = [None if row is None else window_key(*row) for row in rows]
    batch = records(keys, shape=shape)
    form = row_format(StoreKind.WINDOW)
    assert form.check(batch) is None
    assert form.times(batch.keys).tolist() == [-1 if row is None else 7 for row in rows]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("key", "why"),
    [
        (bytes(11), "has a key of 11 bytes; window keys have at least 12"),
        (b"", "has a key of 0 bytes; window keys have at least 12"),
        (window_key(b"k", -1, 0), "has a key with the negative window time -1"),
        (window_key(b"k", -(2**63), 0), f"has a key with the negative window time {-(2**63)}"),
        (window_key(b"k", 5, -1), "has a key with a negative sequence, which no window has"),
    ],
)
@pytest.mark.parametrize("front", [[], [bytes(12)], [None], [None, bytes(12)]])
def test_a_key_that_is_no_windows_is_a_misfit(kind: StoreKind, key: bytes, why: str, front: list[bytes | None]) -> None:
    assert row_format(kind).check(records([*front, key, key])) == (len(front), why)


@pytest.mark.parametrize("kind", KINDS)
def test_text_and_keys_of_sessions_are_not_taken_for_windows_of_a_time_that_lets_all_others_expire(
    kind: StoreKind,
) -> None:
    now = 1_795_251_660_000
    window, session = window_key(b"k", now, 0), b"k" + int64(now) + int64(now - 5)
    for key in (b"an order's id", b"customer-000000000017", session):
        misfit = row_format(kind).check(records([window, None, key], timestamps=[now] * 3))
        assert misfit is not None
        assert misfit.row == 2
        assert ("negative" if key == session else "absurd") in misfit.why


def test_a_window_may_be_a_million_years_ahead_and_no_more() -> None:
    form = row_format(StoreKind.WINDOW)
    last = window_key(b"", FARTHEST_AHEAD_MS + 7, 0)
    assert form.check(records([last], timestamps=[7])) is None
    misfit = form.check(records([last, last], timestamps=[7, 6]))
    assert misfit is not None
    assert misfit.row == 1
    assert f"time {FARTHEST_AHEAD_MS + 7}, absurd" in misfit.why


def test_only_timestamped_windows_use_the_timestamp_of_the_record() -> None:
    batch = records([bytes(12)], timestamps=[-1])
    assert [row_format(kind).check(batch) is None for kind in KINDS] == [True, True, False, False]


@pytest.mark.parametrize(
    ("key", "why"),
    [(bytes(11), "Row 1 has a key of 11 bytes"), (window_key(b"", -1, 0), "Row 1 has a key with a negative window")],
)
def test_a_row_that_is_no_windows_is_corrupt(key: bytes, why: str) -> None:
    with pytest.raises(Corrupted, match=why) as caught:
        row_format(StoreKind.WINDOW).decode(column([bytes(12), key]), column([b"", b""]))
    assert caught.value.context["kind"] == "window"
