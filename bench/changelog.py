"""Fills a changelog topic for the benchmark, quickly: 16-byte keys, 100-byte values, N/4 keys, 2 % tombstones, lz4.

Other values, keys and codecs are shapes (``bench.shapes``). Where the store is windowed, the times of its rows follow
the key (``bench.kinds``).

Twenty million records are to be there in a minute or so on two cores, so they never are Python objects: record
batches (format v2) are laid out by NumPy, a column for each byte of a record, and go to the broker in plain Produce
requests. A record is ::

    length varint | attributes 0 | time delta 0 | offset delta varint | 16 | key 16 B | 100 or -1 | value 100 B | no
    headers

in which length, offset delta and value length take one byte or two; a mask drops the bytes that a record does not
have. A batch has about as many records as Kafka Streams' own producer would pack into one (``batch.size`` 16 KiB). The
contents depend on the numbers and the seed alone.
"""

from __future__ import annotations

import socket
import struct
import time as clock
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from crc32c import crc32c

from bench.codecs import CODECS, compress
from bench.kinds import KINDS, SPAN_MS, BenchKind
from bench.shapes import KEY_BYTES, PLAIN, Shape
from tests.harness import topics
from tests.harness.broker import Broker

TOMBSTONE_SHARE = 0.02
PARTITIONS = 4

_KEY_AT = 7
_CHUNK_BATCHES = 512
_IN_FLIGHT = 8
_PARTITION_ANSWER = 30  # partition, error, base offset, append time, log start
_BASE_TIME = 1_700_000_000_000
_ONE_BYTE = 128
_VALUE_POOL_BYTES = 5_000_000


@dataclass(frozen=True)
class ChangelogSize:
    """What the topic is to hold.

    Attributes:
        records: in all partitions together; each partition gets as many.
        seed: of the contents.
        kind: the kind of store the changelog is for.
        partitions: of the topic.
        shape: its values, keys and codec.
        whole: records of which it is the tail: its keys are drawn from theirs; 0 where it is no tail.
    """

    records: int
    seed: int = 7
    kind: BenchKind = KINDS["timestamped-key-value"]
    partitions: int = PARTITIONS
    shape: Shape = PLAIN
    whole: int = 0

    @property
    def keys(self) -> int:
        """Distinct keys that records are drawn from."""
        return self.shape.keys(self.whole or self.records)


def start_broker(directory: Path, **more: str) -> Broker:
    """A broker for long streams of data, from whose compacted topics nothing is removed meanwhile.

    Args:
        directory: where it keeps them.
        more: settings, with ``_`` for ``.``.
    """
    settings = {"log.cleaner.enable": "false", "num.network.threads": "3", "num.io.threads": "4"}
    settings |= {name.replace("_", "."): value for name, value in more.items()}
    return Broker(directory, heap_mb=1024, throughput=True, settings=settings).start()


def fill(bootstrap_servers: str, topic: str, size: ChangelogSize) -> float:
    """Creates the topic (compacted, never cleaned) and fills it; returns the seconds it took.

    Raises:
        ValueError: the records do not divide evenly into partitions and batches.
        RuntimeError: the broker refused a batch, or holds another number of records at the end.
    """
    began = clock.monotonic()
    topics.create(bootstrap_servers, topic, size.partitions, topics.UNCLEANED)
    extend(bootstrap_servers, topic, size)
    held = sum(topics.end_offset(bootstrap_servers, topic, p) for p in range(size.partitions))
    if held != size.records:
        raise RuntimeError(f"{topic} holds {held} records, not {size.records}")
    return clock.monotonic() - began


def extend(bootstrap_servers: str, topic: str, size: ChangelogSize) -> None:
    """Puts more records at the end of a topic that is there.

    Raises:
        ValueError: the records do not divide evenly into partitions and batches.
        RuntimeError: the broker refused a batch.
    """
    each = size.shape.batch_records
    if size.records % (size.partitions * each):
        raise ValueError(f"{size.records} records do not make whole batches of {each} in each partition")
    sources = [batches(size, partition) for partition in range(size.partitions)]
    with _Connection(bootstrap_servers, topic) as connection:
        for one_of_each in zip(*sources, strict=True):
            connection.produce(one_of_each)


