"""Checks of offset and status in a store, and of stores without changelog."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from statecore.doctor.checks.context import CheckContext, foreign_offsets, store_finding
from statecore.doctor.finding_catalog import Repair, Severity
from statecore.doctor.findings import Finding
from statecore.doctor.inspection import StoreView, TaskView
from statecore.formats.kinds import StoreKind
from statecore.formats.offsets import OFFSET_UNKNOWN
from statecore.formats.releases import CHECKPOINT_FILE, GLOBAL
from statecore.formats.topic_partition import TopicPartition
from statecore.statedir.checkpoint_overlay import migrated
from statecore.words import shortened_list

_BEFORE_FIRST = -1
"""An offset from which a start reads the changelog from 0; Kafka Streams does not write it."""

_CLOSE_STANDBY = (
    "This is a copy of statecore standby, whose process died: run statecore standby --once with this directory, which "
    "follows the changelog to its end and closes the store."
)


_COMPARE = "Compare the store with its changelog (statecore diff), and restore it if it has rows of no record."


def check_offsets(store: StoreView, task: TaskView, context: CheckContext) -> list[Finding]:
    """Check offset and status of one store of one task, except for what is normal in a running application."""
    found = []
    if store.keeps_offsets_inside is not False:
        found += [*_missing(store, task, context), *_unknown(store, task, context), *_foreign(store, task, context)]
    elif store.task == GLOBAL and not context.release.offsets_inside:
        found += _unknown_global(store, context.entries_of(store, task.checkpoint), f"in {CHECKPOINT_FILE} the offset")
    if store.closed is False and not store.in_use:
        found.append(_not_closed(store, task, context))
    return found


def _missing(store: StoreView, task: TaskView, context: CheckContext) -> list[Finding]:
    if store.in_use or not store.logged or store.foreign:
        return []
    severity = context.severity_without_offset(Severity.LOSS if store.rows else Severity.WARNING)
    if not store.databases:
        if store.declared is None and context.spec is not None:
            return []  # Kafka Streams opens the declared stores; another tool has put this there (store-undeclared)
        what = "is a directory without a database"
        return (
            [] if store.segmented else [store_finding(store, "offset-missing", severity, what, repair=Repair.REBUILD)]
        )
    if not store.readable:
        return []
    if context.finds_offset(store, task):
        return _of_global_partitions(store, task, context)
    what = "has no offset: Kafka Streams restores it "
    if not store.kind.manages_offsets:
        if not context.release.offsets_inside:
            return []
        what = f"has no .checkpoint_{store.store}, where Kafka Streams keeps its offset: Kafka Streams restores it "
    if store.task == GLOBAL:
        severity = Severity.LOSS if store.rows else Severity.WARNING
        what += "from the start of its topic, over its rows" if store.rows else "from the start of its topic"
    else:
        over = " over its rows" if store.rows else ""
        what += f"from the start{over}{context.wipe_clause()}"
    return [store_finding(store, "offset-missing", severity, what, repair=Repair.REBUILD, rows=store.rows)]


def _of_global_partitions(store: StoreView, task: TaskView, context: CheckContext) -> list[Finding]:
    """Partitions of a global store's topic without an offset, below one that has one.

    Kafka Streams writes an offset of every partition, of an empty one 0. It looks for each by itself. How many
    partitions the topic has only the brokers know.
    """
    if store.task != GLOBAL:
        return []
    topics = {one.topic for one in store.offsets}
    if store.has_decided_changelog:
        topics &= {context.changelog_of(store)}
    known = {*store.offsets, *task.checkpoint.offsets}
    found = []
    for name in sorted(topics):
        numbers = {one.partition for one in known if one.topic == name}
        lacking = [f"{name}-{number}" for number in range(max(numbers)) if number not in numbers]
        if lacking:
            over = ", over its rows" if store.rows else ""
            what = f"has no offset of {shortened_list(lacking, 3)}: Kafka Streams reads that from the start{over}"
            severity = Severity.LOSS if store.rows else Severity.WARNING
            found.append(
                store_finding(
                    store, "offset-missing", severity, what, repair=Repair.REBUILD, partitions=lacking, rows=store.rows
                )
            )
    return found


def _foreign(store: StoreView, task: TaskView, context: CheckContext) -> list[Finding]:
    """Offsets of a changelog partition that is not this store's, if it has none of its own."""
    if store.task == GLOBAL:
        return _of_another_topic(store, context)
    if not store.logged:
        return []
    strange = [one for one in store.offsets if context.is_foreign(store, one, task)]
    if not strange:
        return []
    if len(strange) == len(store.offsets):
        return [foreign_offsets(store, strange, context)]
    return _segments(store, strange) or ([] if context.is_exactly_once else _beside_own(store, strange))


