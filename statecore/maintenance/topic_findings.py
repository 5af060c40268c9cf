"""Which offsets of a state directory do not fit the logs that the brokers have. Pure functions over what they said.

The offset of a store is the last one applied, that of a global store the next one. So the first offset that a store has
not may be the log's start, its end, or between them; elsewhere the log is another one, or has lost what lay between.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from statecore.changelog.model import LogOffsets, TopicDescription
from statecore.formats.topic_partition import TopicPartition
from statecore.maintenance.catalogue import CATALOGUE, Severity
from statecore.maintenance.evidence import cleanup_policies
from statecore.maintenance.findings import Finding
from statecore.maintenance.stored_offsets import StoreOffsets
from statecore.spec.model import ProcessingGuarantee

_NO_LIMIT = "-1"
_REBUILT = Severity.ERROR
"""Of what Kafka Streams itself deletes and reads again from the log."""


@dataclass(frozen=True)
class Told:
    """What the brokers said.

    Attributes:
        topics: those that exist.
        logs: the offsets of their partitions, as far as something is said of these.
        committed: source partition → the next offset that the application's group consumes; ``None`` where it has
            committed none.
    """

    topics: Mapping[str, TopicDescription]
    logs: Mapping[TopicPartition, LogOffsets] = field(default_factory=dict)
    committed: Mapping[TopicPartition, int | None] = field(default_factory=dict)


def finding(
    code: str,
    store: StoreOffsets,
    partition: TopicPartition | None,
    what: str,
    severity: Severity | None = None,
    **evidence: Any,
) -> Finding:
    """A finding of a store, with the first repair that its kind has; at the worst severity where none is given."""
    kind = CATALOGUE[code]
    repair = kind.repairs[0] if kind.repairs else None
    return Finding(
        code,
        what,
        severity or kind.severity,
        task=store.task,
        store=store.store,
        partition=partition,
        evidence=evidence,
        repair=repair,
    )


def findings_of_offsets(
    stores: Sequence[StoreOffsets], told: Told, guarantee: ProcessingGuarantee | None = None
) -> list[Finding]:
    """What is to be said by the offsets alone, store by store.

    Args:
        stores: what they say.
        told: what the brokers said of their topics; a topic that is not in there does not exist.
        guarantee: the application's; ``None`` where nobody knows it, which counts as the worse one.
    """
    return [found for store in stores for found in _of_store(store, told, guarantee)]


def _of_store(store: StoreOffsets, told: Told, guarantee: ProcessingGuarantee | None) -> Iterator[Finding]:
    yield from _missing(store, told)
    if store.is_global:
        yield from _not_compacted(store, told)
    for partition in store.partitions:
        topic = told.topics.get(partition.topic)
        if topic is None:
            continue
        if partition.partition >= topic.partitions:
            yield finding(
                "partition-unknown",
                store,
                partition,
                f"It is of partition {partition.partition} of {topic.name}, which has {topic.partitions}.",
                topic=topic.name,
                partitions=topic.partitions,
                topic_id=topic.topic_id,
            )
        elif partition in store.known:
            yield from _of_partition(store, partition, told, guarantee)


def _missing(store: StoreOffsets, told: Told) -> Iterator[Finding]:
    absent = sorted({partition.topic for partition in store.partitions} - told.topics.keys())
    for topic in absent:
        known = {str(part): store.offsets[part] for part in sorted(store.known) if part.topic == topic}
        said = ", ".join(f"offset {offset} of {part}" for part, offset in known.items())
        yield finding(
            "topic-missing",
            store,
            _only([part for part in store.partitions if part.topic == topic]),
            f"It says {said}, and there is no such topic." if known else f"There is no topic {topic}.",
            _severity_of_missing(store, topic) if known else Severity.WARNING,
            topic=topic,
            offsets=known,
        )


def _severity_of_missing(store: StoreOffsets, topic: str) -> Severity | None:
    """The application makes its changelogs itself; without a topic that it reads it does not start."""
    return Severity.ERROR if store.is_global or store.is_source(topic) else None


def _only(partitions: Sequence[TopicPartition]) -> TopicPartition | None:
    return partitions[0] if len(partitions) == 1 else None


def _not_compacted(store: StoreOffsets, told: Told) -> Iterator[Finding]:
    for name in sorted({partition.topic for partition in store.partitions} & told.topics.keys()):
        topic = told.topics[name]
        limits = [topic.configs.get(limit, _NO_LIMIT) for limit in ("retention.ms", "retention.bytes")]
        if "delete" not in cleanup_policies(topic) or limits == [_NO_LIMIT, _NO_LIMIT]:
            continue
        policy = topic.configs["cleanup.policy"]
        yield finding(
            "global-topic-not-compacted",
            store,
            None,
            f"{name} has cleanup.policy={policy}, retention.ms={limits[0]} and retention.bytes={limits[1]}: its "
            "records are deleted whether or not they are a key's last.",
            topic=name,
            cleanup_policy=policy,
            retention_ms=limits[0],
            retention_bytes=limits[1],
        )


def _of_partition(
    store: StoreOffsets, partition: TopicPartition, told: Told, guarantee: ProcessingGuarantee | None
) -> Iterator[Finding]:
    log, offset, following = told.logs[partition], store.offsets[partition], store.known[partition]
    facts: dict[str, Any] = {"offset": offset, "log_start": log.log_start, "log_end": log.log_end}
    if following > log.log_end:
        empty = " and is empty" if log.log_start == log.log_end else ""
        yield finding(
            "offset-past-end",
            store,
            partition,
            f"It says offset {offset} of {partition}, and the log ends at {log.log_end}{empty}: the topic was created "
            "again or truncated, or this is another cluster.",
            _REBUILT if store.is_global else None,
            **facts,
        )
    elif following < log.log_start:
        yield finding(
            "offset-before-start",
            store,
            partition,
            f"It says offset {offset} of {partition}, and the log begins at {log.log_start}: "
            f"{log.log_start - following} offsets between them are gone.",
            _REBUILT if store.is_global or guarantee is ProcessingGuarantee.EXACTLY_ONCE_V2 else None,
            **facts,
        )
    elif partition in told.committed:
        yield from _ahead(store, partition, told.committed[partition], facts)


def _ahead(
    store: StoreOffsets, partition: TopicPartition, committed: int | None, facts: Mapping[str, Any]
) -> Iterator[Finding]:
    following = store.known[partition]
    if following <= (committed or 0):
        return
    has = "nothing" if committed is None else f"{committed}"
    yield finding(
        "source-ahead",
        store,
        partition,
        f"It says offset {store.offsets[partition]} of the source topic partition {partition}, and the application's "
        f"group has committed {has}: what lies between is processed again.",
        committed=committed,
        **facts,
    )


def asked_partitions(stores: Sequence[StoreOffsets], topics: Mapping[str, TopicDescription]) -> list[TopicPartition]:
    """The partitions whose logs are to be asked for: those that say an offset, and exist."""
    every = {partition for store in stores for partition in store.known}
    return sorted(part for part in every if part.topic in topics and part.partition < topics[part.topic].partitions)


def source_partitions(stores: Sequence[StoreOffsets], asked: Sequence[TopicPartition]) -> list[TopicPartition]:
    """Those of some partitions that are of topics which the application reads itself."""
    wanted = set(asked)
    return sorted({part for store in stores for part in store.known if part in wanted and store.is_source(part.topic)})
