from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rocksdict import AccessType, IngestExternalFileOptions, Options, Rdict

from statecore.changelog.decoder import CHANGELOG_SCHEMA, HEADERS_FIELD
from statecore.errors import Corrupted, Invalid
from statecore.formats.kinds import StoreKind
from statecore.formats.registry import row_format
from statecore.formats.row_format import Misfit
from statecore.formats.segments import Segmentation
from statecore.formats.window import FARTHEST_AHEAD_MS
from statecore.images.model import BaseDatabases
from statecore.images.runs import RunBuilder
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

WINDOWS = [
    StoreKind.EMIT_FINAL_WINDOW,
    StoreKind.EMIT_FINAL_SLIDING_WINDOW,
    StoreKind.HEADERS_EMIT_FINAL_WINDOW,
    StoreKind.HEADERS_EMIT_FINAL_SLIDING_WINDOW,
]
SESSIONS = [StoreKind.EMIT_FINAL_SESSION, StoreKind.HEADERS_EMIT_FINAL_SESSION]
# Key, first time (window start or session start), sequence or length of the session.
PARTS = st.tuples(KEYS, KEY_TIMES, st.integers(0, 2**31 - 1)).filter(lambda one: one[1] + one[2] <= FARTHEST_AHEAD_MS)
ROWS = st.lists(st.tuples(PARTS, VALUES, TIMES), max_size=15)

Parts = tuple[bytes, int, int]


def changelog_key(kind: StoreKind, parts: Parts) -> bytes:
    key, time, other = parts
    return key + (int64(time + other) + int64(time) if kind in SESSIONS else int64(time) + int32(other))


def base_key(kind: StoreKind, parts: Parts) -> bytes:
    key, time, other = parts
    if kind in SESSIONS:
        return b"\0" + int64(time + other) + int64(time) + key
    return b"\0" + int64(time) + key + int32(other)


def index_key(kind: StoreKind, parts: Parts) -> bytes | None:
    return None if kind is StoreKind.EMIT_FINAL_WINDOW else b"\1" + changelog_key(kind, parts)


def row_value(kind: StoreKind, value: bytes, stamp: int) -> bytes:
    """The value of a record without headers."""
    if kind in SESSIONS:
        return value
    return (b"\0" if kind.value.startswith("headers") else b"") + int64(stamp) + value


def test_rows_of_a_sliding_window_have_time_first_and_an_index() -> None:
    form = row_format(StoreKind.EMIT_FINAL_SLIDING_WINDOW)
    rows = form.row_keys(column([bytes.fromhex("6b30 000001a1fd5664e0 00000000")]))
    assert rows[0].as_py().hex() == "00000001a1fd5664e06b3000000000"
    assert form.index_keys(rows).to_pylist() == [bytes.fromhex("01 6b30 000001a1fd5664e0 00000000")]


@settings(deadline=None)
@given(ROWS, SHAPES, st.sampled_from([*WINDOWS, *SESSIONS]))
def test_rows_are_re_keyed_and_go_back_to_their_parts(
    rows: list[tuple[Parts, bytes | None, int]], shape: Shape, kind: StoreKind
) -> None:
    form = row_format(kind)
    keys = [changelog_key(kind, parts) for parts, _, _ in rows]
    batch = records(keys, [value for _, value, _ in rows], [stamp for _, _, stamp in rows], shape=shape)
    assert form.check(batch) is None
    times = [parts[1] + (parts[2] if kind in SESSIONS else 0) for parts, _, _ in rows]
    assert form.times(batch.keys).tolist() == times
    base = form.row_keys(batch.keys)
    base.validate(full=True)
    assert base.to_pylist() == [base_key(kind, parts) for parts, _, _ in rows]
    assert form.time_at == 1
    index = form.index_keys(base)
    indexed = [index_key(kind, parts) for parts, _, _ in rows]
    assert (index is None) == (kind is StoreKind.EMIT_FINAL_WINDOW)
    if index is not None:
        index.validate(full=True)
        assert index.to_pylist() == indexed
    # As they lie in a database: all base rows, then all index rows, which a reader leaves out.
    values = [None if value is None else row_value(kind, value, stamp) for _, value, stamp in rows]
    written = form.row_values(batch).to_pylist()
    if form.stamped:
        written = [
            None if row is None else int64(stamp) + row for row, (_, _, stamp) in zip(written, rows, strict=True)
        ]
    assert written == values
    stored_index = [key for key in indexed if key is not None]
    read = form.decode(
        column([*base.to_pylist(), *stored_index], shape), column([*values, *([b""] * len(stored_index))], shape)
    )
    expected = []
    for (key, time, other), value, stamp in rows:
        middle = [time, time + other] if kind in SESSIONS else [time, other, None if value is None else stamp]
        if kind in WINDOWS and kind.value.startswith("headers"):
            middle.append(None if value is None else [])
        expected.append((key, *middle, value))
    assert rows_of(read) == expected


