"""The peers of the benchmark, in Java: Kafka Streams restores a changelog, a plain consumer drains it.

::

    python -m bench.streams restore --bootstrap-servers H:P --application-id A --state-dir D [--threads 2]
    python -m bench.streams start   --bootstrap-servers H:P --application-id A --state-dir D [--threads 2]
    python -m bench.streams drain   --bootstrap-servers H:P --application-id A [--threads 2]

Each starts one JVM, does its work, and prints one JSON object on stdout: ``StreamsRestore`` or ``Drain``. ``restore``
is of all that the changelog holds, and fails if Kafka Streams restores less; ``start`` is on a directory that has the
state, and restores what that one lacks. The application keeps a store ``bench`` (``--kind``) of topic
``<application id>-source``, which is empty; its changelog ``<application id>-bench-changelog`` was filled by
``bench.changelog``, so that a start restores all of it and nothing else happens.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import tempfile
import threading
import time
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bench.changelog import PARTITIONS
from bench.kinds import KINDS, BenchKind
from tests.harness import topics
from tests.harness.streams import StreamsApplication, StreamsJvm

STORE = "bench"
"""The store's name."""

HEAP_MB = 2048
LONGEST = 3600.0
"""Seconds that a restore may take."""

_CLOCK_TICKS = 100.0  # of /proc/<pid>/stat on Linux, whatever the kernel's own tick is


@dataclass(frozen=True)
class StreamsRestore:
    """What a restore by Kafka Streams took.

    Attributes:
        threads: stream threads.
        records: restored, as its own restore listener counted them.
        running_seconds: from the start of the JVM process to RUNNING.
        restore_seconds: from the first partition's start of restore to the last one's end.
        process_seconds: from the start of the JVM to its end, with a clean close.
        cpu_seconds: user and system time of the JVM process, close included.
        peak_rss_mb: greatest resident set of the JVM process (``VmHWM``).
    """

    threads: int
    records: int
    running_seconds: float
    restore_seconds: float
    process_seconds: float
    cpu_seconds: float
    peak_rss_mb: float


@dataclass(frozen=True)
class Drain:
    """What it took plain Java consumers to read the whole topic and do nothing with it.

    Attributes:
        threads: consumers, each in its own thread with its share of the partitions.
        records: read.
        seconds: from the first poll to the last record.
        process_seconds: from the start of the JVM to its end.
        cpu_seconds: of the JVM process.
    """

    threads: int
    records: int
    seconds: float
    process_seconds: float
    cpu_seconds: float


def changelog_topic(application_id: str) -> str:
    """The topic to fill before ``restore``."""
    return f"{application_id}-{STORE}-changelog"


def source_topic(application_id: str) -> str:
    """The (empty) topic of the table, with as many partitions as the changelog."""
    return f"{application_id}-source"


def create_source(bootstrap_servers: str, application_id: str) -> None:
    """Creates the source topic."""
    topics.create(bootstrap_servers, source_topic(application_id), PARTITIONS)


def restore(
    bootstrap_servers: str,
    application_id: str,
    state_dir: Path,
    *,
    threads: int,
    kind: BenchKind = KINDS["timestamped-key-value"],
    guarantee: str = "exactly_once_v2",
    timeout: float = LONGEST,
) -> StreamsRestore:
    """Starts the application on ``state_dir`` (without its state there: a full restore), waits for RUNNING, closes it.

    Raises:
        RuntimeError: it did not restore exactly the records that the changelog holds.
    """
    topic = changelog_topic(application_id)
    held = _held(bootstrap_servers, topic)
    found = start(
        bootstrap_servers, application_id, state_dir, threads=threads, kind=kind, guarantee=guarantee, timeout=timeout
    )
    if found.records != held:
        raise RuntimeError(f"Kafka Streams restored {found.records} records of {topic}, which holds {held}")
    return found


def start(
    bootstrap_servers: str,
    application_id: str,
    state_dir: Path,
    *,
    threads: int,
    kind: BenchKind = KINDS["timestamped-key-value"],
    guarantee: str = "exactly_once_v2",
    timeout: float = LONGEST,
    linger: float = 0.0,
) -> StreamsRestore:
    """Starts the application on ``state_dir``, whatever is there, waits for RUNNING and so many seconds longer, closes
    it.
    """
    with tempfile.TemporaryDirectory(prefix="statecore-bench-") as scratch:
        began = time.monotonic()
        with StreamsJvm(Path(scratch) / "streams.log", heap_mb=HEAP_MB, java_options=()) as jvm:
            application = StreamsApplication(
                jvm,
                application_id,
                bootstrap_servers,
                state_dir,
                lambda it: kind.topology(it, source_topic(application_id), STORE),
                guarantee=guarantee,
                threads=threads,
                commit_interval_ms=30_000 if guarantee == "at_least_once" else 100,
                properties={"fetch.max.wait.ms": "500"},  # Kafka's own, not what makes tests quick
            )
            application.start(timeout)
            running = time.monotonic() - began
            restores = application.restores()
            time.sleep(linger)
            application.close()
            cpu, peak = _cost(jvm.pid)
        process = time.monotonic() - began
    records = sum(one.records for one in restores)
    nanos = max((one.ended_ns for one in restores), default=0) - min((one.started_ns for one in restores), default=0)
    return StreamsRestore(threads, records, running, nanos / 1e9, process, cpu, peak)