def _beside_own(store: StoreView, strange: list[TopicPartition]) -> list[Finding]:
    """Offsets of other partitions of the store's changelog beside its own, as a start on exchanged tasks leaves them.

    An entry alone proves nothing: a tool may have written it into a store that has its own rows.
    """
    topics = {own.topic for own in store.offsets.keys() - set(strange)}
    others = [part for part in strange if part.topic in topics]
    if not others:
        return []
    what = (
        f"has the offset of {others[0]} beside that of its own partition: if Kafka Streams was started with the "
        "directories of the two tasks exchanged, it restored the rows of this task over those of the other, and "
        "answers with both"
    )
    found = store_finding(store, "offset-foreign", Severity.NOTE, what, partitions=[str(one) for one in others])
    return [replace(found, own_remedy=_COMPARE)]


def _of_another_topic(store: StoreView, context: CheckContext) -> list[Finding]:
    """A global store with offsets only of other topics than the declared one; the spec may be wrong, too."""
    topic = context.changelog_of(store)
    if not store.logged or not store.has_decided_changelog or not store.offsets:
        return []
    if any(one.topic == topic for one in store.offsets):
        return []
    others = sorted({one.topic for one in store.offsets})
    what = (
        f"has offsets of {', '.join(others)}, and the spec declares {topic}: Kafka Streams reads that "
        "from its start over these rows; if the spec is wrong, correct it, else move the store's directory away"
    )
    severity = Severity.LOSS if store.rows else Severity.WARNING
    return [store_finding(store, "offset-foreign", severity, what, topics=others)]


def _segments(store: StoreView, strange: list[TopicPartition]) -> list[Finding]:
    """Segments with offsets of another partition only, beside others with the store's own."""
    guilty = [one for one in store.databases if one.offsets and not one.offsets.keys() - set(strange)]
    if not guilty:
        return []
    what = (
        f"has segments with the offset of {strange[0]}, which is not its changelog ({guilty[0].name}"
        + (f" and {len(guilty) - 1} more" if len(guilty) > 1 else "")
        + "): they belong to another task, and Kafka Streams answers with their rows"
    )
    segment = guilty[0].name if len(guilty) == 1 else ""
    named = [str(one) for one in strange]
    return [
        store_finding(
            store, "offset-foreign", Severity.LOSS, what, repair=Repair.REBUILD, segment=segment, partitions=named
        )
    ]