@settings(deadline=None)
@given(st.lists(st.one_of(st.none(), PARTS), max_size=9), SHAPES, st.sampled_from([*WINDOWS, *SESSIONS]))
def test_keys_that_are_null_stay_null(keys: list[Parts | None], shape: Shape, kind: StoreKind) -> None:
    form = row_format(kind)
    batch = records([None if key is None else changelog_key(kind, key) for key in keys], shape=shape)
    assert form.check(batch) is None
    assert form.row_keys(batch.keys).to_pylist() == [None if key is None else base_key(kind, key) for key in keys]


def _misfit(found: Misfit | None, why: str) -> int:
    """The row of a misfit that has these words."""
    assert found is not None
    assert why in found.why
    return found.row


@pytest.mark.parametrize("kind", WINDOWS)
def test_a_key_that_is_no_windows_is_a_misfit(kind: StoreKind) -> None:
    form = row_format(kind)
    assert _misfit(form.check(records([bytes(12), bytes(11)])), "key of 11 bytes") == 1
    assert _misfit(form.check(records([int64(-3) + int32(0)])), "negative window time -3") == 0


@pytest.mark.parametrize("kind", WINDOWS)
def test_the_records_timestamp_must_not_be_negative(kind: StoreKind) -> None:
    misfit = row_format(kind).check(records([bytes(12), bytes(12)], timestamps=[0, -1]))
    assert misfit is not None
    assert misfit.row == 1


def test_headers_of_sessions_are_lost_as_in_kafka_streams() -> None:
    form = row_format(StoreKind.HEADERS_EMIT_FINAL_SESSION)
    assert not form.needs_headers
    assert form.row_values(records([bytes(16)], [b"sum"])).to_pylist() == [b"sum"]
    assert StoreKind.HEADERS_EMIT_FINAL_SESSION.data_column_family == "sessionKeyValueWithHeaders"


@pytest.mark.parametrize(
    ("kind", "key", "why"),
    [
        (StoreKind.EMIT_FINAL_WINDOW, b"", "Row 1 has a key of 0 bytes"),
        (StoreKind.EMIT_FINAL_WINDOW, b"\2" + bytes(12), "Row 1 has a key that begins neither with 00 nor with 01"),
        (StoreKind.EMIT_FINAL_WINDOW, bytes(12), "Row 1 has a key of 12 bytes; .* at least 13"),
        (StoreKind.EMIT_FINAL_WINDOW, b"\0" + int64(-1) + bytes(4), "Row 1 has a key with a negative window start"),
        (StoreKind.EMIT_FINAL_SESSION, bytes(16), "Row 1 has a key of 16 bytes; .* at least 17"),
        (StoreKind.EMIT_FINAL_SESSION, b"\0" + int64(1) + int64(2), "Row 1 has a key whose session ends before"),
    ],
)
def test_a_row_that_is_neither_base_nor_index_is_corrupt(kind: StoreKind, key: bytes, why: str) -> None:
    with pytest.raises(Corrupted, match=why):
        row_format(kind).decode(column([bytes(17), key]), column([bytes(8), bytes(8)]))


SEGMENTATION = Segmentation(retention_ms=100, interval_ms=50)
WRITES = st.lists(
    st.tuples(
        st.tuples(st.sampled_from([b"", b"a", b"ab", b"b\0", b"long-" * 5]), st.integers(0, 400), st.integers(0, 2)),
        st.one_of(st.none(), st.binary(max_size=3)),
    ),
    max_size=40,
)

