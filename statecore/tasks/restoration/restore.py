"""Catches a store up from its changelog: after a crash or the loss of a disk, or regularly as a standby.

::

    store.open()
    producer.init_transactions()                          ends a killed predecessor's transaction
    restored = restore(store, changelog, "localhost:9092")
    restored.records, restored.start, restored.end

Every precondition is checked before anything is changed (:mod:`statecore.tasks.restoration.preconditions`). Rows and
offset are committed together, whenever the store requests it and at the end, so memory is bounded, and an interrupted
restore continues where it was.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from statecore.changelog.cluster import Cluster
from statecore.changelog.model import OffsetRange
from statecore.choices import enum_value
from statecore.errors import Reason
from statecore.extras import is_installed, require
from statecore.formats.kinds import StoreKind
from statecore.formats.topic_partition import TopicPartition, as_topic_partition
from statecore.isolation import IsolationLevel
from statecore.metrics import NO_METRICS, Metrics, RestoreMetrics, Tags
from statecore.stores.base import StateStore
from statecore.tasks.change_logging import check_kind, kind_of, logged_store
from statecore.tasks.restoration.preconditions import (
    check_topic_id,
    refuse_stale,
    settled_offsets,
    topic_id_of,
    why_stale,
)
from statecore.tasks.restoration.records import RestoredRows


class RestoreReader(StrEnum):
    """The changelog reader; the resulting store is the same."""

    AUTO = "auto"
    """The columnar reader where the extra ``pipeline`` is installed, else the consumer."""

    COLUMNAR = "columnar"
    """:class:`~statecore.changelog.reader.ChangelogReader`: about five times as fast."""

    CONSUMER = "consumer"
    """kafka-python's ``KafkaConsumer``."""


class OnStale(StrEnum):
    """What to do with a store whose rows the changelog can no longer bring up to date."""

    REFUSE = "refuse"
    """Raise an error, and change nothing."""

    WIPE = "wipe"
    """Delete its rows and restore it from the beginning, as Kafka Streams does (``TaskCorruptedException``)."""


@dataclass(frozen=True)
class RestoreSettings:
    """How to restore.

    Attributes:
        isolation: READ_COMMITTED leaves out aborted transactions and goes to the last stable offset, which without
            transactions is the log's end; READ_UNCOMMITTED takes everything, as Kafka Streams does under at-least-once.
        reader: the changelog reader.
        on_stale: what to do with a store that cannot be caught up.
        transaction_wait: seconds to wait for transactions that are open below the log's end.
        stall_timeout: seconds without progress after which the restore fails; what was committed stays.
    """

    isolation: IsolationLevel = IsolationLevel.READ_COMMITTED
    reader: RestoreReader = RestoreReader.AUTO
    on_stale: OnStale = OnStale.REFUSE
    transaction_wait: float = 60.0
    stall_timeout: float = 60.0

    def __post_init__(self) -> None:
        for name, among in (("isolation", IsolationLevel), ("reader", RestoreReader), ("on_stale", OnStale)):
            object.__setattr__(self, name, enum_value(among, getattr(self, name), name))


@dataclass(frozen=True)
class Restored:
    """Result of a restore.

    Attributes:
        records: records applied; those without a key are left out.
        start: the offset it began at.
        end: the offset it ended before; the store's offset is the one before this.
        wiped: why the store's rows were deleted first, or ``None``.
        topic_id: the changelog's id, 32 hex digits, to be compared by a later restore; ``None`` if it has none.
    """

    records: int
    start: int
    end: int
    wiped: str | None = None
    topic_id: str | None = None


class _Plan(NamedTuple):
    span: OffsetRange
    why_stale: Reason | None
    topic_id: str | None


