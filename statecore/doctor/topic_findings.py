"""Pure functions that find offsets of a state directory that do not fit the brokers' logs.

The offset of a store is the last one applied, that of a global store the next one. So the first offset that a store
does not have must be within the log's start and end; otherwise the log is another one, or has lost records.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from statecore.changelog.cleanup_policy import NO_LIMIT, why_not_compacted
from statecore.changelog.model import LogOffsets, TopicDescription
from statecore.doctor.finding_catalog import CATALOG, Repair, Severity
from statecore.doctor.findings import Finding
from statecore.doctor.logged_store_offsets import LoggedStoreOffsets
from statecore.formats.kinds import WINDOWED_KINDS, StoreKind
from statecore.formats.releases import CHECKPOINT_FILE
from statecore.formats.task_id import TaskId
from statecore.formats.topic_partition import TopicPartition
from statecore.spec.model import ProcessingGuarantee, StoreSpec
from statecore.words import number_of

_REBUILT = Severity.ERROR
"""Severity for stores that Kafka Streams itself deletes and reads again from the log."""


@dataclass(frozen=True)
class BrokerAnswers:
    """Answers of the brokers.

    Attributes:
        topics: the topics that exist.
        logs: offsets of their partitions with a stored offset.
        committed: source partition → next offset that the application's group consumes; ``None`` if it has committed
            none.
        group: partition → next offset that the group consumes, of all that have one; ``None`` if it was not asked.
    """

    topics: Mapping[str, TopicDescription]
    logs: Mapping[TopicPartition, LogOffsets] = field(default_factory=dict)
    committed: Mapping[TopicPartition, int | None] = field(default_factory=dict)
    group: Mapping[TopicPartition, int] | None = None


def topic_finding(
    code: str,
    store: LoggedStoreOffsets,
    partition: TopicPartition | None,
    what: str,
    severity: Severity | None = None,
    **evidence: Any,
) -> Finding:
    """A finding of a store with the first repair of its kind; by default with the worst severity."""
    kind = CATALOG[code]
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
    stores: Sequence[LoggedStoreOffsets], answers: BrokerAnswers, guarantee: ProcessingGuarantee | None = None
) -> list[Finding]:
    """Findings by the offsets alone, store by store."""
    return [found for store in stores for found in _of_store(store, answers, guarantee)]


class AbsentStore(NamedTuple):
    """A declared store of which a task has no directory.

    Attributes:
        partition: the task's partition of its changelog.
        is_source: whether that is an input of the application.
    """

    task: str
    declared: StoreSpec
    partition: TopicPartition
    is_source: bool


def findings_of_absent(absent: Sequence[AbsentStore], topics: Mapping[str, TopicDescription]) -> list[Finding]:
    """Findings of absent stores: their changelog does not have the task's partition, or is missing."""
    return [found for one in absent for found in _of_absent(one, topics.get(one.partition.topic))]


def _of_absent(one: AbsentStore, topic: TopicDescription | None) -> Iterator[Finding]:
    """A store on disk that is absent is found without brokers."""
    name, partition = one.declared.name, one.partition
    if topic is None and not one.declared.is_restorable:
        yield Finding(
            "topic-missing",
            f"There is no topic {partition.topic}: if the application has run with the store before, its rows are lost",
            Severity.WARNING,
            one.task,
            name,
            evidence={"topic": partition.topic},
            own_remedy=_IN_NO_DIRECTORY,
        )
    if topic is not None and partition.partition >= topic.partitions:
        yield Finding(
            "partition-unknown",
            f"The task is of partition {partition.partition} of {topic.name}, which has {topic.partitions}.",
            Severity.WARNING,
            one.task,
            name,
            partition=partition,
            evidence={"topic": topic.name, "partitions": topic.partitions, "topic_id": topic.topic_id},
        )


_IN_NO_DIRECTORY = (
    "Find out who deleted the topic: the application creates it again, empty, and no directory has the rows. Nothing "
    "has to be done if the application never ran with this store."
)


