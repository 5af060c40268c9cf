"""The columnar reader against plain consumers of librdkafka, record by record, on topics that hold everything."""

from __future__ import annotations

import random
import socket
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import AdminClient

from statecore.changelog.cluster import Cluster
from statecore.changelog.model import IsolationLevel, OffsetRange
from statecore.changelog.ranges import split_range
from statecore.changelog.reader import ChangelogReader, ReaderOptions
from statecore.changelog.record_density import PartitionShape, sample_shapes
from statecore.errors import Invalid, NotFound, Retryable
from statecore.formats.topic_partition import TopicPartition
from tests.harness import topics
from tests.harness.broker import Broker, refusing_port
from tests.harness.case_selection import three_of
from tests.harness.raising import raises
from tests.unit.changelog.build import header_bytes

pytestmark = pytest.mark.integration

COMMITTED, UNCOMMITTED = IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED
Row = tuple[bytes | None, bytes | None, int, int, bytes]


def create(broker: Broker, topic: str, **config: str) -> None:
    settings = {name.replace("_", "."): value for name, value in config.items()}
    topics.create(broker.bootstrap_servers, topic, config=settings)


def producer(broker: Broker, **config: Any) -> Producer:
    settings = {name.replace("_", "."): value for name, value in config.items()}
    return Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 5, **settings})


