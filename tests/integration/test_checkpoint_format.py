"""The checkpoint format against Kafka Streams' own ``OffsetCheckpoint``: each reads what the other wrote."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError

from statecore.errors import Corrupted
from statecore.formats.checkpoint import decode_checkpoint, encode_checkpoint
from statecore.formats.topic_partition import TopicPartition
from tests.harness.streams import StreamsJvm

pytestmark = pytest.mark.integration

LETTERS = "abcXYZ019._-"
INT64_MAX = 2**63 - 1


class Java:
    """Kafka Streams' reader and writer of a file."""

    def __init__(self, jvm: StreamsJvm, directory: Path) -> None:
        self._jvm, self._directory = jvm.jvm, directory

    def read(self, data: bytes) -> str | None:
        """What it reads, sorted, as ``topic-partition=offset`` with commas; ``None`` when it refuses."""
        read = self._read(data)
        if read is None:
            return None
        text = self._jvm.java.util.Objects.toString(read)  # in one call, not one for each entry
        return ", ".join(sorted(text[1:-1].split(", ")))

    def rewrite(self, data: bytes) -> bytes:
        """What it writes after it has read."""
        target = self._directory / "theirs"
        self._checkpoint(target).write(self._read(data))
        return target.read_bytes() if target.exists() else encode_checkpoint({})

    def _read(self, data: bytes) -> Any:
        source = self._directory / "ours"
        source.write_bytes(data)
        try:
            return self._checkpoint(source).read()
        except Py4JJavaError as error:
            if re.search(r"IOException|EOFException|MalformedInput|IllegalArgument|NumberFormat", str(error)):
                return None
            raise

    def _checkpoint(self, path: Path) -> Any:
        internals = self._jvm.org.apache.kafka.streams.state.internals
        return internals.OffsetCheckpoint(self._jvm.java.io.File(str(path)))


def said(offsets: dict[TopicPartition, int]) -> str:
    return ", ".join(sorted(f"{partition}={offset}" for partition, offset in offsets.items()))


def some_offsets(dice: random.Random) -> dict[TopicPartition, int]:
    def one() -> tuple[TopicPartition, int]:
        topic = "".join(dice.choices(LETTERS, k=dice.choice([1, 5, 30, 249])))
        partition = dice.choice([0, 1, 2**31 - 1, dice.randrange(1000)])
        return TopicPartition(topic, partition), dice.choice([0, -4, INT64_MAX, dice.randrange(10**9)])

    return dict(one() for _ in range(dice.choice([0, 1, 2, 10])))


def test_each_reads_what_the_other_wrote(streams_jvm: StreamsJvm, tmp_path: Path) -> None:
    java, dice = Java(streams_jvm, tmp_path), random.Random(5)
    for _ in range(300):
        offsets = some_offsets(dice)
        data = encode_checkpoint(offsets)
        assert java.read(data) == said(offsets)
        theirs = java.rewrite(data)
        assert decode_checkpoint(theirs, "theirs") == offsets
        assert sorted(theirs.splitlines(keepends=True)) == sorted(data.splitlines(keepends=True)), (
            "only the order is free"
        )


def mutated(data: bytes, dice: random.Random) -> bytes:
    lines = data.decode(errors="surrogateescape").splitlines(keepends=True)
    at = dice.randrange(len(lines))
    change = dice.randrange(12)
    if change == 0:
        lines.insert(at, lines[at])
    elif change == 1:
        del lines[at]
    elif change == 2:
        lines[at] = lines[at].replace(
            "\n", dice.choice(["\r\n", "\r", "", "\n\n", " \n", "\t\n", "\0\n", "\x0b\n", "\x85"])
        )
    elif change == 3:
        lines[at] = dice.choice([" ", "\t", "+", "-", "0", "\0", "\ufeff", "1"]) + lines[at]
    elif change == 4:
        lines[at] = lines[at].replace(" ", dice.choice(["  ", "\t", "\x0c", "\u00a0", "", " \t "]), 1)
    elif change == 5:
        lines[at] = re.sub(
            r"\d+\n", dice.choice(["-1\n", "-4\n", "-0\n", f"{2**63}\n", f"-{2**63}\n", "1e3\n", "+7\n"]), lines[at]
        )
    elif change == 6:
        lines[at] = re.sub(r"\d", dice.choice(["٥", "", "x", "00", "_1"]), lines[at], count=1)
    elif change == 7:
        return data[: dice.randrange(len(data))]
    elif change == 8:
        return data + dice.choice([b"\0" * 9, b"\n", b" ", b"t 0 1\n", b"\xff"])
    elif change == 9:
        where = dice.randrange(len(data))
        return data[:where] + bytes([dice.randrange(256)]) + data[where + 1 :]
    elif change == 10:
        lines[1:2] = [dice.choice(["-1\n", "0\n", "99\n", "2147483648\n", "\n"])]
    else:
        return data.replace(b"\n", b"\r\n")
    return "".join(lines).encode(errors="surrogateescape")


def stricter_on_purpose(data: bytes) -> bool:
    """Whether a file is one of those that Kafka Streams reads and this library refuses."""
    fields = [re.split(r"[ \t\x0b\f]+", line) for line in re.split(r"[\r\n]+", data.decode())[2:]]
    entries = [(one[0], one[1]) for one in fields if len(one) >= 3]
    names_twice = len(set(entries)) < len(entries)
    no_topic = any(not re.fullmatch(r"[a-zA-Z0-9._-]{1,249}", topic) for topic, _ in entries) or b"\n " in data
    negative = any(partition.startswith("-") for _, partition in entries)
    return names_twice or no_topic or negative or not data.isascii()


def test_whatever_kafka_streams_refuses_is_refused_and_what_is_read_is_read_alike(
    streams_jvm: StreamsJvm, tmp_path: Path
) -> None:
    java, dice = Java(streams_jvm, tmp_path), random.Random(6)
    outcomes = {"read": 0, "refused": 0, "stricter": 0}
    for _ in range(1500):
        data = encode_checkpoint(some_offsets(dice))
        for _ in range(dice.choice([1, 1, 2])):
            data = mutated(data, dice) or b"0\n"
        theirs = java.read(data)
        try:
            ours = said(decode_checkpoint(data, "mutated"))
        except Corrupted:
            if theirs is None:
                outcomes["refused"] += 1
            else:
                assert stricter_on_purpose(data), data
                outcomes["stricter"] += 1
        else:
            assert ours == theirs, data
            outcomes["read"] += 1
    assert min(outcomes.values()) > 20, outcomes