def drain(bootstrap_servers: str, application_id: str, *, threads: int) -> Drain:
    """Reads the changelog with ``threads`` Java consumers (read_committed), their polls driven over py4j.

    A poll returns up to 20,000 records, so that driving it costs nothing that shows.
    """
    topic = changelog_topic(application_id)
    ends = {p: topics.end_offset(bootstrap_servers, topic, p, "read_committed") for p in range(PARTITIONS)}
    counts = [0] * threads
    with tempfile.TemporaryDirectory(prefix="statecore-bench-") as scratch:
        began = time.monotonic()
        with StreamsJvm(Path(scratch) / "drain.log", heap_mb=HEAP_MB, java_options=()) as jvm:
            shares = [{p: end for p, end in ends.items() if p % threads == i} for i in range(threads)]
            consumers = [_consumer(jvm, bootstrap_servers, topic, share) for share in shares]
            workers = [
                threading.Thread(target=_drain_share, args=(jvm, consumers[i], shares[i], counts, i))
                for i in range(threads)
            ]
            first_poll = time.monotonic()
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()
            seconds = time.monotonic() - first_poll
            for consumer in consumers:
                consumer.close()
            cpu, _ = _cost(jvm.pid)
        process = time.monotonic() - began
    held = _held(bootstrap_servers, topic)
    if sum(counts) != held:
        raise RuntimeError(f"the consumers read {sum(counts)} records of {topic}, which holds {held}")
    return Drain(threads, sum(counts), seconds, process, cpu)


def _held(bootstrap_servers: str, topic: str) -> int:
    # The generator makes no transactions and the topic is never cleaned: every offset is a record.
    return sum(
        topics.end_offset(bootstrap_servers, topic, p) - topics.start_offset(bootstrap_servers, topic, p)
        for p in range(PARTITIONS)
    )


def _consumer(jvm: StreamsJvm, bootstrap_servers: str, topic: str, share: dict[int, int]) -> Any:
    java = jvm.jvm
    properties = java.java.util.Properties()
    deserializer = "org.apache.kafka.common.serialization.ByteArrayDeserializer"
    for name, value in {
        "bootstrap.servers": bootstrap_servers,
        "key.deserializer": deserializer,
        "value.deserializer": deserializer,
        "isolation.level": "read_committed",
        "enable.auto.commit": "false",
        "max.poll.records": "20000",
        "fetch.max.bytes": str(64 << 20),
        "max.partition.fetch.bytes": str(8 << 20),
    }.items():
        properties.setProperty(name, value)
    consumer = java.org.apache.kafka.clients.consumer.KafkaConsumer(properties)
    assigned = java.java.util.ArrayList()
    for partition in share:
        assigned.add(java.org.apache.kafka.common.TopicPartition(topic, partition))
    consumer.assign(assigned)
    consumer.seekToBeginning(assigned)
    return consumer


def _drain_share(jvm: StreamsJvm, consumer: Any, share: dict[int, int], counts: list[int], at: int) -> None:
    wait = jvm.jvm.java.time.Duration.ofMillis(1000)
    expected = sum(share.values())  # offsets from 0: see _held
    while counts[at] < expected:
        counts[at] += int(consumer.poll(wait).count())


def _cost(pid: int) -> tuple[float, float]:
    """CPU seconds and greatest resident set (MiB) of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    cpu = (int(fields[11]) + int(fields[12])) / _CLOCK_TICKS
    status = Path(f"/proc/{pid}/status").read_text()
    peak = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:"))
    return cpu, peak / 1024


def main() -> None:
    """The command line at the top of this module."""
    parser = argparse.ArgumentParser(prog="python -m bench.streams")
    parser.add_argument("what", choices=["restore", "start", "drain"])
    parser.add_argument("--bootstrap-servers", required=True)
    parser.add_argument("--application-id", required=True)
    parser.add_argument("--state-dir", type=Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--kind", default="timestamped-key-value", choices=list(KINDS))
    parser.add_argument("--linger", type=float, default=0.0, help="of start: seconds to stay up when it is RUNNING")
    parser.add_argument("--guarantee", default="exactly_once_v2", choices=["exactly_once_v2", "at_least_once"])
    given = parser.parse_args()
    if given.what == "drain":
        result: Drain | StreamsRestore = drain(given.bootstrap_servers, given.application_id, threads=given.threads)
    else:
        if given.state_dir is None:
            parser.error(f"{given.what} needs --state-dir")
        run = restore if given.what == "restore" else partial(start, linger=given.linger)
        result = run(
            given.bootstrap_servers,
            given.application_id,
            given.state_dir,
            threads=given.threads,
            kind=KINDS[given.kind],
            guarantee=given.guarantee,
        )
    with contextlib.suppress(BrokenPipeError):
        print(json.dumps(asdict(result)))


if __name__ == "__main__":
    main()
