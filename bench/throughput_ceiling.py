"""Measures the ceiling: how fast this machine fetches, checks and decompresses a topic, and writes to its disk.

::

    python -m bench.throughput_ceiling --bootstrap-servers H:P --topic T [--processes 2]     prints a `Ceiling` as JSON

Each process has one connection and reads its share of the offsets as the changelog reader would: read_committed, the
next request on its way while this response is worked on. Of each record batch the header is looked at, the CRC-32C
compared, and the records decompressed into a buffer that stays in the cache. No record is looked at. So what lies
between this and a restore is what decoding, collecting, sorting, writing and placing cost, and what stages wait for.

Socket, headers and decompression are the project's own code (``statecore.changelog``): one buffer that is received
into, machine code for the headers of 8 MiB at once, two native calls a batch. Nothing faster was found in Python.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import time
import uuid
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from multiprocessing.synchronize import Barrier
from pathlib import Path

from crc32c import crc32c

from statecore.changelog.batch_scan import MODE_SKIP, Code, Scanner
from statecore.changelog.cluster import Cluster
from statecore.changelog.codecs import Scratch
from statecore.changelog.model import OffsetRange
from statecore.changelog.wire import Wire
from statecore.formats.topic_partition import TopicPartition

FETCH_BYTES = 8 << 20
DISK_BYTES = 1 << 30

_BLOCK = 8 << 20
_CRC_START = 40  # from the field after the CRC to the first record


@dataclass(frozen=True)
class Ceiling:
    """What it took to fetch, check and decompress the whole topic.

    Attributes:
        processes: how many worked at once.
        records: as the batches' headers count them.
        seconds: from the first request of the first process to the last byte of the last one.
        cpu_seconds: of these processes meanwhile; the broker's own is not in it.
        fetched_bytes: bytes of record batches as they came.
        decompressed_bytes: bytes of their records after decompression.
    """

    processes: int
    records: int
    seconds: float
    cpu_seconds: float
    fetched_bytes: int
    decompressed_bytes: int


@dataclass(frozen=True)
class _Share:
    """What one process saw; times are of the clock that all processes share."""

    began: float
    ended: float
    cpu: float
    records: int
    fetched: int
    decompressed: int


def drain(bootstrap_servers: str, topic: str, processes: int) -> Ceiling:
    """Read the whole topic once with that many processes.

    Raises:
        RuntimeError: a process failed.
    """
    with Cluster(bootstrap_servers) as cluster:
        partitions = cluster.describe_topics([topic])[topic].partitions
        offsets = cluster.log_offsets(TopicPartition(topic, number) for number in range(partitions))
    ranges = [
        part
        for tp, found in offsets.items()
        for part in _cut(tp, found.log_start, found.last_stable, -(-processes // partitions))
    ]
    shares = [ranges[number::processes] for number in range(processes)]
    context = multiprocessing.get_context("spawn")
    ready, answers = context.Barrier(processes), context.SimpleQueue()
    workers = [context.Process(target=_work, args=(bootstrap_servers, share, ready, answers)) for share in shares]
    for worker in workers:
        worker.start()
    found = [answers.get() for _ in workers]
    for worker in workers:
        worker.join()
    failed = [one for one in found if not isinstance(one, _Share)]
    if failed:
        raise RuntimeError(f"a process failed: {failed[0]}")
    return Ceiling(
        processes,
        sum(one.records for one in found),
        max(one.ended for one in found) - min(one.began for one in found),
        sum(one.cpu for one in found),
        sum(one.fetched for one in found),
        sum(one.decompressed for one in found),
    )


def _cut(tp: TopicPartition, start: int, end: int, parts: int) -> list[OffsetRange]:
    """A partition in so many ranges of as many offsets."""
    ends = [start + (end - start) * number // parts for number in range(parts + 1)]
    return [OffsetRange(tp.topic, tp.partition, a, b) for a, b in pairwise(ends)]


def _work(
    servers: str, share: Sequence[OffsetRange], ready: Barrier, answers: multiprocessing.SimpleQueue[object]
) -> None:
    try:
        with Cluster(servers) as cluster:
            wires = {}
            for part in share:
                leader = cluster.leader(part.topic_partition)
                if leader.node not in wires:
                    wires[leader.node] = Wire.connect(cluster, leader.node, leader.where, cluster.deadline())
            ready.wait(60)
            began, cpu = time.monotonic(), time.process_time()
            counted = [0, 0, 0]
            for part in share:
                leader = cluster.leader(part.topic_partition)
                for place, number in enumerate(_read(wires[leader.node], part, leader.topic_id, leader.epoch)):
                    counted[place] += number
            answers.put(_Share(began, time.monotonic(), time.process_time() - cpu, *counted))
    except BaseException as error:
        ready.abort()
        answers.put(repr(error))
        raise


def _read(wire: Wire, part: OffsetRange, topic_id: uuid.UUID, epoch: int) -> tuple[int, int, int]:
    """Records, bytes as they came and bytes after decompression of a range; a batch belongs to where it begins."""
    records = fetched = decompressed = 0
    scanner, scratch = Scanner(), Scratch(1 << 20)
    position = part.start

    def ask() -> None:
        if position < part.end:
            wire.send(
                part.topic_partition,
                topic_id,
                position,
                epoch=epoch,
                last_epoch=-1,
                committed=True,
                max_bytes=FETCH_BYTES,
                max_wait=0.5,
            )

    ask()
    while position < part.end:
        response = wire.receive(30.0)
        if response.error:
            raise RuntimeError(f"the broker answers error {response.error} at offset {position} of {part}")
        found = scanner.scan(
            response.records, position=position, end=part.end, committed=True, aborted=response.aborted
        )
        if found.code is not Code.OK or found.position == position:
            raise RuntimeError(f"no whole batch at offset {position} of {part}: {found.code}")
        position = found.position
        ask()
        view = response.records.data
        for base, _, start, end, attributes, _, _, count, crc, mode in found.meta.tolist():
            if crc32c(view[start - _CRC_START : end]) != crc:
                raise RuntimeError(f"the batch at offset {base} of {part} has a wrong checksum")
            if mode == MODE_SKIP:  # a marker, or aborted
                continue
            if attributes & 7:
                scratch.clear()
                decompressed += scratch.append(attributes & 7, view[start:end])
            if base >= part.start:
                records += count
        fetched += found.consumed
    return records, fetched, decompressed


def disk_rate(directory: Path) -> float:
    """Bytes a second of one file written in sequence, with the time until it is on the disk (fsync)."""
    path = directory / "disk-rate"
    block = os.urandom(_BLOCK)
    try:
        with path.open("wb", buffering=0) as file:
            began = time.monotonic()
            for _ in range(DISK_BYTES // _BLOCK):
                file.write(block)
            os.fsync(file.fileno())
            return DISK_BYTES / (time.monotonic() - began)
    finally:
        path.unlink(missing_ok=True)


def main() -> int:
    """The command line at the top of this module."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.throughput_ceiling", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--bootstrap-servers", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args()
    print(json.dumps(asdict(drain(given.bootstrap_servers, given.topic, given.processes))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
