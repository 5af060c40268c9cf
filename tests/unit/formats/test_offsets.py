import pytest
from hypothesis import given
from hypothesis import strategies as st

from statecore.errors import Corrupted, Invalid
from statecore.formats import offsets
from statecore.formats.offsets import checked_offsets
from statecore.formats.topic_partition import TopicPartition
from tests.harness.raising import raises


def test_offset_of_a_real_store_has_the_bytes_kafka_streams_wrote() -> None:
    assert offsets.offset_key(TopicPartition("A-tkv-changelog", 0)) == b"A-tkv-changelog-0"
    assert offsets.encode_int64(99).hex() == "0000000000000063"
    assert offsets.encode_int64(offsets.OFFSET_UNKNOWN).hex() == "fffffffffffffffc"
    assert offsets.encode_int64(offsets.STATUS_OPEN).hex() == "0000000000000001"
    assert offsets.encode_int64(offsets.STATUS_CLOSED).hex() == "0000000000000000"


@given(st.integers(-(2**63), 2**63 - 1))
def test_offsets_round_trip(value: int) -> None:
    assert offsets.decode_int64(offsets.encode_int64(value)) == value


@given(st.from_regex(r"[a-zA-Z0-9._-]{1,40}", fullmatch=True), st.integers(0, 2**31 - 1))
def test_keys_round_trip_whatever_dashes_the_topic_has(topic: str, partition: int) -> None:
    named = TopicPartition(topic, partition)
    assert offsets.partition_of_key(offsets.offset_key(named)) == named


def test_status_and_position_name_no_partition() -> None:
    assert offsets.partition_of_key(b"status") is None
    assert offsets.partition_of_key(b"position") is None


@pytest.mark.parametrize("key", [b"topic", b"-3", b"topic-", b"topic-x", b"\xff\xfe", b""])
def test_a_foreign_key_is_corrupt(key: bytes) -> None:
    with pytest.raises(Corrupted):
        offsets.partition_of_key(key)


@pytest.mark.parametrize("value", [b"", b"\0" * 7, b"\0" * 9])
def test_a_value_of_another_length_is_corrupt(value: bytes) -> None:
    with pytest.raises(Corrupted, match="not 8"):
        offsets.decode_int64(value)


def test_an_offset_that_cannot_be_is_a_value_of_the_error():
    class Confluent:
        topic, partition = "app-s-changelog", 2

    partition = TopicPartition("app-s-changelog", 2)
    with raises(Invalid, "offset-invalid", topic=partition.topic, partition=2, value="-2"):
        checked_offsets({partition: -2})
    with raises(Invalid, "partition-duplicate", topic=partition.topic, partition=2, offsets=[1, 3]):
        checked_offsets({partition: 1, Confluent(): 3})


def test_a_global_store_keeps_the_next_offset_itself() -> None:
    assert [offsets.next_offset(99, is_global=is_global) for is_global in (False, True)] == [100, 99]