Write = tuple[Parts, bytes | None]


def changelog(kind: StoreKind, writes: list[Write], first: int) -> pa.RecordBatch:
    arrays = [
        column([changelog_key(kind, parts) for parts, _ in writes]),
        column([value for _, value in writes]),
        pa.array(range(first, first + len(writes)), pa.int64()),
        pa.array([1000 + first + number for number in range(len(writes))], pa.int64()),
        column([b"\0"] * len(writes)),
    ]
    return pa.record_batch(arrays, schema=CHANGELOG_SCHEMA.append(HEADERS_FIELD))


def expected_segments(kind: StoreKind, writes: list[Write]) -> dict[int, dict[bytes, bytes]]:
    """What a store keeps of these writes: a plain dict a segment is the model."""
    times = [parts[1] + (parts[2] if kind in SESSIONS else 0) for parts, _ in writes]
    oldest = max(0, max(times, default=-1) - SEGMENTATION.retention_ms) // SEGMENTATION.interval_ms
    segments: dict[int, dict[bytes, bytes]] = {}
    for number, ((parts, value), time) in enumerate(zip(writes, times, strict=True)):
        rows = segments.setdefault(time // SEGMENTATION.interval_ms, {})
        for key, row in (
            (base_key(kind, parts), None if value is None else row_value(kind, value, 1000 + number)),
            (index_key(kind, parts), None if value is None else b""),
        ):
            if key is not None and row is not None:
                rows[key] = row
            elif key is not None:
                rows.pop(key, None)
    return {segment: rows for segment, rows in segments.items() if segment >= oldest and rows}


def ingested(directory: Path, files: list[str]) -> dict[bytes, bytes]:
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    database = Rdict(str(directory), options, access_type=AccessType.read_write())
    for file in files:
        ingest = IngestExternalFileOptions()
        ingest.set_move_files(False)
        database.ingest_external_file([file], ingest)
    rows = dict(database.items())
    database.close()
    return rows


@settings(max_examples=25, deadline=None)
@given(writes=WRITES, kind=st.sampled_from([*WINDOWS, *SESSIONS]), rows=st.integers(1, 40), budget=st.booleans())
def test_runs_hold_base_and_index_rows_of_live_segments(
    tmp_path_factory: pytest.TempPathFactory, writes: list[Write], kind: StoreKind, rows: int, budget: bool
) -> None:
    path = tmp_path_factory.mktemp("emit-final")
    builder = RunBuilder(
        kind, path, base=BaseDatabases.NONE, segmentation=SEGMENTATION, memory_budget=1 if budget else 1 << 20
    )
    for first in range(0, len(writes), rows):
        builder.add(changelog(kind, writes[first : first + rows], first))
    runs = builder.finish()
    expected = expected_segments(kind, writes)
    files: dict[int, list[str]] = {}
    for run in runs:
        assert run.segment is not None
        files.setdefault(run.segment, []).append(str(run.path))
    # A cut run may hold segments that expired later; an image leaves them out.
    built = {segment: ingested(path / f"segment-{segment}", files[segment]) for segment in files}
    live = max((parts[1] + (parts[2] if kind in SESSIONS else 0) for parts, _ in writes), default=-1)
    oldest = max(0, live - SEGMENTATION.retention_ms) // SEGMENTATION.interval_ms
    assert builder.statistics.stream_time == live
    assert {segment: rows for segment, rows in built.items() if segment >= oldest and rows} == expected
    if len(writes) <= rows:
        assert all(segment >= oldest for segment in files)


def test_a_run_refuses_keys_of_another_kind(tmp_path: Path) -> None:
    builder = RunBuilder(StoreKind.EMIT_FINAL_SESSION, tmp_path, base=BaseDatabases.NONE, segmentation=SEGMENTATION)
    batch = changelog(StoreKind.EMIT_FINAL_WINDOW, [((b"k", 5, 0), b"v")], 7)
    with pytest.raises(Invalid, match="key of 13 bytes") as caught:
        builder.add(batch)
    assert caught.value.context["offset"] == 7
