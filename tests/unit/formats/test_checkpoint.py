from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statecore.errors import Corrupted, Invalid
from statecore.formats.checkpoint import (
    MAX_BYTES,
    decode_checkpoint,
    encode_checkpoint,
    position_file,
    store_checkpoint_file,
)
from statecore.formats.topic_partition import TopicPartition
from tests.harness.raising import raises

A0, A1, B0 = TopicPartition("a-changelog", 0), TopicPartition("a-changelog", 1), TopicPartition("b-changelog", 0)
INT64_MAX = 2**63 - 1

WRITTEN = {
    "3.9.1 .checkpoint": (
        b"0\n2\nold391-ex-plain-changelog 1 19\nold391-ex-stamped-changelog 1 19\n",
        {("old391-ex-plain-changelog", 1): 19, ("old391-ex-stamped-changelog", 1): 19},
    ),
    "3.9.1 plain.position": (b"0\n1\nold391-at-in 1 19\n", {("old391-at-in", 1): 19}),
    "4.2.0 .checkpoint": (
        b"0\n2\nold420-ex-stamped-changelog 1 20\nold420-ex-plain-changelog 1 20\n",
        {("old420-ex-plain-changelog", 1): 20, ("old420-ex-stamped-changelog", 1): 20},
    ),
    "4.2.0 plain.position": (b"0\n1\nold420-ex-in 1 19\n", {("old420-ex-in", 1): 19}),
    "4.3.1 .checkpoint_late-Buffer": (
        b"0\n1\nSGa-sjg-Buffer-changelog 0 3226\n",
        {("SGa-sjg-Buffer-changelog", 0): 3226},
    ),
}
"""Files that these versions of Kafka Streams left at a clean close."""

TOPICS = st.from_regex(r"[a-zA-Z0-9._-]{1,30}", fullmatch=True)
PARTITIONS = st.builds(TopicPartition, TOPICS, st.integers(0, 2**31 - 1))
OFFSETS = st.dictionaries(PARTITIONS, st.integers(0, INT64_MAX) | st.just(-4), max_size=20)


def read(text: str | bytes) -> dict[TopicPartition, int]:
    return decode_checkpoint(text if isinstance(text, bytes) else text.encode(), "0_0/.checkpoint")


def test_the_bytes_are_those_of_kafka_streams_with_entries_in_order() -> None:
    data = encode_checkpoint({B0: -4, A1: INT64_MAX, A0: 3144})
    assert data == b"0\n3\na-changelog 0 3144\na-changelog 1 9223372036854775807\nb-changelog 0 -4\n"


@pytest.mark.parametrize("name", WRITTEN)
def test_files_of_real_applications_are_read(name: str) -> None:
    data, offsets = WRITTEN[name]
    assert decode_checkpoint(data, name) == offsets
    ours = encode_checkpoint({TopicPartition(*partition): offset for partition, offset in offsets.items()})
    assert sorted(ours.splitlines(keepends=True)) == sorted(data.splitlines(keepends=True))


@given(OFFSETS)
def test_what_is_written_is_read_back(offsets: dict[TopicPartition, int]) -> None:
    assert decode_checkpoint(encode_checkpoint(offsets), "f") == offsets


@given(OFFSETS)
def test_the_order_of_a_mapping_does_not_change_the_bytes(offsets: dict[TopicPartition, int]) -> None:
    assert encode_checkpoint(dict(reversed(offsets.items()))) == encode_checkpoint(offsets)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused_with_one_error(data: bytes) -> None:
    try:
        offsets = decode_checkpoint(data, "f")
    except Corrupted:
        return
    assert decode_checkpoint(encode_checkpoint(offsets), "f") == offsets