def findings_beyond_stores(
    stores: Sequence[LoggedStoreOffsets], answers: BrokerAnswers, absent: Sequence[AbsentStore] = ()
) -> list[Finding]:
    """Findings of all stores together: what the group has committed, and partitions of a subtopology's topics."""
    by_subtopology: dict[int, list[LoggedStoreOffsets]] = {}
    absent_by_subtopology: dict[int, list[AbsentStore]] = {}
    for store in stores:
        if not store.is_global:
            by_subtopology.setdefault(TaskId.parse(store.task).subtopology, []).append(store)
    for one in absent:
        absent_by_subtopology.setdefault(TaskId.parse(one.task).subtopology, []).append(one)
    found = [
        finding
        for number in sorted(by_subtopology.keys() | absent_by_subtopology.keys())
        for finding in _of_partition_counts(
            by_subtopology.get(number, ()), absent_by_subtopology.get(number, ()), answers
        )
    ]
    applied = {f"{store.task} {store.store}" for of in by_subtopology.values() for store in of if store.known}
    if answers.group is not None and not answers.group and applied:
        what = (
            f"{number_of(len(applied), 'store')} of the tasks have offsets of their changelogs, and the application's "
            "group has committed no offset of any topic: its offsets were deleted, or have expired"
        )
        found.append(Finding("group-offsets-missing", what, Severity.LOSS, evidence={"stores": sorted(applied)}))
    return found


def findings_of_positions(
    positions: Mapping[tuple[str, TopicPartition], int], answers: BrokerAnswers
) -> tuple[list[Finding], list[str]]:
    """Findings of inputs that the group does not consume from where the state ends, and undecided questions.

    Args:
        positions: task and partition of an input → greatest offset that a store of the task has applied.
    """
    group = answers.group or {}
    found = [
        Finding(
            "group-offsets-differ",
            f"It has applied {partition} up to offset {last}, and the application's group has committed "
            f"{group.get(partition, 'no offset of it')}: the records between them are processed again.",
            Severity.LOSS,
            task,
            partition=partition,
            evidence={"applied": last, "committed": group.get(partition)},
        )
        for (task, partition), last in sorted(positions.items())
        if partition.topic in {one.topic for one in group} and group.get(partition, 0) <= last
    ]
    found += [
        Finding(
            "group-offsets-differ",
            f"The application's group has committed {offset} of {partition}, whose log ends at {log.log_end}: Kafka "
            "Streams continues where auto.offset.reset says.",
            Severity.LOSS,
            partition=partition,
            evidence={"committed": offset, "log_end": log.log_end},
        )
        for partition, offset in sorted(group.items())
        if (log := answers.logs.get(partition)) is not None and offset > log.log_end
    ]
    unknown = sorted({one.topic for _, one in positions} - {one.topic for one in group}) if group else []
    return found, [
        f"Stores have applied records of {topic}, and the group has committed no offset of it: if it is still an "
        "input, all of it is processed again (group-offsets-differ)."
        for topic in unknown
    ]


def _of_partition_counts(
    stores: Sequence[LoggedStoreOffsets], absent: Sequence[AbsentStore], answers: BrokerAnswers
) -> Iterator[Finding]:
    """Topics of one subtopology with another number of partitions than most of its changelogs.

    Every changelog has as many partitions as the greatest source topic of its subtopology.
    """
    counts: dict[tuple[str, str], int] = {}
    sources: dict[tuple[str, str], int] = {}
    for store in stores:
        for topic in sorted({partition.topic for partition in store.partitions} & answers.topics.keys()):
            of = sources if store.is_source(topic) else counts if topic == store.default_changelog else {}
            of[store.store, topic] = answers.topics[topic].partitions
    for one in absent:
        if (topic := one.partition.topic) in answers.topics:
            of = sources if one.is_source else counts
            of[one.declared.name, topic] = answers.topics[topic].partitions
    if not counts:
        return
    usual, _ = max(Counter(counts.values()).items(), key=lambda one: (one[1], -one[0]))
    strange = {of: count for of, count in counts.items() if count != usual}
    strange |= {of: count for of, count in sources.items() if count > usual}
    for (name, topic), count in sorted(strange.items()):
        what = (
            f"{topic} has {number_of(count, 'partition')}, and {'the' if (name, topic) in sources else 'other'} "
            f"changelogs of the subtopology of {name} have {usual}: every start of the application fails"
        )
        evidence = {"topic": topic, "partitions": count, "usual": usual}
        yield Finding("partitions-differ", what, Severity.ERROR, store=name, evidence=evidence)


