"""Checks for missing stores whose offset is still in a file: Kafka Streams trusts it and restores nothing.

Kafka Streams creates a missing store and looks for its offset: up to 4.2 only in ``.checkpoint``, later in that file
before the store itself, and for a store that does not manage its own in ``.checkpoint_<store>``. It restores the store
from the start only if it finds none. A windowed store without a segment cannot keep an offset of ``.checkpoint``, so
releases with offsets inside restore it, and older ones do not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from statecore.discover.kind_evidence import GRACE_BUFFER_SUFFIX
from statecore.doctor.checks.context import CheckContext
from statecore.doctor.finding_catalog import Repair, Severity
from statecore.doctor.findings import Finding
from statecore.doctor.inspection import StoreView, TaskView
from statecore.formats.checkpoint import store_checkpoint_file
from statecore.formats.kinds import StoreKind
from statecore.formats.releases import CHECKPOINT_FILE, LAST_WITHOUT_OFFSETS
from statecore.formats.task_id import TaskId
from statecore.formats.topic_partition import TopicPartition
from statecore.spec.model import StoreSpec
from statecore.statedir.store_places import changelog_at


@dataclass(frozen=True)
class _MissingStore:
    """A missing store.

    Attributes:
        why: what is there instead, as the end of "the store s".
        entries: its entries in ``.checkpoint``.
        has_windows: whether it is of windows or sessions.
        reads_own_file: whether its offset may be in ``.checkpoint_<store>``.
    """

    store: str
    why: str
    entries: Mapping[TopicPartition, int]
    has_windows: bool
    reads_own_file: bool = True


def find_missing(task: TaskView, stores: Sequence[StoreView], context: CheckContext) -> list[Finding]:
    """The missing stores of one task whose offset is in a file."""
    if any(store.in_use for store in stores):
        return []
    found = []
    for one in (*_emptied(task, stores, context), *_absent(task, stores, context)):
        of_file = _known(task.stores[one.store].offsets) if one.reads_own_file and one.store in task.stores else {}
        if entries := of_file or _known(one.entries):
            file = store_checkpoint_file(one.store) if of_file else CHECKPOINT_FILE
            found.append(_finding(task, one, file, entries, context))
    if not any(store.keeps_offsets_inside for store in stores):  # a restore of windows needs no file moved
        found = [replace(one, repair=None) if one.severity is Severity.WARNING else one for one in found]
    return found


def _known(offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    return {partition: offset for partition, offset in sorted(offsets.items()) if offset >= 0}


def _emptied(task: TaskView, stores: Sequence[StoreView], context: CheckContext) -> Iterator[_MissingStore]:
    """Missing stores whose directory is left."""
    for store in stores:
        if not store.is_gone or not store.logged:
            continue
        entries = context.entries_of(store, task.checkpoint)
        own = {part: offset for part, offset in entries.items() if part.topic == context.changelog_of(store)}
        others = [one for one in stores if one is not store and context.entries_of(one, task.checkpoint) == entries]
        windows = store.segmented and not _is_buffer(store.store, store.kind)
        why = "has no segment" if store.segmented else "is a directory without a database"
        yield _MissingStore(
            store.store, why, own or ({} if others else entries), windows, store.kind.may_keep_offset_outside
        )


def _absent(task: TaskView, stores: Sequence[StoreView], context: CheckContext) -> Iterator[_MissingStore]:
    """Stores without a directory: declared ones, and grace buffers by the names of their files."""
    present = {store.store for store in stores}
    declared = {store.name: store for store in _declared(task.task, context)}
    for name, store in declared.items():
        if name not in present and (store.kind is not StoreKind.UNKNOWN or name not in task.stores or _is_buffer(name)):
            topic, partition = (
                changelog_at(context.application_id, task.task, name, store),
                TaskId.parse(task.task).partition,
            )
            entries = {
                part: offset
                for part, offset in task.checkpoint.offsets.items()
                if part.topic == topic and partition in (None, part.partition)
            }
            windows = store.kind.is_segmented and not _is_buffer(name, store.kind)
            yield _MissingStore(name, "has no directory", entries, windows, store.kind.may_keep_offset_outside)
    for name in task.stores if context.spec is None else ():
        if name not in present and _is_buffer(name):  # a custom store may be anywhere
            yield _MissingStore(name, "has no directory", {}, has_windows=False)


def _declared(task: str, context: CheckContext) -> list[StoreSpec]:
    declared = () if context.spec is None else context.spec.stores_of(task)
    return [store for store in declared if store.is_restorable]  # a custom store may be anywhere


def _is_buffer(store: str, kind: StoreKind = StoreKind.UNKNOWN) -> bool:
    return kind is StoreKind.GRACE_BUFFER or (kind is StoreKind.UNKNOWN and store.endswith(GRACE_BUFFER_SUFFIX))


def _finding(
    task: TaskView, one: _MissingStore, file: str, entries: Mapping[TopicPartition, int], context: CheckContext
) -> Finding:
    of_task = file == CHECKPOINT_FILE
    restored = of_task and one.has_windows and context.release.offsets_inside
    text = ", ".join(f"{offset} of {partition}" for partition, offset in entries.items())
    what = f"the store {one.store} in {task.task} {one.why}, and {task.task}/{file} says {text}: " + (
        f"Kafka Streams {LAST_WITHOUT_OFFSETS} and older trust the file and answer without its rows; "
        f"{context.release.name} restores it from the start"
        if restored
        else "Kafka Streams trusts the file, restores nothing, and answers without its rows"
    )
    return Finding(
        "checkpoint-stray",
        what,
        Severity.WARNING if restored else Severity.LOSS,
        task.task,
        one.store,
        partition=next(iter(entries)) if len(entries) == 1 else None,
        evidence={
            "file": file,
            "entries": [*map(str, entries)],
            "offsets": [*entries.values()],
            "damage": not restored,
        },
        repair=Repair.MOVE_ASIDE if of_task else Repair.REBUILD,
    )
