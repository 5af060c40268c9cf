import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statecore.errors import Corrupted
from statecore.formats.key_value import put_on_timestamps, take_off_timestamps
from statecore.formats.kinds import StoreKind
from statecore.formats.registry import row_format
from statecore.formats.row_format import Records

VALUES = st.one_of(st.none(), st.binary(max_size=30))
RECORDS = st.lists(st.tuples(VALUES, st.integers(-(2**63), 2**63 - 1)), max_size=40)
TYPES = st.sampled_from([pa.binary(), pa.large_binary()])


def test_a_timestamped_row_has_the_bytes_kafka_streams_wrote() -> None:
    values = pa.array([bytes.fromhex("0000000000000014")])
    stamps = pa.array([0x000001A1FD5D5A20])
    rows = put_on_timestamps(values, stamps)
    assert rows.to_pylist() == [bytes.fromhex("000001a1fd5d5a20 0000000000000014")]


def test_a_plain_row_is_the_value_itself() -> None:
    values = pa.array([b"a", None, b""])
    assert row_format(StoreKind.KEY_VALUE).row_values(Records(values, values, pa.array([1, 2, 3]))) is values


@settings(deadline=None)  # the first example loads the kernels
@given(RECORDS, TYPES, st.integers(0, 9), st.integers(0, 9))
def test_timestamped_rows_are_timestamp_then_value_and_go_back(
    records: list[tuple[bytes | None, int]], arrow_type: pa.DataType, head: int, tail: int
) -> None:
    # The slice stands in for a batch cut out of a larger one: its offsets and validity do not begin at zero.
    padding = [(b"x", 1)]
    whole = padding * head + records + padding * tail
    values = pa.array([value for value, _ in whole], arrow_type).slice(head, len(records))
    stamps = pa.array([stamp for _, stamp in whole], pa.int64()).slice(head, len(records))
    rows = put_on_timestamps(values, stamps)
    rows.validate(full=True)
    assert rows.to_pylist() == [
        None if value is None else stamp.to_bytes(8, "big", signed=True) + value for value, stamp in records
    ]
    back, back_stamps = take_off_timestamps(rows, StoreKind.TIMESTAMPED_KEY_VALUE)
    back.validate(full=True)
    assert back.to_pylist() == [value for value, _ in records]
    assert back_stamps.to_pylist() == [None if value is None else stamp for value, stamp in records]


def test_a_row_without_room_for_its_timestamp_is_corrupt() -> None:
    with pytest.raises(Corrupted, match=r"Row 1 .*7 bytes"):
        take_off_timestamps(pa.array([b"12345678", b"1234567"]), StoreKind.TIMESTAMPED_KEY_VALUE)


@settings(deadline=None)
@given(RECORDS, TYPES)
def test_rows_are_read_as_key_timestamp_and_value(
    records: list[tuple[bytes | None, int]], arrow_type: pa.DataType
) -> None:
    rows = [None if value is None else stamp.to_bytes(8, "big", signed=True) + value for value, stamp in records]
    keys, values = pa.array([b"k"] * len(rows), arrow_type), pa.array(rows, arrow_type)
    read = row_format(StoreKind.TIMESTAMPED_KEY_VALUE).decode(keys, values)
    assert read.to_pylist() == [
        {"key": b"k", "timestamp": None if value is None else stamp, "value": value} for value, stamp in records
    ]
    plain = row_format(StoreKind.KEY_VALUE).decode(keys, values)
    assert plain.to_pylist() == [{"key": b"k", "value": row} for row in rows]


def test_only_stamped_rows_refuse_a_negative_timestamp() -> None:
    keys = pa.array([b"a", b"b", b"c"])
    batch = Records(keys, keys, pa.array([5, -1, -2]))
    assert row_format(StoreKind.KEY_VALUE).check(batch) is None
    misfit = row_format(StoreKind.TIMESTAMPED_KEY_VALUE).check(batch)
    assert misfit is not None
    assert (misfit.row, "timestamp -1;" in misfit.why) == (1, True)