def grown_inputs(stores: Sequence[LoggedStoreOffsets], answers: BrokerAnswers) -> list[str]:
    """Sentences about inputs that seem to have more partitions than when the application ran.

    The group has committed offsets of as many partitions as changelogs have. But a partition without records has no
    offset either, and the inputs of each subtopology are not known.
    """
    changelogs = {one.default_changelog for one in stores} & answers.topics.keys()
    counts = {answers.topics[name].partitions for name in changelogs}
    committed = Counter(partition.topic for partition in answers.group or ())
    return [
        f"{name} has {answers.topics[name].partitions} partitions, and the group has committed offsets of {count}, as "
        "many as changelogs have: if it is an input of their subtopology, every start fails (partitions-differ)."
        for name, count in sorted(committed.items())
        if name in answers.topics and count in counts and answers.topics[name].partitions > max(counts)
    ]


def _of_store(
    store: LoggedStoreOffsets, answers: BrokerAnswers, guarantee: ProcessingGuarantee | None
) -> Iterator[Finding]:
    yield from _missing(store, answers)
    if store.is_global:
        yield from _not_compacted(store, answers, "global-topic-not-compacted")
        yield from _without_offset(store, answers)
    elif keeps_all_rows(store.kind):
        yield from _not_compacted(store, answers, "changelog-incomplete", Severity.WARNING)
    for partition in store.partitions:
        topic = answers.topics.get(partition.topic)
        if topic is None:
            continue
        if partition.partition >= topic.partitions:
            yield topic_finding(
                "partition-unknown",
                store,
                partition,
                f"It is of partition {partition.partition} of {topic.name}, which has {topic.partitions}.",
                Severity.WARNING if store.is_global else None,  # a start looks for the offsets of existing ones alone
                topic=topic.name,
                partitions=topic.partitions,
                topic_id=topic.topic_id,
            )
        elif partition in store.known:
            yield from _of_partition(store, partition, answers, guarantee)


def _missing(store: LoggedStoreOffsets, answers: BrokerAnswers) -> Iterator[Finding]:
    absent = sorted({partition.topic for partition in store.partitions} - answers.topics.keys())
    for topic in absent:
        known = {str(part): store.offsets[part] for part in sorted(store.known) if part.topic == topic}
        text = ", ".join(f"offset {offset} of {part}" for part, offset in known.items())
        yield topic_finding(
            "topic-missing",
            store,
            _only([part for part in store.partitions if part.topic == topic]),
            f"It says {text}, and there is no such topic." if known else f"There is no topic {topic}.",
            _severity_of_missing(store, topic) if known else Severity.WARNING,
            topic=topic,
            offsets=known,
        )


def _severity_of_missing(store: LoggedStoreOffsets, topic: str) -> Severity | None:
    """The application creates its own changelogs; without an input topic it does not start."""
    return Severity.ERROR if store.is_global or store.is_source(topic) else None


def _only(partitions: Sequence[TopicPartition]) -> TopicPartition | None:
    return partitions[0] if len(partitions) == 1 else None


def keeps_all_rows(kind: StoreKind) -> bool:
    """Whether rows of a store do not expire, so that its topic must keep the last record of every key."""
    return kind.can_be_built and kind not in WINDOWED_KINDS


def _not_compacted(
    store: LoggedStoreOffsets, answers: BrokerAnswers, code: str, severity: Severity | None = None
) -> Iterator[Finding]:
    for name in sorted({partition.topic for partition in store.partitions} & answers.topics.keys()):
        topic = answers.topics[name]
        why = why_not_compacted(topic)
        if not why:
            continue
        yield topic_finding(
            code,
            store,
            None,
            why,
            severity,
            topic=name,
            cleanup_policy=topic.configs["cleanup.policy"],
            retention_ms=topic.configs.get("retention.ms", NO_LIMIT),
            retention_bytes=topic.configs.get("retention.bytes", NO_LIMIT),
        )


def _without_offset(store: LoggedStoreOffsets, answers: BrokerAnswers) -> Iterator[Finding]:
    """The last partitions of a global store's topic, if it has no offset of them, and they have records.

    They may have been added since the application started, which reads them at its next start only. Partitions below
    one with an offset are found without brokers.
    """
    for partition in _lacking(store, answers.topics):
        log = answers.logs.get(partition)
        if log is None or log.log_start == log.log_end:
            continue
        last = max(one.partition for one in store.offsets if one.topic == partition.topic)
        if partition.partition < last:
            continue
        yield topic_finding(
            "offset-missing",
            store,
            partition,
            f"It has no offset of {partition}, whose log begins at {log.log_start} and ends at {log.log_end}, and an "
            "offset of other partitions: the next start reads that log from its start.",
            Severity.WARNING,
            log_start=log.log_start,
            log_end=log.log_end,
        )