@pytest.mark.parametrize(
    ("text", "offsets"),
    [
        ("0\n0\n", {}),
        ("0\n1\na-changelog 0 5", {A0: 5}),  # the last line needs no end
        ("0\r\n2\r\na-changelog 0 5\r\na-changelog 1 6\r\n", {A0: 5, A1: 6}),
        ("0\r1\ra-changelog 0 5\r", {A0: 5}),
        ("+0\n+01\na-changelog\t 00 \x0b+5 \n", {A0: 5}),
        ("0\n1\na-changelog 0 -0\n", {A0: 0}),
        ("0\n2\na-changelog 0 -1\nb-changelog 0 7\n", {B0: 7}),
        ("0\n1\na-changelog 0 -9223372036854775808\n", {}),
        ("0\n2\na-changelog 0 -4\nb-changelog 0 -3\n", {A0: -4}),
        ("0\n2\na-changelog 0 5\na-changelog 0 -1\n", {A0: 5}),
    ],
)
def test_what_kafka_streams_reads_is_read(text: str, offsets: dict[TopicPartition, int]) -> None:
    assert read(text) == offsets


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "it has 0 lines"),
        ("0", "it has 1 lines"),
        ("1\n0\n", "its version is '1', not 0"),
        ("-1\n0\n", "its version"),
        ("x\n0\n", "its version is 'x'"),
        (" 0\n0\n", "its version"),
        ("\ufeff0\n0\n", "its version"),
        ("\n0\n0\n", "its version"),
        ("0\nmany\n", "line 2 is not a number"),
        ("0\n1 \na-changelog 0 5\n", "line 2 is not a number"),
        ("0\n2147483648\na-changelog 0 5\n", "line 2 is not a number"),
        ("0\n-1\n", "states -1 entries but has 0"),
        ("0\n2\na-changelog 0 5\n", "states 2 entries but has 1"),
        ("0\n0\na-changelog 0 5\n", "states 0 entries but has 1"),
        ("0\n1\na-changelog 0 5\nb-changelog 0 5\n", "states 1 entries but has 2"),
        ("0\n1\na-changelog 0\n", "line 3 is not"),
        ("0\n1\na-changelog 0 5 6\n", "line 3 is not"),
        ("0\n1\n a-changelog 0 5\n", "line 3 is not"),
        ("0\n1\n\na-changelog 0 5\n", "line 3 is not"),
        ("0\n1\na-changelog 0 5\n\n", "line 4 is not"),
        ("0\n1\na-changelog 0 5\n   \n", "line 4 is not"),
        ("0\n1\na-changelog zero 5\n", "line 3 is not"),
        ("0\n1\na-changelog 0 5.0\n", "line 3 is not"),
        ("0\n1\na-changelog 0 1_0\n", "line 3 is not"),
        ("0\n1\na-changelog 0 ٥\n", "line 3 is not"),
        ("0\n1\na-changelog 0 9223372036854775808\n", "line 3 is not"),
        ("0\n1\na-changelog 0 -9223372036854775809\n", "line 3 is not"),
        ("0\n1\na-changelog 2147483648 5\n", "line 3 is not"),
        ("0\n1\na-changelog -1 5\n", "line 3 is not"),
        ("0\n1\na/changelog 0 5\n", "line 3 is not"),
        ("0\n1\na\0changelog 0 5\n", "line 3 is not"),
        (f"0\n1\n{'a' * 250} 0 5\n", "line 3 is not"),
        ("0\n1\na-changelog 0 5\x85b-changelog 0 6\n", "line 3 is not"),  # a line end to Unicode, not to Java
        ("0\n2\na-changelog 0 5\na-changelog 0 6\n", "line 4 names a-changelog-0 a second time"),
        ("0\n1\na-changelog 0 5\na-changelog 0 5\n", "line 4 names a-changelog-0 a second time"),
        (b"\0" * 64, "lines"),
        (b"0\n1\na-changelog 0 5\n" + b"\0" * 20, "line 4 is not"),
        (b"0\n1\na-change\xff 0 5\n", "byte 12 is not UTF-8"),
        (b"0\n1\na-change\xc3", "is not UTF-8"),
        (b"0\n1\na-changelog 0 " + b"9" * 5000, "line 3 is not"),
    ],
)
def test_a_malformed_file_is_one_clear_error(text: str | bytes, why: str) -> None:
    with pytest.raises(Corrupted) as raised:
        read(text)
    assert raised.value.what.startswith("0_0/.checkpoint cannot be read: ")
    assert raised.value.context["file"] == "0_0/.checkpoint"
    assert why in raised.value.what
    assert len(raised.value.what) < 300, "an error shows a little of a line, not all of it"


def test_a_huge_file_is_refused_before_it_is_read() -> None:
    with pytest.raises(Corrupted, match="more than"):
        read(b"0\n1\na-changelog 0 5\n" + b" " * MAX_BYTES)


@pytest.mark.parametrize(
    "offsets",
    [
        {A0: -1},
        {A0: -5},
        {A0: 2**63},
        {TopicPartition("a-changelog", -1): 5},
        {TopicPartition("a-changelog", 2**31): 5},
        {TopicPartition("", 0): 5},
        {TopicPartition("a changelog", 0): 5},
        {TopicPartition("a\n1", 0): 5},
        {TopicPartition("ä", 0): 5},
        {TopicPartition("a" * 250, 0): 5},
    ],
)
def test_what_kafka_streams_could_not_read_is_not_written(offsets: dict[TopicPartition, int]) -> None:
    with raises(Invalid, "checkpoint-entry-invalid"):
        encode_checkpoint(offsets)


def test_the_names_of_the_files() -> None:
    assert (store_checkpoint_file("clicks"), position_file("clicks")) == (".checkpoint_clicks", "clicks.position")


def test_of_a_partition_that_is_named_twice_the_last_line_can_win() -> None:
    """As in Kafka Streams, which counts it once."""
    data = b"0\n2\na 0 5\nb 0 1\na 0 6\n"
    assert decode_checkpoint(data, "it", last_wins=True) == {TopicPartition("a", 0): 6, TopicPartition("b", 0): 1}
    with raises(Corrupted, "checkpoint-file-damaged"):
        decode_checkpoint(data.replace(b"\n2\n", b"\n3\n"), "it", last_wins=True)
