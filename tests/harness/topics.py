"""Topics as tests need them: created, filled by plain and transactional producers, cut, compacted, read.

Transactions end as the test says: committed, aborted, or left hanging as by a producer that died. Every function
takes the bootstrap servers, so that it serves any broker.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka._model import ConsumerGroupTopicPartitions
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

COMPACTED: Mapping[str, str] = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "segment.ms": "100",
    "delete.retention.ms": "86400000",
}
"""Settings of a topic that ``compact`` can compact within a second or two; deletes stay for a day."""

UNCLEANED: Mapping[str, str] = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "1.0",
    "segment.ms": "604800000",
}
"""Settings of a compacted topic, as a changelog is, from which nothing is removed while a test looks at it."""

_TIMEOUT = 600.0
"""Reached by no machine that only stalls; librdkafka takes 300 s at most for a request."""

_REQUEST = 300.0
_QUIET: dict[str, Any] = {"log_level": 0, "log.connection.close": False, "reconnect.backoff.max.ms": 2000}
_NOT_YET = (
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError._NOENT,  # a client that was connected before the broker started again
)


@dataclass(frozen=True)
class Record:
    """One record to produce, or one that was read.

    Attributes:
        key: None is legal in a topic, and what a store must skip.
        value: None is a tombstone.
        partition: where it goes, or came from.
        timestamp: milliseconds, 1 or later; None (and, says librdkafka, 0): the time of producing.
        headers: name and value (None is legal) in order.
        offset: set on records that were read.
    """

    key: bytes | None
    value: bytes | None
    partition: int = 0
    timestamp: int | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    offset: int | None = field(default=None, compare=False)


def create(bootstrap_servers: str, topic: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
    """Creates a topic and returns when the leader of every partition serves it."""
    admin = _admin(bootstrap_servers)
    made = admin.create_topics([NewTopic(topic, partitions, 1, config=dict(config or {}))], request_timeout=_REQUEST)
    made[topic].result(_TIMEOUT)
    _until(
        lambda: _leaders(admin, topic) == partitions,
        f"topic {topic} has no leader for each of its {partitions} partitions",
    )
    _offsets(admin, [TopicPartition(topic, p) for p in range(partitions)], OffsetSpec.latest(), "read_uncommitted")


def grow(bootstrap_servers: str, names: Iterable[str], partitions: int) -> None:
    """Gives topics more partitions and returns when the leader of every one serves it."""
    admin = _admin(bootstrap_servers)
    for topic, made in admin.create_partitions(
        [NewPartitions(name, partitions) for name in names], request_timeout=_REQUEST
    ).items():
        made.result(_TIMEOUT)
        _until(
            lambda topic=topic: _leaders(admin, topic) == partitions,  # type: ignore[misc]
            f"topic {topic} has no leader for each of its {partitions} partitions",
        )
        _offsets(admin, [TopicPartition(topic, p) for p in range(partitions)], OffsetSpec.latest(), "read_uncommitted")
    _plain_producer.cache_clear()  # those that there are learn of it minutes later


def delete(bootstrap_servers: str, topic: str) -> None:
    """Deletes a topic and returns when it is gone."""
    admin = _admin(bootstrap_servers)
    admin.delete_topics([topic], request_timeout=_REQUEST)[topic].result(_TIMEOUT)
    _until(lambda: _leaders(admin, topic) == 0, f"topic {topic} is still there")


def produce(bootstrap_servers: str, topic: str, records: Iterable[Record], **settings: Any) -> None:
    """Produces records without a transaction, in order, and returns when all are acknowledged.

    ``settings`` are librdkafka's, with ``_`` for ``.``: ``compression_type="lz4"``, ``linger_ms=0``,
    ``batch_size=1000``.
    """
    send(_plain_producer(bootstrap_servers, tuple(sorted(settings.items()))), topic, records)


@contextmanager
def transaction(
    bootstrap_servers: str, topic: str, records: Iterable[Record], *, timeout_ms: int = 60_000, **settings: Any
) -> Iterator[Producer]:
    """A transaction that is open inside the ``with`` block, all records acknowledged, and committed at its end.

    The block may end it itself by ``abort_transaction()`` or ``commit_transaction()`` of the producer it gets; an
    exception in the block aborts it. Returns when the marker is in every partition: the coordinator answers earlier
    than that.
    """
    sent = list(records)
    producer = _begin(bootstrap_servers, topic, sent, timeout_ms, settings)
    ends = {p: end_offset(bootstrap_servers, topic, p) for p in {record.partition for record in sent}}
    try:
        yield producer
    except BaseException:
        _end(producer.abort_transaction)
        raise
    _end(producer.commit_transaction)
    for partition, end in ends.items():
        _until(
            lambda p=partition, e=end: end_offset(bootstrap_servers, topic, p) > e,  # type: ignore[misc]
            f"{topic}-{partition} has no marker of the transaction",
        )


def produce_committed(bootstrap_servers: str, topic: str, records: Iterable[Record], **settings: Any) -> None:
    """Produces records in one committed transaction."""
    with transaction(bootstrap_servers, topic, records, **settings):
        pass


def produce_aborted(bootstrap_servers: str, topic: str, records: Iterable[Record], **settings: Any) -> None:
    """Produces records in one aborted transaction: they must never be visible."""
    with transaction(bootstrap_servers, topic, records, **settings) as producer:
        producer.abort_transaction(_TIMEOUT)


def produce_hanging(
    bootstrap_servers: str, topic: str, records: Iterable[Record], *, timeout_ms: int = 60_000, **settings: Any
) -> Producer:
    """Produces records in a transaction that stays open until the broker's time-out, as when its producer died.

    The producer that is returned may still end it.
    """
    return _begin(bootstrap_servers, topic, records, timeout_ms, settings)


def delete_records(bootstrap_servers: str, topic: str, partition: int, before: int) -> None:
    """Moves the log start of a partition (Kafka's DeleteRecords), as retention does."""
    admin = _admin(bootstrap_servers)
    wanted = TopicPartition(topic, partition, before)
    admin.delete_records([wanted], request_timeout=_REQUEST)[wanted].result(_TIMEOUT)


def configure(servers: str, topic: str, settings: Mapping[str, str]) -> None:
    """Set settings of a topic; others stay."""
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in settings.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    admin = AdminClient({"bootstrap.servers": servers})  # has to live until the answer is there
    admin.incremental_alter_configs([resource])[resource].result(_REQUEST)


def compact(
    bootstrap_servers: str,
    topic: str,
    partition: int,
    data_directory: Path,
    filler: Record,
    *,
    timeout: float = _TIMEOUT,
) -> None:
    """Compacts all there is in a partition of a ``COMPACTED`` topic; ``filler`` is its one record that stays uncleaned.

    The active segment is never cleaned, so the filler is produced with a timestamp beyond ``segment.ms`` to begin a
    new one: beyond that of every record, because two fillers of the same moment would share a segment. Returns when the
    broker's cleaner has come to it (``cleaner-offset-checkpoint`` in its data directory).

    Raises:
        TimeoutError: it has not in so many seconds.
    """
    now = int(time.time() * 1000)
    admin, here = _admin(bootstrap_servers), [TopicPartition(topic, partition)]
    (newest,) = _list_offsets(admin, here, OffsetSpec.max_timestamp(), "read_uncommitted")
    stamped = Record(filler.key, filler.value, partition, max(now + 60_000, newest.timestamp + 1_000), filler.headers)
    begin = end_offset(bootstrap_servers, topic, partition)
    produce(bootstrap_servers, topic, [stamped])
    checkpoint = data_directory / "cleaner-offset-checkpoint"
    _until(
        lambda: _cleaned_to(checkpoint, topic, partition) >= begin, f"{topic}-{partition} was not compacted", timeout
    )


def end_offset(bootstrap_servers: str, topic: str, partition: int, isolation: str = "read_uncommitted") -> int:
    """The log end offset of a partition; under ``read_committed`` its last stable offset."""
    return _offsets(_admin(bootstrap_servers), [TopicPartition(topic, partition)], OffsetSpec.latest(), isolation)[0]


def start_offset(bootstrap_servers: str, topic: str, partition: int) -> int:
    """The log start offset of a partition."""
    admin = _admin(bootstrap_servers)
    return _offsets(admin, [TopicPartition(topic, partition)], OffsetSpec.earliest(), "read_uncommitted")[0]


def partitions(bootstrap_servers: str, topic: str) -> int:
    """The number of partitions of a topic; 0 when it does not exist."""
    return _leaders(_admin(bootstrap_servers), topic)


def read(bootstrap_servers: str, topic: str, partition: int, isolation: str = "read_committed") -> list[Record]:
    """Every record of a partition up to its end now, by a plain consumer: what other readers are compared with."""
    end = end_offset(bootstrap_servers, topic, partition, isolation)
    settings = {
        "bootstrap.servers": bootstrap_servers,
        "group.id": f"read-{uuid.uuid4().hex}",
        "enable.auto.commit": False,
        "isolation.level": isolation,
        "enable.partition.eof": True,
        "fetch.wait.max.ms": 10,
        **_QUIET,
        "auto.offset.reset": "earliest",
    }
    found: list[Record] = []
    consumer = Consumer(settings)
    try:
        consumer.assign([TopicPartition(topic, partition, start_offset(bootstrap_servers, topic, partition))])
        while True:
            for message in consumer.consume(10_000, timeout=0.05):
                error = message.error()
                if error is not None:
                    if error.code() == KafkaError._PARTITION_EOF and message.offset() >= end:
                        return found
                    if error.code() != KafkaError._PARTITION_EOF:
                        raise KafkaException(error)
                elif message.offset() < end:
                    found.append(_record(message))
                else:
                    return found
    finally:
        consumer.close()


def commit(bootstrap_servers: str, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
    """Commit offsets for a consumer group that has no members: (topic, partition) → next offset."""
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": group})
    try:
        consumer.commit(offsets=[TopicPartition(*tp, offset) for tp, offset in offsets.items()], asynchronous=False)
    finally:
        consumer.close()


def forget_group(bootstrap_servers: str, group: str) -> None:
    """Deletes a consumer group that has no members, with its offsets."""
    _admin(bootstrap_servers).delete_consumer_groups([group], request_timeout=_REQUEST)[group].result(_TIMEOUT)


def wait_until_consumed(bootstrap_servers: str, group: str, topics: Sequence[str], timeout: float = 300.0) -> None:
    """Waits until a group has committed all of these topics, which must be given in the direction of the data.

    A Kafka Streams application has then processed its input: give source topics first, then repartition topics. A later
    topic is only looked at when the earlier ones are done, so that its end no longer moves.

    Args:
        bootstrap_servers: the broker.
        group: the consumer group.
        topics: what it is to commit.
        timeout: seconds without any commit after which it counts as stuck; a slow machine may take longer in all.

    Raises:
        TimeoutError: the group has committed nothing for so long.
    """
    admin = _admin(bootstrap_servers)
    deadline = time.monotonic() + timeout
    before: list[int] = []
    for topic in topics:
        wanted = [TopicPartition(topic, p) for p in range(_leaders(admin, topic))]
        while True:
            ends = _offsets(admin, wanted, OffsetSpec.latest(), "read_committed")
            committed = _committed(admin, group, wanted)
            lag = {
                tp.partition: end - done for tp, end, done in zip(wanted, ends, committed, strict=True) if end > done
            }
            if wanted and not lag:
                break
            if committed != before:
                before, deadline = committed, time.monotonic() + timeout
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"{group} has not consumed {topic}, and committed nothing for {timeout:.0f} s: "
                    f"lag by partition {lag}"
                )
            time.sleep(0.1)
            wanted = wanted or [TopicPartition(topic, p) for p in range(_leaders(admin, topic))]


def wait_until_stable(bootstrap_servers: str, names: Iterable[str], timeout: float = _TIMEOUT) -> None:
    """Waits until no transaction is open over these topics: a commit is answered before its markers are in the logs."""
    admin = _admin(bootstrap_servers)
    wanted = [TopicPartition(name, p) for name in names for p in range(_leaders(admin, name))]
    _until(
        lambda: (
            _offsets(admin, wanted, OffsetSpec.latest(), "read_committed")
            == _offsets(admin, wanted, OffsetSpec.latest(), "read_uncommitted")
        ),
        "a transaction is still open",
        timeout,
    )


@lru_cache(maxsize=8)
def _admin(bootstrap_servers: str) -> AdminClient:
    # One client for each broker: a new one now and then waits one or three seconds on librdkafka's own timers before
    # its first request. Brokers of tests come and go; librdkafka would print each lost connection.
    return AdminClient({"bootstrap.servers": bootstrap_servers, **_QUIET})


@lru_cache(maxsize=8)
def _plain_producer(bootstrap_servers: str, settings: tuple[tuple[str, Any], ...]) -> Producer:
    return _producer(bootstrap_servers, dict(settings))


def _producer(bootstrap_servers: str, settings: Mapping[str, Any]) -> Producer:
    given = {name.replace("_", "."): value for name, value in settings.items()}
    return Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 5, **_QUIET, **given})


