"""Rows of versioned stores, decoded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statecore.errors import Corrupted
from statecore.formats.kinds import StoreKind
from statecore.formats.registry import row_format
from statecore.formats.row_format import Records
from statecore.formats.rows.versions import decode_versions

KIND = StoreKind.VERSIONED_KEY_VALUE
LATEST = -1

# As Kafka Streams 4.3.1 wrote them.
TWO_VERSIONS = (
    "0000000001c88e5e 61",
    "000001a1fd57eb80 000001a1fd570120 000001a1fd579d60 00000004 000001a1fd570120 00000004 76657232 76657234",
)
LONE_TOMBSTONE = ("0000000001c88e5d 63", "000001a1fd5668c8 000001a1fd5668c8 000001a1fd5668c8 ffffffff")
LATEST_VALUE = ("ffffffffffffffff 64", "000001a1fd566cb0 6431")

Row = tuple[bytes, bytes]
Version = tuple[int, bytes | None]


def decode(rows: Sequence[Row], kind: Any = None) -> list[tuple[Any, ...]]:
    kind = kind or pa.binary()
    keys, values = pa.array([key for key, _ in rows], kind), pa.array([value for _, value in rows], kind)
    batch = row_format(KIND).decode(keys, values)
    assert batch.schema.names == ["key", "valid_from", "valid_to", "value"]
    batch.validate(full=True)
    return [tuple(row.values()) for row in batch.to_pylist()]


def of_hex(*rows: tuple[str, str]) -> list[Row]:
    return [(bytes.fromhex(key), bytes.fromhex(value)) for key, value in rows]


def encoded(segment: int, key: bytes, valid_to: int | None, versions: Sequence[Version]) -> Row:
    """A row, by the layout that the module draws; versions oldest first."""
    prefix = segment.to_bytes(8, "big", signed=True)
    if valid_to is None:
        ((time, value),) = versions
        return prefix + key, time.to_bytes(8, "big") + (value or b"")
    parts = [valid_to.to_bytes(8, "big"), versions[0][0].to_bytes(8, "big")]
    for time, value in reversed(versions):
        size = -1 if value is None else len(value)
        parts.append(time.to_bytes(8, "big") + size.to_bytes(4, "big", signed=True))
    return prefix + key, b"".join(parts) + b"".join(value or b"" for _, value in versions)


def test_rows_that_kafka_streams_wrote() -> None:
    assert decode(of_hex(TWO_VERSIONS, LONE_TOMBSTONE, LATEST_VALUE)) == [
        (b"a", 0x1A1FD570120, 0x1A1FD579D60, b"ver2"),
        (b"a", 0x1A1FD579D60, 0x1A1FD57EB80, b"ver4"),
        (b"c", 0x1A1FD5668C8, 0x1A1FD5668C8, None),
        (b"d", 0x1A1FD566CB0, None, b"d1"),
    ]


VALUES = st.one_of(st.none(), st.binary(max_size=10))
HISTORIES = st.tuples(
    st.integers(0, 1 << 40),
    st.binary(max_size=5),
    st.lists(st.integers(0, 1 << 45), min_size=2, max_size=7, unique=True).map(sorted),
    st.lists(VALUES, min_size=6, max_size=6),
)
LATESTS = st.tuples(st.just(LATEST), st.binary(max_size=5), st.integers(0, 1 << 45), st.binary(max_size=10))


@given(st.lists(st.one_of(HISTORIES, LATESTS), max_size=12), st.integers(0, 3), st.booleans())
def test_every_version_of_every_row_comes_once_oldest_first(
    stored: list[tuple[Any, ...]], skip: int, large: bool
) -> None:
    rows, expected = [], []
    for segment, key, times, values in stored:
        if segment == LATEST:
            rows.append(encoded(segment, key, None, [(times, values)]))
            expected.append([(key, times, None, values)])
        else:
            versions = list(zip(times[:-1], values, strict=False))
            rows.append(encoded(segment, key, times[-1], versions))
            expected.append([(key, time, times[i + 1], value) for i, (time, value) in enumerate(versions)])
    # A slice of a larger array is decoded from where it begins.
    kind = pa.large_binary() if large else pa.binary()
    keys, values = pa.array([key for key, _ in rows], kind), pa.array([value for _, value in rows], kind)
    batch = row_format(KIND).decode(keys.slice(skip), values.slice(skip))
    batch.validate(full=True)
    assert [tuple(row.values()) for row in batch.to_pylist()] == [one for many in expected[skip:] for one in many]


def test_a_late_record_that_kafka_streams_put_before_a_newer_version_after_a_restart() -> None:
    head = (0x1A2297BB1C0).to_bytes(8) + (0x1A2297B5727).to_bytes(8)
    entries = (0x1A2297A379A).to_bytes(8) + (4).to_bytes(4) + (0x1A2297B5727).to_bytes(8) + (5).to_bytes(4)
    assert decode([((29933205).to_bytes(8) + b"0-12", head + entries + b"newer" + b"late")]) == [
        (b"0-12", 0x1A2297B5727, 0x1A2297A379A, b"newer"),
        (b"0-12", 0x1A2297A379A, 0x1A2297BB1C0, b"late"),
    ]


@pytest.mark.parametrize("times", [2, 3])
def test_a_record_that_was_processed_again_is_one_version(times: int) -> None:
    """As Kafka Streams 4.4 writes it at-least-once; it never finds the second one."""
    version = (0x1A22DA2C1DD).to_bytes(8) + (13).to_bytes(4)
    value = (0x1A22DA52BC2).to_bytes(8) + (0x1A22DA2C1DD).to_bytes(8) + times * version + times * b"events 3 of 1"
    row = (29933205).to_bytes(8) + b"k", value
    one = b"k", 0x1A22DA2C1DD, 0x1A22DA52BC2, b"events 3 of 1"
    assert decode([row, *of_hex(LATEST_VALUE), row]) == [one, (b"d", 0x1A1FD566CB0, None, b"d1"), one]
    assert decode_versions(29933205, value) == [one[1:]]
    with pytest.raises(Corrupted, match="belong to no version"):
        decode([(row[0], value + b"x")])


def test_a_row_of_very_many_versions() -> None:
    versions: list[Version] = [(time, b"%d" % time) for time in range(2000)]
    assert [row[3] for row in decode([encoded(0, b"k", 2000, versions)])] == [value for _, value in versions]


TIME = "0000000000000005"
LATER = "0000000000000009"


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("00000000000000", TIME, "Row 1 has a key of 7 bytes"),
        ("fffffffffffffffe", TIME, "negative segment id"),
        ("ffffffffffffffff", "00000000000000", "without a time"),
        ("0000000000000000", TIME, "without the time of its oldest version"),
        ("0000000000000000", LATER + TIME, "end too early"),
        ("0000000000000000", LATER + TIME + TIME, "end too early"),
        ("0000000000000000", LATER + TIME + TIME + "00000002" + "61", "end too early"),
        ("0000000000000000", LATER + TIME + TIME + "00000002" + "616161", "bytes that belong to no version"),
        ("0000000000000000", LATER + TIME + LATER + "00000000" + TIME + "00000000", "out of order"),
        ("0000000000000000", LATER + LATER + TIME + "00000000", "out of order"),
        ("0000000000000000", TIME + TIME + TIME + "00000000", "out of order"),
    ],
)
def test_rows_that_are_none_of_a_versioned_store_are_refused(key: str, value: str, why: str) -> None:
    with pytest.raises(Corrupted, match=why):
        decode([*of_hex(LATEST_VALUE), *of_hex((key, value))])


def test_negative_timestamps_in_a_changelog_are_named() -> None:
    keys, values = pa.array([b"a", b"b"], pa.binary()), pa.array([None, b"x"], pa.binary())
    assert row_format(KIND).check(Records(keys, values, pa.array([0, 1]))) is None
    misfit = row_format(KIND).check(Records(keys, values, pa.array([0, -1])))
    assert misfit is not None
    assert (misfit.row, "timestamp -1" in misfit.why) == (1, True)