def _lacking(store: LoggedStoreOffsets, topics: Mapping[str, TopicDescription]) -> list[TopicPartition]:
    """The partitions of a global store's topic of which it has no offset; none if it has none at all."""
    if not store.is_global:
        return []
    names = sorted({partition.topic for partition in store.offsets} & topics.keys())
    every = (TopicPartition(name, number) for name in names for number in range(topics[name].partitions))
    return [partition for partition in every if partition not in store.offsets]


def _of_partition(
    store: LoggedStoreOffsets, partition: TopicPartition, answers: BrokerAnswers, guarantee: ProcessingGuarantee | None
) -> Iterator[Finding]:
    log, offset, following = answers.logs[partition], store.offsets[partition], store.known[partition]
    facts: dict[str, Any] = {"offset": offset, "log_start": log.log_start, "log_end": log.log_end}
    if following > log.log_end:
        empty = " and is empty" if log.log_start == log.log_end else ""
        found = topic_finding(
            "offset-past-end",
            store,
            partition,
            f"It says offset {offset} of {partition}, and the log ends at {log.log_end}{empty}: the topic was created "
            "again or truncated, or this is another cluster.",
            _REBUILT if store.is_global else None,
            **facts,
        )
        # If the log is empty the store may be the only copy, and a rebuild would restore nothing.
        yield replace(found, repair=None) if empty else found
    elif following < log.log_start:
        yield topic_finding(
            "offset-before-start",
            store,
            partition,
            f"It says offset {offset} of {partition}, and the log begins at {log.log_start}: "
            f"{log.log_start - following} offsets between them are gone.",
            _REBUILT if store.is_global or guarantee is ProcessingGuarantee.EXACTLY_ONCE_V2 else None,
            **facts,
        )
    elif partition in answers.committed and store.is_source(partition.topic):  # asked for another store, too
        yield from _ahead(store, partition, answers.committed[partition], facts)


def _ahead(
    store: LoggedStoreOffsets, partition: TopicPartition, committed: int | None, facts: Mapping[str, Any]
) -> Iterator[Finding]:
    following = store.known[partition]
    if following <= (committed or 0):
        return
    has = "nothing" if committed is None else f"{committed}"
    yield topic_finding(
        "source-ahead",
        store,
        partition,
        f"It says offset {store.offsets[partition]} of the source topic partition {partition}, and the application's "
        f"group has committed {has}: the records between them are processed again.",
        committed=committed,
        **facts,
    )


def blame_checkpoint_file(
    found: Sequence[Finding], alone: Sequence[LoggedStoreOffsets], of_alone: Sequence[Finding]
) -> list[Finding]:
    """The same findings, except that a ``.checkpoint`` overruling a sound store is repaired by moving it aside."""
    own = {(one.task, one.store, part): offset for one in alone for part, offset in one.offsets.items()}
    sound = {(one.task, one.store, part) for one in alone for part in one.known}
    wrong = {(one.task, one.store, one.partition) for one in of_alone}
    result = []
    for one in found:
        of = one.task, one.store, one.partition
        if one.partition is None or of not in sound - wrong or Repair.MOVE_ASIDE not in one.kind.repairs:
            result.append(one)
            continue
        offset = own[one.task, one.store, one.partition]
        what = f"{one.what} This is from {CHECKPOINT_FILE}; the store itself says {offset}, which fits."
        evidence = {**one.evidence, "file": CHECKPOINT_FILE, "store_says": offset}
        result.append(replace(one, what=what, evidence=evidence, repair=Repair.MOVE_ASIDE))
    return result


def existing_partitions(
    stores: Sequence[LoggedStoreOffsets], topics: Mapping[str, TopicDescription]
) -> list[TopicPartition]:
    """The partitions whose log offsets are needed: those with a stored offset, and the others of global stores."""
    every = {partition for store in stores for partition in (*store.known, *_lacking(store, topics))}
    return sorted(part for part in every if part.topic in topics and part.partition < topics[part.topic].partitions)


def source_partitions(stores: Sequence[LoggedStoreOffsets], asked: Sequence[TopicPartition]) -> list[TopicPartition]:
    """The given partitions that belong to inputs of the application."""
    wanted = set(asked)
    return sorted({part for store in stores for part in store.known if part in wanted and store.is_source(part.topic)})