def batches(size: ChangelogSize, partition: int) -> Iterator[bytes]:
    """Every record batch of a partition, in order."""
    random = np.random.default_rng([size.seed, partition])
    shape, each = size.shape, size.shape.batch_records
    of_partition = size.records // size.partitions
    delta = np.tile(np.arange(each, dtype=np.uint16), _CHUNK_BATCHES)
    values = _value_pool(random, shape.value_bytes, of_partition)
    for first in range(0, of_partition, _CHUNK_BATCHES * each):
        rows = min(_CHUNK_BATCHES * each, of_partition - first)
        if shape.overwrites:
            numbers = random.integers(0, max(1, size.keys // size.partitions), rows, dtype=np.uint64)
        else:
            numbers = np.arange(first, first + rows, dtype=np.uint64)
        ids = numbers * np.uint64(size.partitions) + np.uint64(partition)
        laid, ends = _lay_out(
            _keys(ids, size.kind), delta[:rows], values[random.integers(0, len(values), rows)], random
        )
        begin, time = 0, _BASE_TIME + first // each
        for end in ends[each - 1 :: each]:
            yield _frame(laid[begin:end], each, time, shape.codec)
            begin, time = int(end), time + 1


def _value_pool(random: np.random.Generator, value_bytes: int, most: int) -> np.ndarray[Any, Any]:
    """Values that compress about as JSON does: of each 100 bytes 40 are random letters, the others always the same. No
    more than are drawn, unless these are few.
    """
    cell = min(100, value_bytes)
    begin, end = cell * 55 // 100, cell * 95 // 100
    cells = -(-value_bytes // cell)
    count = max(100, min(most, _VALUE_POOL_BYTES // value_bytes))
    text = np.frombuffer(b'{"status":"shipped","warehouse":"north-7","reference":"' * 2, np.uint8)[:cell]
    pool = np.tile(text, (count, cells)).reshape(count, cells, cell)
    pool[:, :, begin:end] = random.integers(97, 123, (count, cells, end - begin), dtype=np.uint8)
    return np.ascontiguousarray(pool.reshape(count, cells * cell)[:, :value_bytes])


def _lay_out(
    keys: np.ndarray[Any, Any], delta: np.ndarray[Any, Any], values: np.ndarray[Any, Any], random: np.random.Generator
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """The bytes of all records, one after the other, and where each of them ends."""
    (rows, key_bytes), value_bytes = keys.shape, values.shape[1]
    value_length_at, value_at = _KEY_AT + key_bytes, _KEY_AT + key_bytes + 2
    dead = random.random(rows) < TOMBSTONE_SHARE
    wide = delta >= _ONE_BYTE // 2
    wide_value = 2 * value_bytes >= _ONE_BYTE  # zigzag doubles every number
    # What follows the length: attributes, time delta, offset delta, key, value, count of headers.
    body = 1 + 1 + (1 + wide) + (1 + key_bytes) + np.where(dead, 1, 1 + wide_value + value_bytes) + 1
    wide_body = 2 * body >= _ONE_BYTE
    laid = np.zeros((rows, value_at + value_bytes + 1), np.uint8)
    present = np.ones(laid.shape, bool)
    laid[:, 0] = _low_byte(2 * body, wide_body)
    laid[:, 1] = 2 * body >> 7
    present[:, 1] = wide_body
    laid[:, 4] = _low_byte(2 * delta, wide)
    laid[:, 5] = delta >> 6
    present[:, 5] = wide
    laid[:, 6] = 2 * key_bytes
    laid[:, _KEY_AT:value_length_at] = keys
    laid[:, value_length_at] = np.where(dead, 1, _low_byte(2 * value_bytes, wide_value))
    laid[:, value_length_at + 1] = 2 * value_bytes >> 7
    laid[:, value_at : value_at + value_bytes] = values
    present[:, value_length_at + 1] = ~dead & wide_value
    present[:, value_at : value_at + value_bytes] = ~dead[:, None]
    return laid[present], np.cumsum(1 + wide_body + body)


def _low_byte(number: Any, goes_on: Any) -> Any:
    """The first byte of a varint, with the bit that says whether a second one follows."""
    return np.where(goes_on, (number & 0x7F) | 0x80, number)


def _keys(ids: np.ndarray[Any, Any], kind: BenchKind) -> np.ndarray[Any, Any]:
    """16 bytes for each id: a mixed number, so that keys are spread over the order, and the id; times behind it."""
    mixed = ids * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(29)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    start = np.uint64(_BASE_TIME) + ids % np.uint64(SPAN_MS)
    words = np.stack([mixed, ids, *[start] * kind.times], axis=1).astype(">u8").view(np.uint8)
    keys = words.reshape(len(ids), KEY_BYTES + 8 * kind.times)
    return np.pad(keys, ((0, 0), (0, 4))) if kind.sequence else keys


def _frame(records: np.ndarray[Any, Any], count: int, time: int, codec: str) -> bytes:
    """A record batch v2."""
    compressed = compress(codec, records.tobytes())
    tail = struct.pack(">hiqqqhii", CODECS[codec], count - 1, time, time, -1, -1, -1, count) + compressed
    return struct.pack(">qiibI", 0, 9 + len(tail), -1, 2, crc32c(tail)) + tail


class _Connection:
    """Produce requests (v7, the first with zstd) over one connection, several in flight, with a batch a partition."""

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        host, port = bootstrap_servers.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)))
        self._topic = struct.pack(">h", len(topic)) + topic.encode()
        self._sent = self._answered = 0

    def produce(self, batches: tuple[bytes, ...]) -> None:
        self._sent += 1
        header = struct.pack(">hhihh", 0, 7, self._sent, -1, -1)  # no client id, no transactional id
        parts = [struct.pack(">hii", 1, 30_000, 1) + self._topic + struct.pack(">i", len(batches))]
        for partition, batch in enumerate(batches):
            parts += [struct.pack(">ii", partition, len(batch)), batch]
        body = header + b"".join(parts)
        self._socket.sendall(struct.pack(">i", len(body)) + body)
        while self._sent - self._answered > _IN_FLIGHT:
            self._answer()

    def _answer(self) -> None:
        (length,) = struct.unpack(">i", self._read(4))
        answer = self._read(length)
        self._answered += 1
        at = 8 + len(self._topic)
        (partitions,) = struct.unpack_from(">i", answer, at)
        for i in range(partitions):
            partition, error = struct.unpack_from(">ih", answer, at + 4 + _PARTITION_ANSWER * i)
            if error:
                raise RuntimeError(f"the broker refused a batch of partition {partition}: error {error}")

    def _read(self, length: int) -> bytes:
        found = bytearray()
        while len(found) < length:
            more = self._socket.recv(length - len(found))
            if not more:
                raise RuntimeError("the broker closed the connection")
            found += more
        return bytes(found)

    def __enter__(self) -> _Connection:
        return self

    def __exit__(self, kind: type[BaseException] | None, _e: BaseException | None, _t: TracebackType | None) -> None:
        try:
            while kind is None and self._answered < self._sent:
                self._answer()
        finally:
            self._socket.close()