def _begin(
    bootstrap_servers: str, topic: str, records: Iterable[Record], timeout_ms: int, settings: Mapping[str, Any]
) -> Producer:
    settings = {
        "enable_idempotence": True,
        "transactional_id": f"test-{uuid.uuid4().hex}",
        "transaction_timeout_ms": timeout_ms,
        **settings,
    }
    producer = _producer(bootstrap_servers, settings)
    producer.init_transactions(_TIMEOUT)
    producer.begin_transaction()
    send(producer, topic, records)
    return producer


def send(producer: Producer, topic: str, records: Iterable[Record]) -> None:
    """Produces the records and waits until all are acknowledged."""
    failed: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: Any) -> None:
        if error is not None:
            failed.append(error)

    for record in records:
        more = {} if record.timestamp is None else {"timestamp": record.timestamp}
        headers = list(record.headers) or None
        while True:
            try:
                producer.produce(topic, record.value, record.key, record.partition, delivered, headers=headers, **more)
                break
            except BufferError:
                producer.poll(0.1)
    left = producer.flush(_TIMEOUT)
    if failed or left:
        raise RuntimeError(f"{len(failed)} records of {topic} were refused {failed[:1]}, {left} were not acknowledged")


def _end(end: Callable[[float], None]) -> None:
    try:
        end(_TIMEOUT)
    except KafkaException as error:
        if error.args[0].code() != KafkaError._STATE:  # the block has ended its transaction itself
            raise


