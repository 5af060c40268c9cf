"""Composes the next snapshot task by task: task manifests to write, to keep, and tasks to drop.

A task that the job has built is written, with those of its other stores that the application still has. Any other is
*kept*: the new manifest refers to the existing task manifest, and nothing is read or written. Where the job knows all
tasks, tasks that the application no longer has are *dropped*, and task manifests with undeclared stores are written
without them. A kept one may be copied all the same, byte for byte: where they are spread over many blobs, those that
were read are written into the new blob, so that reading all of them stays a few requests.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, NamedTuple

from statecore.formats.topic_partition import is_same_topic
from statecore.repository.application_repository import ReadTaskManifest
from statecore.repository.compatibility import differences
from statecore.repository.manifest import (
    Extent,
    ReadPosition,
    StoredEnd,
    StoreSnapshot,
    TaskManifest,
    TaskManifestReference,
)
from statecore.repository.task_manifest_documents import encode_task_manifests
from statecore.spec.model import ApplicationSpec

MOST_BLOBS = 8  # Blobs that the task manifests of a snapshot may be spread over before those in memory are put into one


class WrittenTaskManifest(NamedTuple):
    """A task manifest to write."""

    manifest: TaskManifest
    before: ReadTaskManifest | None  # that of the newest snapshot; None where it has none
    built: frozenset[str]  # the stores that the job has built

    @property
    def inherited(self) -> list[StoreSnapshot]:
        """The stores that are unchanged, or based on runs of another snapshot."""
        return [
            store for store in self.manifest.stores if store.store not in self.built or store.base_snapshot is not None
        ]

    @property
    def raw(self) -> Mapping[str, Any] | None:
        """The JSON that it replaces."""
        return None if self.before is None else self.before.raw


@dataclass(frozen=True)
class SnapshotComposition:
    """The content of the next snapshot."""

    written: tuple[WrittenTaskManifest, ...]  # task manifests to write
    kept: Mapping[str, TaskManifestReference]  # references to keep, by task
    dropped: tuple[str, ...]  # tasks of the newest snapshot that it does not have
    is_changed: bool  # whether it differs from the newest snapshot
    warnings: tuple[str, ...]  # about tasks and stores that it does not have any more


def compose(
    built: Sequence[TaskManifest],
    newest: Mapping[str, TaskManifestReference],
    read: Callable[[Collection[TaskManifestReference]], Mapping[str, ReadTaskManifest]],
    spec: ApplicationSpec,
    *,
    unchanged: Collection[str],
    whole: bool,
    tasks: Collection[str] | None,
    read_positions: Mapping[str, ReadPosition],
) -> SnapshotComposition:
    """Compose the next snapshot."""
    touched = {task_manifest.task for task_manifest in built}
    before = read([reference for task, reference in newest.items() if task in touched])
    written = [_completed(task_manifest, before.get(task_manifest.task), spec, whole=whole) for task_manifest in built]
    warnings = [] if whole else list(_undeclared_warnings(written, spec, undeclared=tasks is not None))
    others = {task: reference for task, reference in newest.items() if task not in touched}
    kept = {task: reference for task, reference in others.items() if not whole or task in unchanged}
    if tasks is not None:
        kept = {task: reference for task, reference in kept.items() if task in tasks}
        for task, there in read(list(kept.values())).items():
            reduced = _completed(TaskManifest(task, ()), there, spec, whole=False)
            if len(reduced.manifest.stores) < len(there.manifest.stores):
                del kept[task]
                warnings += _undeclared_warnings([reduced], spec, undeclared=True)
                written += [reduced] if reduced.manifest.stores else []
    confirmed = {
        task: replace(reference, read_at_ms=position.at_ms, delete_retention_ms=position.delete_retention_ms)
        for task, reference in kept.items()
        if (position := read_positions.get(task)) is not None and position.is_later_than(reference)
    }
    dropped = tuple(sorted(others.keys() - kept.keys() - {one.manifest.task for one in written}))
    if tasks is not None and dropped:
        warnings.append(_dropped_warning(dropped))
    return SnapshotComposition(
        tuple(written), {**kept, **confirmed}, dropped, bool(written or dropped or confirmed), tuple(warnings)
    )


def task_manifest_blob(
    composition: SnapshotComposition, known: Mapping[str, ReadTaskManifest], name: Callable[[str], str]
) -> tuple[str, bytes, dict[str, TaskManifestReference]]:
    """The blob of written task manifests: its name, its bytes, and references to all task manifests, by task."""
    content, references = encode_task_manifests([(one.manifest, one.raw) for one in composition.written])
    kept = composition.kept
    if len({reference.extent.blob for reference in kept.values()}) >= MOST_BLOBS:
        copied = []
        for reference in kept.values():
            if (read := known.get(reference.sha256)) is not None:
                copied.append(replace(reference, extent=Extent("", len(content), len(read.document))))
                content += read.document
        references = (*references, *copied)
    blob = name(sha256(content).hexdigest())
    placed = [replace(one, extent=replace(one.extent, blob=blob)) for one in references]
    return blob, content, {**kept, **{one.task: one for one in placed}}


def stores_behind(mine: TaskManifest, published: TaskManifest) -> Iterator[tuple[StoreSnapshot, StoredEnd, int]]:
    """Stores that end before the published ones: the store, its end, and the published end.

    A recreated topic begins anew; a topic of unknown id is taken for the same. A versioned store that Kafka Streams
    restores was requested so and does not count; any other store left to restore is empty.
    """
    ends = {
        (store.store, end.topic_partition): end
        for store in published.stores
        for end in store.changelogs
        if not store.restored_by_kafka_streams
    }
    for store in mine.stores:
        for end in store.changelogs if not (store.restored_by_kafka_streams and store.kind.is_versioned) else ():
            known = ends.get((store.store, end.topic_partition), end)
            if is_same_topic(known.topic_id, end.topic_id) and known.end > end.end:
                yield store, end, known.end


def _completed(
    task_manifest: TaskManifest, before: ReadTaskManifest | None, spec: ApplicationSpec, *, whole: bool
) -> WrittenTaskManifest:
    """The task manifest with the task's unchanged stores that the application still has."""
    made = frozenset(store.store for store in task_manifest.stores)
    others = [
        store
        for store in (before.manifest.stores if before is not None and not whole else ())
        if store.store not in made
        and spec.store(store.store) is not None
        and not differences(task_manifest.task, store, spec, empty=store.restored_by_kafka_streams)
    ]
    stores = sorted([*task_manifest.stores, *others], key=lambda store: store.store)
    return WrittenTaskManifest(replace(task_manifest, stores=tuple(stores)), before, made)


def _undeclared_warnings(
    written: Sequence[WrittenTaskManifest], spec: ApplicationSpec, *, undeclared: bool
) -> Iterator[str]:
    """Warnings about stores that were not built and do not match the spec any more."""
    for task_manifest, before, _ in written:
        stays = {store.store for store in task_manifest.stores}
        for store in before.manifest.stores if before is not None else ():
            if store.store in stays:
                continue
            prefix = f"Store {store.store} of task {task_manifest.task} is not in the snapshot any more: "
            if spec.store(store.store) is None and undeclared:
                yield f"{prefix}the spec does not declare it."
            for one in differences(task_manifest.task, store, spec, empty=store.restored_by_kafka_streams):
                yield (
                    f"{prefix}its {one.what} is {one.found} in the previous one, and the spec declares {one.declared}. "
                    "Publish it again."
                )


def _dropped_warning(tasks: Sequence[str]) -> str:
    named = ", ".join(tasks[:20]) + (f" and {len(tasks) - 20} others" if len(tasks) > 20 else "")
    return (
        f"Tasks {named} are not in the snapshot any more: the application has none of their stores or partitions now. "
        "The previous snapshot has them."
    )