def _unknown(store: StoreView, task: TaskView, context: CheckContext) -> list[Finding]:
    at = {partition: offset for partition, offset in store.offsets.items() if offset < 0}
    if not store.kind.manages_offsets:  # a start reads .checkpoint after the store's own file; one that lies is found
        overruled = migrated(task.checkpoint.offsets)
        at = {partition: offset for partition, offset in at.items() if partition not in overruled}
    if not store.logged or not at:
        return []
    if store.task == GLOBAL:
        return _unknown_global(store, at, "the offset")
    lowest, partitions = min(at.values()), [*map(str, at)]
    invalid = [offset for offset in at.values() if offset not in (OFFSET_UNKNOWN, _BEFORE_FIRST)]
    if invalid and not store.in_use:
        what = f"has the offset {min(invalid)}, which no changelog has: every start of the application fails"
        return [
            store_finding(store, "offset-invalid", Severity.ERROR, what, repair=Repair.REBUILD, partitions=partitions)
        ]
    if not store.rows or store.in_use:
        return []
    if store.closed is False and context.is_exactly_once and not context.transactional:
        return []  # its task is wiped for that (store-not-closed), with rows and offset
    if store.kind.is_versioned:
        what = (
            f"has rows and the offset {lowest}: Kafka Streams replays its changelog over them, which changes them "
            "and, with some histories, fails: restore it"
        )
        return [store_finding(store, "offset-unknown", Severity.LOSS, what, repair=Repair.REBUILD, damage=True)]
    what = (
        f"has rows and the offset {lowest}: Kafka Streams restores it from the start over them, and keys whose deletes "
        "the changelog no longer has survive"
    )
    return [store_finding(store, "offset-unknown", Severity.LOSS, what, repair=Repair.REBUILD, rows=store.rows)]


def _unknown_global(store: StoreView, offsets: Mapping[TopicPartition, int], has: str) -> list[Finding]:
    """Negative offsets of a global store, to which every release seeks."""
    at = {partition: offset for partition, offset in offsets.items() if offset < 0}
    if not at:
        return []
    what = f"has {has} {min(at.values())}: a global store with it fails every start"
    code, partitions = "global-offset-unknown", [*map(str, at)]
    return [store_finding(store, code, Severity.ERROR, what, repair=Repair.REBUILD, partitions=partitions)]


def _not_closed(store: StoreView, task: TaskView, context: CheckContext) -> Finding:
    opened, is_buffer = [one for one in store.databases if one.is_open], store.kind is StoreKind.GRACE_BUFFER
    names = [one.name for one in opened]
    if store.task == GLOBAL:
        what = "was not closed because its process died: under exactly-once every start of the application fails"
        severity = context.severity(Severity.WARNING, Severity.ERROR)
        return store_finding(
            store, "global-store-not-closed", severity, what, repair=Repair.SET_STATUS, databases=names
        )
    if context.transactional:
        severity = context.severity(Severity.NOTE, Severity.ERROR)
        what = (
            "has the status open, left by a process without transactional stores that died, and never changed by those "
            "with them: under exactly-once the next start wipes the task, or never ends if the store is the "
            "task's first; at-least-once it is ignored"
        )
    else:
        severity = context.severity(Severity.WARNING, Severity.ERROR)
        wipes = (
            f"the next start ends in an error at {opened[0].name}, which is open after a closed segment, and deletes "
            "every task of this directory; the one after it restores them"
            if context.is_every_task_wiped(store, task)
            else "the next start wipes the task"
        )
        what = f"was not closed because its process died: under exactly-once {wipes}; at-least-once " + (
            "the next start restores the records after the last flush"
            + (", with keys under which the join never finds them" if is_buffer else "")
            if store.logged
            else "records after the last flush are lost"
        )
    repair = None if context.is_at_least_once and not is_buffer else Repair.REBUILD
    found = store_finding(store, "store-not-closed", severity, what, repair=repair, databases=names)
    if task.followed and all(one.written_here_last for one in opened):
        return replace(found, repair=None, own_remedy=_CLOSE_STANDBY)
    return found


def check_unlogged(stores: Iterable[StoreView], wiped: Collection[str]) -> list[Finding]:
    """Stores without changelog, and which of them the next start deletes with their task, if that is ``wiped``."""
    result = []
    for store in stores:
        if store.logged or not store.databases:
            continue
        if store.task in wiped and store.rows:
            what = "is not logged, and under exactly-once the next start deletes it with its task: copy it first"
            result.append(store_finding(store, "store-unlogged", Severity.LOSS, what, rows=store.rows))
        else:
            what = "is not logged: it needs no offset, and its rows have no other copy"
            result.append(store_finding(store, "store-unlogged", Severity.NOTE, what, rows=store.rows))
    return result