def restore(
    store: StateStore,
    changelog: TopicPartition,
    cluster: Cluster | str,
    settings: RestoreSettings | None = None,
    *,
    kafka: Mapping[str, Any] | None = None,
    kind: StoreKind | None = None,
    topic_id: str | None = None,
    metrics: Metrics = NO_METRICS,
    tags: Tags | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Restored:
    """Apply what the changelog has beyond the store's committed offset, up to its end.

    Under exactly-once the producer's ``init_transactions()`` comes first. Nothing is written to the changelog, also
    where the store is a :class:`~statecore.tasks.change_logging.ChangeLoggingStore`.

    Args:
        store: the store, open, with nothing staged.
        changelog: its changelog partition.
        cluster: the cluster, or its ``bootstrap_servers``.
        settings: how to restore.
        kafka: further client settings by kafka-python's names, where ``cluster`` is a text.
        kind: the store's kind; by default that of a :class:`RocksDBStore`, else ``key-value``.
        topic_id: the id that the changelog had (:attr:`Restored.topic_id`); a recreated topic is refused.
        metrics: gets the numbers of records restored and remaining.
        tags: tags of these metrics.
        clock: seconds, monotonic.

    Raises:
        Invalid: the store is not open or has uncommitted writes; its kind cannot be restored record by record; it is
            stale (offset past the log's end or before its start, rows without an offset); the topic was recreated; a
            record does not fit the kind; the columnar reader was requested without its extra.
        NotFound: the topic or the partition does not exist.
        Retryable: a broker did not answer, a transaction stayed open, or records were deleted while they were read.
            What was committed until then stays.
        Corrupted: a record cannot be read.
        Capacity: the disk is full.
    """
    settings = settings or RestoreSettings()
    changelog = as_topic_partition(changelog)
    store = logged_store(store)
    kind = kind or kind_of(store)
    check_kind(kind)
    store.transaction().abort()  # refuses a store that is closed, or has uncommitted writes
    if isinstance(cluster, str):
        with Cluster(cluster, dict(kafka or {})) as own:
            return _restore(store, changelog, own, settings, kind, topic_id, (metrics, tags or {}), clock)
    return _restore(store, changelog, cluster, settings, kind, topic_id, (metrics, tags or {}), clock)


def _restore(
    store: StateStore,
    changelog: TopicPartition,
    cluster: Cluster,
    settings: RestoreSettings,
    kind: StoreKind,
    topic_id: str | None,
    measured: tuple[Metrics, Tags],
    clock: Callable[[], float],
) -> Restored:
    plan = _plan(store, changelog, cluster, settings, topic_id, clock)
    _is_columnar(settings.reader)  # before anything is changed
    if plan.why_stale is not None:
        if settings.on_stale is OnStale.REFUSE:
            raise refuse_stale(changelog, plan.why_stale)
        wipe(store, changelog)
    span, records, committed = plan.span, 0, plan.span.start
    progress = RestoreMetrics(measured[0], span.end - span.start, measured[1])
    transaction = store.transaction()
    try:
        with closing(_rows(cluster, plan, kind, settings)) as batches:
            for batch in batches:
                transaction.put_all(batch.rows)
                records += batch.records
                progress.restored(batch.records)
                if batch.next_offset > committed and (store.commit_requested or batch.next_offset == span.end):
                    transaction.commit({changelog: batch.next_offset - 1})
                    transaction, committed = store.transaction(), batch.next_offset
        if _known_offset(store, changelog) is None and span.end > 0:
            transaction.commit({changelog: span.end - 1})  # the log has no records left
    finally:
        progress.close()
        if store.is_open:
            transaction.abort()  # a later commit must not include rows whose offset was not committed
    return Restored(records, span.start, span.end, plan.why_stale, plan.topic_id)


def _plan(
    store: StateStore,
    changelog: TopicPartition,
    cluster: Cluster,
    settings: RestoreSettings,
    topic_id: str | None,
    clock: Callable[[], float],
) -> _Plan:
    """Ask for the changelog once, and check every precondition."""
    found = topic_id_of(cluster, changelog)
    check_topic_id(changelog, topic_id, found)
    if settings.isolation is IsolationLevel.READ_COMMITTED:
        log = settled_offsets(cluster, changelog, settings.transaction_wait, clock=clock)
    else:
        log = cluster.log_offsets([changelog])[changelog]
    committed = _known_offset(store, changelog)
    has_rows = committed is None and next(iter(store.all()), None) is not None
    stale = why_stale(changelog, committed, log, has_rows=has_rows)
    start = log.log_start if committed is None or stale else committed + 1
    return _Plan(OffsetRange(*changelog, start, max(start, log.log_end)), stale, found)


def _known_offset(store: StateStore, changelog: TopicPartition) -> int | None:
    """The store's offset; ``None`` for -4 (``OFFSET_UNKNOWN``)."""
    offset = store.committed_offset(changelog)
    return None if offset is None or offset < 0 else offset


def _rows(cluster: Cluster, plan: _Plan, kind: StoreKind, settings: RestoreSettings) -> Generator[RestoredRows]:
    if plan.span.start >= plan.span.end:
        return
    if _is_columnar(settings.reader):
        from statecore.tasks.restoration.columnar_records import read_rows
    else:
        from statecore.tasks.restoration.consumer_records import read_rows
    yield from read_rows(
        cluster,
        plan.span,
        kind,
        settings.isolation,
        topic_id=plan.topic_id,
        stall_timeout=settings.stall_timeout,
    )


def _is_columnar(reader: RestoreReader) -> bool:
    """Whether to use the columnar reader; raises ``MissingExtra`` where it was requested and is not installed."""
    if reader is RestoreReader.COLUMNAR:
        require("pipeline")
    return reader is not RestoreReader.CONSUMER and is_installed("pipeline")


def wipe(store: StateStore, changelog: TopicPartition) -> None:
    """Delete all rows of an open store with nothing staged; its offset first: a kill leaves rows without one."""
    store.transaction().commit({changelog: None})
    transaction = store.transaction()
    try:
        for key, _ in store.all():
            transaction.delete(key)
            if store.commit_requested:
                transaction.commit({changelog: None})
                transaction = store.transaction()
        transaction.commit({changelog: None})
    finally:
        if store.is_open:
            transaction.abort()
