"""Fills a changelog topic for the benchmark, quickly: 16-byte keys, 100-byte values, N/4 keys, 2 % tombstones, lz4.

Where the store is windowed, the times of its rows follow the key (``bench.kinds``).

Twenty million records are to be there in a minute or so on two cores, so they never are Python objects: record
batches (format v2) are laid out by NumPy, a column for each byte of a record, and go to the broker in plain Produce
requests. A record is ::

    length varint | attributes 0 | time delta 0 | offset delta varint | 16 | key 16 B | 100 or -1 | value 100 B | no
    headers

in which length, offset delta and value length take one byte or two; a mask drops the bytes that a record does not
have. The default batch of 125 records is about what Kafka Streams' own producer makes of such records (``batch.size``
16 KiB). The contents depend on the numbers and the seed alone.
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

import cramjam
import numpy as np
from crc32c import crc32c

from bench.kinds import KINDS, SPAN_MS, BenchKind
from tests.harness import topics
from tests.harness.broker import Broker

KEY_BYTES = 16
VALUE_BYTES = 100
TOMBSTONE_SHARE = 0.02
PARTITIONS = 4

_KEY_AT = 7
_CHUNK_BATCHES = 512
_IN_FLIGHT = 8
_BASE_TIME = 1_700_000_000_000


@dataclass(frozen=True)
class ChangelogSize:
    """What the topic is to hold.

    Attributes:
        records: in all partitions together; each partition gets as many.
        batch_records: records of one batch, at most 8192.
        seed: of the contents.
        kind: the kind of store the changelog is for.
        partitions: of the topic.
    """

    records: int
    batch_records: int = 125
    seed: int = 7
    kind: BenchKind = KINDS["timestamped-key-value"]
    partitions: int = PARTITIONS

    @property
    def keys(self) -> int:
        """Distinct keys that records are drawn from."""
        return self.records // 4


def start_broker(directory: Path) -> Broker:
    """A broker for long streams of data, from whose compacted topics nothing is removed meanwhile."""
    settings = {"log.cleaner.enable": "false", "num.network.threads": "3", "num.io.threads": "4"}
    return Broker(directory, heap_mb=1024, throughput=True, settings=settings).start()


def fill(bootstrap_servers: str, topic: str, size: ChangelogSize) -> float:
    """Creates the topic (compacted, never cleaned) and fills it; returns the seconds it took.

    Raises:
        ValueError: the records do not divide evenly into partitions and batches.
        RuntimeError: the broker refused a batch, or holds another number of records at the end.
    """
    if size.records % (size.partitions * size.batch_records) or size.batch_records > 8192:
        raise ValueError(f"{size.records} records do not make whole batches of {size.batch_records} in each partition")
    began = clock.monotonic()
    topics.create(bootstrap_servers, topic, size.partitions, topics.UNCLEANED)
    sources = [_batches(size, partition) for partition in range(size.partitions)]
    with _Connection(bootstrap_servers, topic) as connection:
        for batches in zip(*sources, strict=True):
            connection.produce(batches)
    held = sum(topics.end_offset(bootstrap_servers, topic, p) for p in range(size.partitions))
    if held != size.records:
        raise RuntimeError(f"{topic} holds {held} records, not {size.records}")
    return clock.monotonic() - began


def _batches(size: ChangelogSize, partition: int) -> Iterator[bytes]:
    """Every record batch of a partition, in order."""
    random = np.random.default_rng([size.seed, partition])
    left = size.records // size.partitions // size.batch_records
    time = _BASE_TIME
    delta = np.tile(np.arange(size.batch_records, dtype=np.uint16), _CHUNK_BATCHES)
    values = _value_pool(random)
    while left:
        count = min(left, _CHUNK_BATCHES)
        rows = count * size.batch_records
        ids = random.integers(0, size.keys // size.partitions, rows, dtype=np.uint64) * size.partitions + np.uint64(
            partition
        )
        laid, ends = _lay_out(
            _keys(ids, size.kind), delta[:rows], values[random.integers(0, len(values), rows)], random
        )
        begin = 0
        for end in ends[size.batch_records - 1 :: size.batch_records]:
            yield _frame(laid[begin:end], size.batch_records, time)
            begin, time = int(end), time + 1
        left -= count


def _value_pool(random: np.random.Generator) -> np.ndarray[Any, Any]:
    """Values that compress about as JSON does: 40 random letters within 60 that are always the same."""
    pool = np.tile(np.frombuffer(b'{"status":"shipped","warehouse":"north-7","reference":"', np.uint8), (50_000, 2))
    pool = np.ascontiguousarray(pool[:, :VALUE_BYTES])
    pool[:, 55:95] = random.integers(97, 123, (len(pool), 40), dtype=np.uint8)
    return pool


def _lay_out(
    keys: np.ndarray[Any, Any], delta: np.ndarray[Any, Any], values: np.ndarray[Any, Any], random: np.random.Generator
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """The bytes of all records, one after the other, and where each of them ends."""
    rows, key_bytes = keys.shape
    value_length_at, value_at = _KEY_AT + key_bytes, _KEY_AT + key_bytes + 2
    dead = random.random(rows) < TOMBSTONE_SHARE
    wide = delta >= 64
    # Length (its first byte), attributes, time delta, offset delta, key, value, count of headers.
    width = 1 + 1 + 1 + (1 + wide) + (1 + key_bytes) + np.where(dead, 1, 2 + VALUE_BYTES) + 1
    laid = np.zeros((rows, value_at + VALUE_BYTES + 1), np.uint8)
    present = np.ones(laid.shape, bool)
    body = width - 1  # what follows the length; zigzag doubles it
    laid[:, 0] = np.where(dead, 2 * body, (2 * body & 0x7F) | 0x80)
    laid[:, 1] = 2 * body >> 7
    present[:, 1] = ~dead
    laid[:, 4] = np.where(wide, (2 * delta & 0x7F) | 0x80, 2 * delta)
    laid[:, 5] = delta >> 6
    present[:, 5] = wide
    laid[:, 6] = 2 * key_bytes
    laid[:, _KEY_AT:value_length_at] = keys
    laid[:, value_length_at] = np.where(dead, 1, (2 * VALUE_BYTES & 0x7F) | 0x80)
    laid[:, value_length_at + 1] = 2 * VALUE_BYTES >> 7
    laid[:, value_at : value_at + VALUE_BYTES] = values
    present[:, value_length_at + 1 : value_at + VALUE_BYTES] = ~dead[:, None]
    return laid[present], np.cumsum(width + ~dead)  # a live record's length takes a second byte


def _keys(ids: np.ndarray[Any, Any], kind: BenchKind) -> np.ndarray[Any, Any]:
    """16 bytes for each id: a mixed number, so that keys are spread over the order, and the id; times behind it."""
    mixed = ids * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(29)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    start = np.uint64(_BASE_TIME) + ids % np.uint64(SPAN_MS)
    words = np.stack([mixed, ids, *[start] * kind.times], axis=1).astype(">u8").view(np.uint8)
    keys = words.reshape(len(ids), KEY_BYTES + 8 * kind.times)
    return np.pad(keys, ((0, 0), (0, 4))) if kind.sequence else keys


def _frame(records: np.ndarray[Any, Any], count: int, time: int) -> bytes:
    """A record batch v2, compressed as one lz4 frame of independent blocks."""
    block = bytes(cramjam.lz4.compress_block(records.tobytes(), store_size=False))
    # Magic, independent blocks of at most 4 MiB without checksums, descriptor's checksum; block; end mark.
    compressed = b"\x04\x22\x4d\x18\x60\x70\x73" + struct.pack("<I", len(block)) + block + b"\0\0\0\0"
    tail = struct.pack(">hiqqqhii", 3, count - 1, time, time, -1, -1, -1, count) + compressed
    return struct.pack(">qiibI", 0, 9 + len(tail), -1, 2, crc32c(tail)) + tail


class _Connection:
    """Produce requests (v3) over one connection, several in flight; a batch for each partition in a request."""

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        host, port = bootstrap_servers.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)))
        self._topic = struct.pack(">h", len(topic)) + topic.encode()
        self._sent = self._answered = 0

    def produce(self, batches: tuple[bytes, ...]) -> None:
        self._sent += 1
        header = struct.pack(">hhihh", 0, 3, self._sent, -1, -1)  # no client id, no transactional id
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
            partition, error = struct.unpack_from(">ih", answer, at + 4 + 22 * i)
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
