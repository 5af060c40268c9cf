"""Stores that are gone while a file beside them keeps their offset: it is believed, and nothing of them is restored.

Kafka Streams makes a store that it does not find, and asks for its offset: up to 4.2 ``.checkpoint`` alone, later that
file before the store itself, and of a store that does not manage its own ``.checkpoint_<store>``. No answer but the
lack of one makes it restore the store from the start. A store of windows without a segment has nowhere to keep what
``.checkpoint`` says, so it is restored by a release that keeps offsets inside, and by none that is older.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from statecore.discover.kind_evidence import GRACE_BUFFER_SUFFIX
from statecore.doctor.checks.context import CheckContext
from statecore.doctor.finding_catalog import Repair, Severity
from statecore.doctor.findings import Finding
from statecore.doctor.views import StoreView, TaskView
from statecore.formats.checkpoint import store_checkpoint_file
from statecore.formats.kinds import StoreKind
from statecore.formats.releases import CHECKPOINT_FILE, LAST_WITHOUT_OFFSETS
from statecore.formats.task_id import TaskId
from statecore.formats.topic_partition import TopicPartition
from statecore.spec.model import StoreSpec
from statecore.statedir.store_places import changelog_at


@dataclass(frozen=True)
class _Gone:
    """A store that is gone.

    Attributes:
        store: its name.
        why: what there is instead of it, as the end of "the store s".
        entries: what ``.checkpoint`` says of it.
        has_windows: whether it is one of windows or sessions.
    """

    store: str
    why: str
    entries: Mapping[TopicPartition, int]
    has_windows: bool


def gone(task: TaskView, stores: Sequence[StoreView], how: CheckContext) -> list[Finding]:
    """The stores of one task that are gone and of which a file keeps the offset.

    Args:
        task: its files.
        stores: all its stores.
        how: the circumstances.
    """
    if any(store.in_use for store in stores):
        return []
    found = []
    for one in (*_emptied(task, stores, how), *_absent(task, stores, how)):
        of_file = {} if one.store not in task.stores else _known(task.stores[one.store].offsets)
        if entries := of_file or _known(one.entries):
            file = store_checkpoint_file(one.store) if of_file else CHECKPOINT_FILE
            found.append(_finding(task, one, file, entries, how))
    if not any(store.keeps_offsets_inside for store in stores):  # to restore some windows nothing has to be moved
        found = [replace(one, repair=None) if one.severity is Severity.WARNING else one for one in found]
    return found


def _known(offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    return {partition: offset for partition, offset in sorted(offsets.items()) if offset >= 0}


def _emptied(task: TaskView, stores: Sequence[StoreView], how: CheckContext) -> Iterator[_Gone]:
    """Stores of which the directory is left."""
    for store in stores:
        if not store.is_gone or not store.logged:
            continue
        entries = how.entries_of(store, task.checkpoint)
        own = {part: offset for part, offset in entries.items() if part.topic == how.changelog_of(store)}
        others = [one for one in stores if one is not store and how.entries_of(one, task.checkpoint) == entries]
        windows = store.segmented and not _is_buffer(store.store, store.kind)
        why = "has no segment" if store.segmented else "is a directory without a database"
        yield _Gone(store.store, why, own or ({} if others else entries), windows)


def _absent(task: TaskView, stores: Sequence[StoreView], how: CheckContext) -> Iterator[_Gone]:
    """Stores that have no directory: those that are declared, and buffers by the names of their files."""
    present = {store.store for store in stores}
    declared = {store.name: store for store in _declared(task.task, how)}
    for name, store in declared.items():
        if name not in present and (store.kind is not StoreKind.UNKNOWN or name not in task.stores or _is_buffer(name)):
            topic, partition = (
                changelog_at(how.application_id, task.task, name, store),
                TaskId.parse(task.task).partition,
            )
            entries = {
                part: offset
                for part, offset in task.checkpoint.offsets.items()
                if part.topic == topic and partition in (None, part.partition)
            }
            windows = store.kind.is_segmented and not _is_buffer(name, store.kind)
            yield _Gone(name, "has no directory", entries, windows)
    for name in task.stores if how.spec is None else ():
        if name not in present and _is_buffer(name):  # a store of the application's own may lie anywhere
            yield _Gone(name, "has no directory", {}, has_windows=False)


def _declared(task: str, how: CheckContext) -> list[StoreSpec]:
    """What is declared of a task that Kafka Streams wants an offset of."""
    declared = () if how.spec is None else how.spec.stores_of(task)
    return [store for store in declared if store.is_restorable]  # one of the application's own may lie anywhere


def _is_buffer(store: str, kind: StoreKind = StoreKind.UNKNOWN) -> bool:
    return kind is StoreKind.GRACE_BUFFER or (kind is StoreKind.UNKNOWN and store.endswith(GRACE_BUFFER_SUFFIX))


def _finding(
    task: TaskView, one: _Gone, file: str, entries: Mapping[TopicPartition, int], how: CheckContext
) -> Finding:
    of_task = file == CHECKPOINT_FILE
    restored = of_task and one.has_windows and how.release.offsets_inside
    said = ", ".join(f"{offset:,} of {partition}" for partition, offset in entries.items())
    what = f"the store {one.store} in {task.task} {one.why}, and {task.task}/{file} says {said}: " + (
        f"Kafka Streams {LAST_WITHOUT_OFFSETS} and older believe the file and answer without its rows; "
        f"{how.release.name} restores it from the start"
        if restored
        else "Kafka Streams believes the file, restores nothing, and answers without its rows"
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