def _record(message: Any) -> Record:
    return Record(
        message.key(),
        message.value(),
        message.partition(),
        message.timestamp()[1],
        tuple(message.headers() or ()),
        message.offset(),
    )


def _leaders(admin: AdminClient, topic: str) -> int:
    found = admin.list_topics(topic, timeout=_REQUEST).topics.get(topic)
    if found is None or found.error is not None:
        return 0
    return sum(1 for one in found.partitions.values() if one.leader >= 0)


def _offsets(admin: AdminClient, wanted: list[TopicPartition], spec: OffsetSpec, isolation: str) -> list[int]:
    return [int(one.offset) for one in _list_offsets(admin, wanted, spec, isolation)]


def _list_offsets(admin: AdminClient, wanted: list[TopicPartition], spec: OffsetSpec, isolation: str) -> list[Any]:
    if not wanted:
        return []
    level = IsolationLevel.READ_COMMITTED if isolation == "read_committed" else IsolationLevel.READ_UNCOMMITTED
    deadline = time.monotonic() + _TIMEOUT
    while True:
        futures = admin.list_offsets(dict.fromkeys(wanted, spec), isolation_level=level, request_timeout=_REQUEST)
        try:
            return [futures[one].result(_TIMEOUT) for one in wanted]
        except KafkaException as error:
            # Metadata names a leader a moment before that leader knows it.
            if error.args[0].code() not in _NOT_YET or time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def _committed(admin: AdminClient, group: str, wanted: list[TopicPartition]) -> list[int]:
    request = ConsumerGroupTopicPartitions(group, [TopicPartition(one.topic, one.partition) for one in wanted])
    answer = admin.list_consumer_group_offsets([request], request_timeout=_REQUEST)[group].result(_TIMEOUT)
    done = {(one.topic, one.partition): max(0, one.offset) for one in answer.topic_partitions}
    return [done.get((one.topic, one.partition), 0) for one in wanted]


def _cleaned_to(checkpoint: Path, topic: str, partition: int) -> int:
    try:
        lines = checkpoint.read_text().splitlines()[2:]
    except FileNotFoundError:
        return -1
    found = [int(line.split()[2]) for line in lines if line.split()[:2] == [topic, str(partition)]]
    return found[0] if found else -1


def _until(condition: Callable[[], bool], otherwise: str, timeout: float = _TIMEOUT) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{otherwise} after {timeout} s")
        time.sleep(0.05)