def plain(broker: Broker, topic: str, isolation: IsolationLevel, end: int) -> list[Row]:
    """What a plain consumer sees below `end`."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": f"plain-{random.random()}",
            "isolation.level": isolation.value,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
        }
    )
    start, _ = consumer.get_watermark_offsets(ConfluentPartition(topic, 0), timeout=300)
    consumer.assign([ConfluentPartition(topic, 0, start)])
    rows: list[Row] = []
    try:
        while True:
            message = consumer.poll(300)
            assert message is not None, "the plain consumer got stuck"
            if message.error():  # the partition's end
                return [row for row in rows if row[2] < end]
            headers = [(name.encode(), value) for name, value in message.headers() or []]
            rows.append(
                (message.key(), message.value(), message.offset(), message.timestamp()[1], header_bytes(headers))
            )
    finally:
        consumer.close()


def columnar(
    cluster: Cluster, whole: OffsetRange, isolation: IsolationLevel, **options: Any
) -> tuple[list[Row], ChangelogReader]:
    reader = ChangelogReader(cluster, ReaderOptions(**options))
    rows: list[Row] = []
    for batch in reader.read(whole, isolation, headers=True):
        batch.validate(full=True)
        rows += zip(*(column.to_pylist() for column in batch.columns), strict=True)
    return rows, reader


def assert_same(broker: Broker, cluster: Cluster, topic: str, **options: Any) -> dict[IsolationLevel, list[Row]]:
    """Both isolation levels, whole and in ranges that cut batches, against the plain consumer."""
    now = cluster.log_offsets([TopicPartition(topic, 0)])[TopicPartition(topic, 0)]
    seen: dict[IsolationLevel, list[Row]] = {}
    for isolation, end in ((COMMITTED, now.last_stable), (UNCOMMITTED, now.log_end)):
        wanted = plain(broker, topic, isolation, end)
        whole = OffsetRange(topic, 0, now.log_start, end)
        rows, reader = columnar(cluster, whole, isolation, **options)
        assert rows == wanted
        assert reader.statistics.position == end
        assert reader.statistics.records == len(wanted)
        assert reader.statistics.null_keys == sum(row[0] is None for row in wanted)
        assert reader.statistics.tombstones == sum(row[1] is None for row in wanted)
        assert reader.statistics.max_timestamp == max((row[3] for row in wanted), default=-1)
        parts = [columnar(cluster, part, isolation, **options) for part in split_range(whole, 7)]
        assert [row for rows, _ in parts for row in rows] == wanted
        assert sum(part.statistics.aborted for _, part in parts) == reader.statistics.aborted
        seen[isolation] = wanted
    return seen


def delivered(error: Any, _: Any) -> None:
    assert error is None, error


def fill(target: Producer, topic: str, count: int, seed: int) -> None:
    """Records of every shape: null keys, tombstones, empty values, headers, old and new timestamps."""
    chance = random.Random(seed)
    for _ in range(count):
        key = None if chance.random() < 0.05 else b"key-%d" % chance.randrange(500)
        value = None if chance.random() < 0.1 else chance.randbytes(chance.randrange(40)) + b"x" * chance.randrange(200)
        headers = [(f"h{n}", chance.choice([None, b"", b"value"])) for n in range(chance.randrange(3))]
        while True:
            try:
                when = chance.randrange(1, 1_700_000_000_000)
                target.produce(topic, value, key, 0, on_delivery=delivered, timestamp=when, headers=headers)
                break
            except BufferError:
                target.poll(0.05)
    assert target.flush(600) == 0


def test_every_codec_in_one_topic_reads_as_a_plain_consumer_reads_it(
    broker: Broker, cluster: Cluster, topic_name: str
) -> None:
    create(broker, topic_name)
    for seed, codec in enumerate(["none", "gzip", "snappy", "lz4", "zstd", "none"]):
        fill(producer(broker, compression_type=codec, batch_size=5000), topic_name, 1500, seed)
    assert len(assert_same(broker, cluster, topic_name, fetch_bytes=100_000)[COMMITTED]) == 9000


def test_transactions_committed_aborted_and_left_open_read_as_a_plain_consumer_reads_them(
    broker: Broker, cluster: Cluster, topic_name: str
) -> None:
    create(broker, topic_name)
    chance = random.Random(5)
    writers = [
        producer(broker, transactional_id=f"{topic_name}-{n}", compression_type=codec, batch_size=2000)
        for n, codec in enumerate(["none", "lz4", "zstd"])
    ]
    for writer in writers:
        writer.init_transactions(300)
    for turn in range(8):
        for writer in writers:
            writer.begin_transaction()
        for _ in range(2):
            for writer in chance.sample(writers, 3):
                fill(writer, topic_name, chance.randrange(40), turn)
        if turn % 4 == 0:
            fill(producer(broker, compression_type="snappy"), topic_name, 20, turn)
        for writer in chance.sample(writers, 3):
            writer.abort_transaction(300) if chance.random() < 0.4 else writer.commit_transaction(300)
    writers[0].begin_transaction()
    fill(writers[0], topic_name, 30, 99)
    fill(producer(broker), topic_name, 10, 98)
    seen = assert_same(broker, cluster, topic_name, fetch_bytes=20_000)
    assert len(seen[UNCOMMITTED]) > len(seen[COMMITTED]) > 0

    tp = TopicPartition(topic_name, 0)
    now = cluster.log_offsets([tp])[tp]
    assert now.last_stable < now.log_end
    beyond = OffsetRange(topic_name, 0, 0, now.log_end)
    with raises(Retryable, "fetch-stalled", topic=topic_name, partition=0, offset=now.last_stable):
        columnar(cluster, beyond, COMMITTED, stall_timeout=1.5)

    # Closed while the reader waits for it, the read goes on to its end.
    ending = threading.Timer(1.0, lambda: writers[0].abort_transaction(300))
    ending.start()
    rows, reader = columnar(cluster, beyond, COMMITTED, stall_timeout=300)
    ending.join()
    assert reader.statistics.position == now.log_end
    assert reader.statistics.aborted >= 30
    assert rows == plain(broker, topic_name, COMMITTED, now.log_end)
    assert_same(broker, cluster, topic_name)


def test_a_compacted_topic_reads_over_its_gaps_and_its_records_are_estimated(
    broker: Broker, cluster: Cluster, topic_name: str
) -> None:
    create(
        broker,
        topic_name,
        cleanup_policy="compact",
        segment_bytes="1048576",
        min_cleanable_dirty_ratio="0.01",
        delete_retention_ms="0",
        max_compaction_lag_ms="1000",
    )
    writer = producer(broker, compression_type="lz4", enable_idempotence=True, batch_size=4000)
    chance = random.Random(3)
    for n in range(15_000):
        key = b"key-%d" % chance.randrange(300)
        value = None if n % 7 == 0 else chance.randbytes(n % 500)
        writer.produce(topic_name, value, key, 0, on_delivery=delivered)
        if n % 1000 == 0:
            writer.flush(300)
    writer.flush(300)
    tp = TopicPartition(topic_name, 0)
    end = cluster.log_offsets([tp])[tp].log_end
    deadline = time.monotonic() + 300
    while True:
        # Compaction may go on while this reads; what counts is a read between two plain ones that are the same.
        before = plain(broker, topic_name, UNCOMMITTED, end)
        mine, reader = columnar(cluster, OffsetRange(topic_name, 0, 0, end), UNCOMMITTED)
        parts = [columnar(cluster, part, COMMITTED)[0] for part in split_range(OffsetRange(topic_name, 0, 0, end), 9)]
        gaps = [a[2] + 1 for a, b in pairwise(before) if b[2] - a[2] > 1]
        if gaps and before == plain(broker, topic_name, UNCOMMITTED, end):
            break
        assert time.monotonic() < deadline, "the broker did not compact"
        time.sleep(0.1)
    assert mine == before
    assert [row for part in parts for row in part] == before
    assert reader.statistics.position == end
    shape = sample_shapes(cluster, [PartitionShape.of_offsets(OffsetRange(topic_name, 0, 0, end))], min_offsets=100)[tp]
    after = plain(broker, topic_name, UNCOMMITTED, end)  # compaction goes on
    assert len(after) - end / 10 < sum(shape.records) < len(before) + end / 10
    rows, reader = columnar(cluster, OffsetRange(topic_name, 0, gaps[0], gaps[0] + 1), UNCOMMITTED)
    assert (rows, reader.statistics.position) == ([], gaps[0] + 1)


def delete_records(broker: Broker, topic: str, before: int) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    for done in admin.delete_records([ConfluentPartition(topic, 0, before)]).values():
        done.result(300)


def test_a_log_start_that_moved_is_followed_and_reported(broker: Broker, cluster: Cluster, topic_name: str) -> None:
    create(broker, topic_name)
    fill(producer(broker, batch_size=3000), topic_name, 2000, 1)
    delete_records(broker, topic_name, 777)
    rows, reader = columnar(cluster, OffsetRange(topic_name, 0, 100, 1500), UNCOMMITTED)
    assert [row[2] for row in rows] == list(range(777, 1500))
    assert reader.statistics.log_start_moved_to == 777
    assert reader.statistics.position == 1500

    rows, reader = columnar(cluster, OffsetRange(topic_name, 0, 100, 500), UNCOMMITTED)
    assert (rows, reader.statistics.position, reader.statistics.log_start_moved_to) == ([], 500, 777)

    # While it is being read, too.
    reading = ChangelogReader(cluster, ReaderOptions(fetch_bytes=10_000))
    batches = reading.read(OffsetRange(topic_name, 0, 777, 2000), UNCOMMITTED)
    first = next(batches)["offset"].to_pylist()
    delete_records(broker, topic_name, 1700)
    rest = [offset for batch in batches for offset in batch["offset"].to_pylist()]
    assert first[0] == 777
    assert rest[-1] == 1999
    assert set(range(1700, 2000)) <= set(rest)
    assert reading.statistics.log_start_moved_to == 1700


def test_an_end_beyond_the_log_is_an_error_never_a_short_result(
    broker: Broker, cluster: Cluster, topic_name: str
) -> None:
    create(broker, topic_name)
    fill(producer(broker), topic_name, 50, 1)
    with raises(Invalid, "log-truncated", topic=topic_name, log_end=50, end=60):
        columnar(cluster, OffsetRange(topic_name, 0, 0, 60), UNCOMMITTED, stall_timeout=2)
    with raises(Invalid, "log-truncated", topic=topic_name, log_end=50, end=90):
        columnar(cluster, OffsetRange(topic_name, 0, 70, 90), UNCOMMITTED, stall_timeout=2)


def test_a_batch_larger_than_a_fetch_comes_through(broker: Broker, cluster: Cluster, topic_name: str) -> None:
    create(broker, topic_name, max_message_bytes="20000000")
    writer = producer(broker, message_max_bytes=20_000_000)
    big = random.Random(1).randbytes(3_000_000)
    for n in range(3):
        writer.produce(topic_name, big, b"%d" % n, partition=0)
        writer.flush(300)
    rows, reader = columnar(cluster, OffsetRange(topic_name, 0, 0, 3), UNCOMMITTED, fetch_bytes=10_000)
    assert [row[1] == big for row in rows] == [True] * 3
    assert reader.statistics.fetches == 3


def test_a_topic_that_was_created_again_is_refused(broker: Broker, cluster: Cluster, topic_name: str) -> None:
    create(broker, topic_name)
    fill(producer(broker), topic_name, 20, 1)
    planned = cluster.describe_topics([topic_name])[topic_name]
    assert (planned.partitions, len(planned.topic_id)) == (1, 32)
    topics.delete(broker.bootstrap_servers, topic_name)
    topics.create(broker.bootstrap_servers, topic_name)
    fill(producer(broker), topic_name, 20, 2)
    with Cluster(broker.bootstrap_servers) as fresh, raises(Invalid, "topic-recreated"):
        list(ChangelogReader(fresh).read(OffsetRange(topic_name, 0, 0, 20), UNCOMMITTED, topic_id=planned.topic_id))
    # A reader that knew the old topic finds out by the broker's answer.
    with raises(Invalid, "topic-recreated"):
        list(ChangelogReader(cluster).read(OffsetRange(topic_name, 0, 0, 20), UNCOMMITTED, topic_id=planned.topic_id))


def test_missing_topics_and_partitions_are_all_named(broker: Broker, cluster: Cluster, topic_name: str) -> None:
    create(broker, topic_name, cleanup_policy="compact", delete_retention_ms="12345")
    assert topic_name in cluster.list_topics()
    configs = cluster.describe_topics([topic_name])[topic_name].configs
    assert (configs["cleanup.policy"], configs["delete.retention.ms"]) == ("compact", "12345")
    with raises(NotFound, "topic-not-found", topics=["absent-one", "absent-two"]):
        cluster.describe_topics([topic_name, "absent-one", "absent-two"])
    with raises(NotFound, "partition-not-found"):
        cluster.log_offsets([TopicPartition(topic_name, 7)])
    with raises(NotFound, "topic-not-found", topics=["absent-one"]):
        cluster.log_offsets([TopicPartition("absent-one", 0)])


def test_an_unreachable_broker_is_retryable_within_the_deadline() -> None:
    with refusing_port() as port, Cluster(f"127.0.0.1:{port}", timeout=0.5) as cluster:
        with raises(Retryable, "broker-unreachable"):
            cluster.list_topics()


def test_a_broker_that_never_answers_is_retryable_within_the_deadline() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        where = f"127.0.0.1:{silent.getsockname()[1]}"
        with Cluster(where, timeout=0.5) as cluster, raises(Retryable, "broker-unreachable"):
            cluster.list_topics()


def test_unknown_settings_are_refused() -> None:
    with (
        Cluster("127.0.0.1:9", {"sasl_mechanisms": "PLAIN"}) as cluster,
        raises(Invalid, "kafka-settings-invalid"),
    ):
        cluster.list_topics()


def test_broken_connections_are_reopened_and_each_record_is_read_once(
    broker: Broker, cluster: Cluster, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from statecore.changelog.wire import Wire

    create(broker, topic_name)
    fill(producer(broker, batch_size=3000), topic_name, 2000, 1)
    wanted = plain(broker, topic_name, UNCOMMITTED, 2000)
    receive: Callable[[Wire, float], Any] = Wire.receive
    calls = 0

    def failing(self: Wire, timeout: float) -> Any:
        nonlocal calls
        calls += 1
        if calls % 3 == 0:
            self._socket.shutdown(socket.SHUT_RDWR)
        return receive(self, timeout)

    monkeypatch.setattr(Wire, "receive", failing)
    rows, reader = columnar(cluster, OffsetRange(topic_name, 0, 0, 2000), UNCOMMITTED, fetch_bytes=20_000)
    assert rows == wanted
    assert reader.statistics.records == 2000
    assert calls > 9


def test_an_iterator_that_is_left_early_leaves_the_cluster_usable(
    broker: Broker, cluster: Cluster, topic_name: str
) -> None:
    create(broker, topic_name)
    fill(producer(broker, batch_size=3000), topic_name, 2000, 1)
    whole = OffsetRange(topic_name, 0, 0, 2000)
    batches = ChangelogReader(cluster, ReaderOptions(fetch_bytes=10_000)).read(whole, UNCOMMITTED)
    next(batches)
    batches.close()  # type: ignore[attr-defined]
    rows, _ = columnar(cluster, whole, UNCOMMITTED)
    assert len(rows) == 2000


@pytest.mark.parametrize("version", three_of([4, 5, 7, 9, 11, 12, 13, 16, 18]))
def test_every_fetch_version_is_understood(
    broker: Broker, cluster: Cluster, topic_name: str, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    from statecore.changelog import wire

    monkeypatch.setattr(wire, "_NEWEST_VERSION", version)
    create(broker, topic_name)
    # Brokers answer a zstd batch to Fetch 9 and older with an error, so these get another codec.
    writer = producer(broker, transactional_id=topic_name, compression_type="lz4" if version < 10 else "zstd")
    writer.init_transactions(300)
    for turn in range(4):
        writer.begin_transaction()
        fill(writer, topic_name, 30, turn)
        writer.abort_transaction(300) if turn % 2 else writer.commit_transaction(300)
    seen = assert_same(broker, cluster, topic_name)
    assert (len(seen[COMMITTED]), len(seen[UNCOMMITTED])) == (60, 120)
    assert [idle.version for wires in cluster.idle.values() for idle in wires] == [version]


def test_errors_that_pass_are_waited_out_and_a_throttled_client_waits(
    broker: Broker, cluster: Cluster, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dataclasses import replace

    from statecore.changelog.wire import Fetched, Wire

    create(broker, topic_name)
    fill(producer(broker, batch_size=3000), topic_name, 1000, 1)
    wanted = plain(broker, topic_name, UNCOMMITTED, 1000)
    receive: Callable[[Wire, float], Fetched] = Wire.receive
    errors = iter([3, 5, 6, 74, 75, 100, 78, -1])
    moments: list[float] = []

    def troubled(self: Wire, timeout: float) -> Fetched:
        moments.append(time.monotonic())
        fetched = receive(self, timeout)
        code = next(errors, None)
        if code is not None:
            return replace(fetched, error=code, records=fetched.records[:0])
        return replace(fetched, throttle=0.2)

    monkeypatch.setattr(Wire, "receive", troubled)
    rows, _ = columnar(cluster, OffsetRange(topic_name, 0, 0, 1000), UNCOMMITTED, fetch_bytes=60_000)
    assert rows == wanted
    assert all(later - sooner >= 0.19 for sooner, later in pairwise(moments[8:]))

    errors = iter([6] * 1000)
    with raises(Retryable, "fetch-stalled", topic=topic_name, partition=0, offset=7):
        columnar(cluster, OffsetRange(topic_name, 0, 7, 1000), UNCOMMITTED, stall_timeout=1)
