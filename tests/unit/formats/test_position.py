import pytest
from hypothesis import given
from hypothesis import strategies as st

from statecore.errors import Corrupted, Invalid
from statecore.formats.checkpoint import decode_checkpoint, encode_checkpoint
from statecore.formats.position import (
    decode_position,
    encode_position,
    merge_position,
    offsets_of_position,
    position_of_offsets,
    validated_position,
)
from statecore.formats.topic_partition import TopicPartition
from tests.harness.raising import raises

GOLDEN = bytes.fromhex("00 00000001 00000002") + b"in" + bytes.fromhex("00000001 00000000 0000000000000063")
BAD = [b"", b"\x01" + GOLDEN[1:], b"\0\xff\xff\xff\xff", GOLDEN[:5] + b"\xff" * 20]


def test_the_bytes_are_those_kafka_streams_wrote() -> None:
    assert encode_position({"in": {0: 99}}) == GOLDEN


def test_what_is_behind_its_end_is_not_read() -> None:
    """Kafka Streams pads it with zeros, and starts with whatever else is there."""
    padded = GOLDEN + bytes(202 - len(GOLDEN))
    assert decode_position(padded) == {"in": {0: 99}}
    assert decode_position(bytes(40)) == {}
    assert decode_position(padded + b"junk") == {"in": {0: 99}}
    assert decode_position(bytes(5) + b"junk") == {}


PARTITIONS = st.dictionaries(st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1), max_size=5)


@given(st.dictionaries(st.text(max_size=20), PARTITIONS, max_size=4), st.integers(0, 50))
def test_positions_round_trip(position: dict[str, dict[int, int]], padding: int) -> None:
    assert decode_position(encode_position(position) + bytes(padding)) == position


@pytest.mark.parametrize("cut", range(len(GOLDEN)))
def test_a_truncated_position_is_corrupt(cut: int) -> None:
    with pytest.raises(Corrupted):
        decode_position(GOLDEN[:cut])


@pytest.mark.parametrize("bad", BAD)
def test_a_damaged_position_is_corrupt(bad: bytes) -> None:
    with pytest.raises(Corrupted):
        decode_position(bad)


def test_a_position_equals_its_text_form() -> None:
    position = {"in": {0: 99, 1: 5}, "other": {2: 0}}
    offsets = offsets_of_position(position)
    assert offsets == {TopicPartition("in", 0): 99, TopicPartition("in", 1): 5, TopicPartition("other", 2): 0}
    assert position_of_offsets(decode_checkpoint(encode_checkpoint(offsets), "in.position")) == position


def test_merging_keeps_the_greater_offset_of_each_partition() -> None:
    position = {"in": {0: 9, 1: 5}}
    other = {"in": {0: 8, 1: 6, 2: -4}, "new": {0: 1}}
    merge_position(position, other)
    assert position == {"in": {0: 9, 1: 6, 2: -4}, "new": {0: 1}}
    position["new"][0] = 7
    assert other["new"] == {0: 1}, "what was merged in is not shared"


def test_a_record_that_cannot_be_is_a_value_of_the_error():
    with raises(Invalid, "offset-invalid", topic="orders", partition=1, value="-4"):
        validated_position("orders", 1, -4)
