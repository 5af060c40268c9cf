"""Reads a changelog's records as rows with kafka-python's consumer: slower than the columnar reader, needs no extra."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from statecore.changelog.client import reason
from statecore.changelog.cluster import Cluster
from statecore.changelog.model import OffsetRange
from statecore.errors import Corrupted, Invalid, Retryable, StatecoreError
from statecore.formats.kinds import StoreKind
from statecore.formats.rows.row import rows_of_record
from statecore.formats.topic_partition import TopicPartition
from statecore.isolation import IsolationLevel
from statecore.tasks.restoration.preconditions import check_topic_id, topic_id_of
from statecore.tasks.restoration.records import RestoredRows, log_start_moved, unfit_record

_POLL_MS = 200
_MAX_RECORDS = 10_000


def read_rows(
    cluster: Cluster,
    span: OffsetRange,
    kind: StoreKind,
    isolation: IsolationLevel,
    *,
    topic_id: str | None,
    stall_timeout: float,
) -> Iterator[RestoredRows]:
    """As the columnar reader's: rows poll by poll. The consumer's position, which passes markers, tells the end."""
    partition = span.topic_partition
    consumer = _consumer(cluster, isolation)
    try:
        from kafka import TopicPartition as KafkaPartition

        assigned = KafkaPartition(*partition)
        consumer.assign([assigned])
        consumer.seek(assigned, span.start)
        at, moved_at = span.start, time.monotonic()
        while at < span.end:
            polled, position = _poll(consumer, cluster, partition, at)
            found = [record for record in polled if record.offset < span.end]
            following = min(position, span.end)
            if following > at:
                check_topic_id(partition, topic_id, topic_id_of(cluster, partition))
                yield _rows(kind, partition, found, following)
                at, moved_at = following, time.monotonic()
            elif time.monotonic() - moved_at > stall_timeout:
                raise _stalled(cluster, span, at, stall_timeout)
    finally:
        consumer.close()


def _consumer(cluster: Cluster, isolation: IsolationLevel) -> Any:
    from kafka import KafkaConsumer
    from kafka.errors import KafkaError

    settings = cluster.connection_settings
    known = {name: value for name, value in settings.items() if name in KafkaConsumer.DEFAULT_CONFIG}
    try:
        return KafkaConsumer(
            **{
                "ssl_password": "",  # without one OpenSSL asks for it on the terminal
                **known,
                "bootstrap_servers": cluster.addresses,
                "group_id": None,
                "enable_auto_commit": False,
                "auto_offset_reset": "none",
                "isolation_level": isolation.value,
                "max_poll_records": _MAX_RECORDS,
                "allow_auto_create_topics": False,
            }
        )
    except KafkaError as error:
        raise _unreachable(cluster, error) from error


def _poll(consumer: Any, cluster: Cluster, partition: TopicPartition, at: int) -> tuple[list[Any], int]:
    """The next records, and the offset after them and everything skipped."""
    from kafka import TopicPartition as KafkaPartition
    from kafka import errors

    assigned = KafkaPartition(*partition)
    try:
        return consumer.poll(timeout_ms=_POLL_MS).get(assigned, []), int(consumer.position(assigned))
    except (errors.OffsetOutOfRangeError, errors.NoOffsetForPartitionError) as error:
        raise _out_of_range(cluster, partition, at) from error
    except errors.CorruptRecordError as error:
        raise Corrupted(
            f"A record batch of {partition} at or after offset {at} is damaged: {reason(error)}.",
            code="record-batch-corrupted",
            action="Check the broker's disk; another replica may have the records intact.",
            topic=partition.topic,
            partition=partition.partition,
            offset=at,
        ) from error
    except errors.UnsupportedCodecError as error:
        raise Invalid(
            f"The records of {partition} are compressed as this installation cannot read: {reason(error)}.",
            code="codec-missing",
            action="Install the package for that codec, or the extra pipeline, whose reader supports all codecs.",
            topic=partition.topic,
            partition=partition.partition,
        ) from error
    except UnicodeDecodeError as error:
        raise Invalid(
            f"A record of {partition} at or after offset {at} has a header whose name is not UTF-8.",
            code="header-unsupported",
            action="Install the extra pipeline, whose reader takes it as Kafka Streams does.",
            topic=partition.topic,
            partition=partition.partition,
            offset=at,
        ) from error
    except errors.KafkaError as error:
        raise _unreachable(cluster, error) from error


def _rows(kind: StoreKind, partition: TopicPartition, records: list[Any], following: int) -> RestoredRows:
    rows: list[tuple[bytes, bytes | None]] = []
    records_with_key = 0
    for record in records:
        if record.key is None:
            continue
        records_with_key += 1
        try:
            rows += rows_of_record(kind, record.key, record.value, record.timestamp, record.headers)
        except Invalid as error:
            raise unfit_record(kind, partition, record.offset, f"does not fit ({error.what.rstrip('.')})") from error
    return RestoredRows(rows, records_with_key, following)


def _out_of_range(cluster: Cluster, partition: TopicPartition, at: int) -> StatecoreError:
    now = cluster.log_offsets([partition])[partition]
    if now.log_start > at:
        return log_start_moved(partition, now.log_start)
    return Retryable(
        f"The broker says that offset {at} of {partition} is out of range; its log goes from {now.log_start} to "
        f"{now.log_end} now.",
        code="offset-out-of-range",
        action="Restore again; whether the store has to be wiped is decided then.",
        topic=partition.topic,
        partition=partition.partition,
        offset=at,
        log_start=now.log_start,
        log_end=now.log_end,
    )


def _stalled(cluster: Cluster, span: OffsetRange, at: int, timeout: float) -> Retryable:
    return Retryable(
        f"Nothing came from {cluster.bootstrap_servers} for {timeout:g} s: reading {span.topic_partition} is at "
        f"offset {at}, and its end is {span.end}.",
        code="fetch-stalled",
        action="Check the brokers, then restore again; what was committed stays.",
        topic=span.topic,
        partition=span.partition,
        offset=at,
        end=span.end,
    )


def _unreachable(cluster: Cluster, error: Exception) -> Retryable:
    return Retryable(
        f"Reading from {cluster.bootstrap_servers} failed: {type(error).__name__} {reason(error)}.",
        code="fetch-failed",
        action="Check the brokers, then restore again; what was committed stays.",
        bootstrap_servers=cluster.bootstrap_servers,
    )
