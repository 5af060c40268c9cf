"""Validates that a task manifest is consistent (invariant 9 of ``docs/repository-format.md``).

Hashes prove that a task manifest is what was written, not that it was right, and a store built of an inconsistent one
would be another store. So the same rules hold before it is published and after it was read.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator
from typing import TypeVar

from statecore.errors import Corrupted, Invalid, StatecoreError
from statecore.formats.offsets import OFFSET_UNKNOWN, next_offset
from statecore.formats.releases import GLOBAL
from statecore.formats.task_id import TaskId
from statecore.images.model import RunFormat
from statecore.images.run_order import check_order, runs_of_one_partition
from statecore.repository.manifest import (
    LAYOUT,
    OTHER_RELEASE,
    StoredDatabase,
    StoredEnd,
    StoredRun,
    StoreSnapshot,
    TaskManifest,
)
from statecore.words import shortened_list

_SHOWN = 3
T = TypeVar("T", bound=Hashable)


def check_structure(task_manifest: TaskManifest, action: str) -> None:
    """Refuse an inconsistent task manifest that was read; its names have been checked."""
    for store in task_manifest.stores:
        if store.layout != LAYOUT:
            raise Invalid(
                f"Store {store.store!a} of task {task_manifest.task} has the layout {store.layout!a}, and not "
                f"{LAYOUT}.",
                code="format-unsupported",
                action=OTHER_RELEASE,
                task=task_manifest.task,
                store=store.store,
                expected=LAYOUT,
                found=store.layout,
            )
    if wrong := contradictions_in(task_manifest):
        raise Corrupted(
            f"A task manifest contradicts itself: {_summary(wrong)}.",
            code="manifest-inconsistent",
            action=action,
            task=task_manifest.task,
        )


def check_consistent(task_manifests: Iterable[TaskManifest]) -> None:
    """Refuse inconsistent task manifests before they are published, with ``StatecoreError``: a defect."""
    if wrong := [one for task_manifest in task_manifests for one in contradictions_in(task_manifest)]:
        raise StatecoreError(
            f"A defect of this program: nothing was published, because a task manifest contradicts itself: "
            f"{_summary(wrong)}.",
            code="defect",
            action="Report it.",
        )


def contradictions_in(task_manifest: TaskManifest) -> list[str]:
    """Contradictions in a task manifest, in words."""
    wrong = [
        f"task {task_manifest.task} has store {name!a} twice"
        for name in _repeated(one.store for one in task_manifest.stores)
    ]
    for store in task_manifest.stores:
        wrong += [
            f"store {store.store!a} of task {task_manifest.task}: {why}" for why in _of_store(task_manifest.task, store)
        ]
    return wrong


def _of_store(task: str, store: StoreSnapshot) -> Iterator[str]:
    is_global = task == GLOBAL
    if store.layout != LAYOUT:
        yield f"it has the layout {store.layout!a}, and not {LAYOUT}"
    if not store.changelogs or (len(store.changelogs) > 1 and not is_global):
        yield f"it has the ends of {len(store.changelogs)} partitions"
    for partition in _repeated(end.topic_partition for end in store.changelogs):
        yield f"it has two ends of {partition}"
    for end in store.changelogs:
        yield from _of_end(end, store, is_global=is_global)
    if store.restored_by_kafka_streams and store.databases:
        yield "it is restored by Kafka Streams, and has databases"
    for segment in _repeated(database.segment for database in store.databases):
        yield f"it has {_database(segment)} twice"
    for database in store.databases:
        if (database.segment is not None) != store.kind.is_segmented:
            yield f"a {store.kind} store has no {_database(database.segment)}"
        yield from (f"{_database(database.segment)}: {why}" for why in _of_database(database, store))


def _of_end(end: StoredEnd, store: StoreSnapshot, *, is_global: bool) -> Iterator[str]:
    said = f"it has offset {end.offset} of {end.topic_partition}"
    if end.offset == OFFSET_UNKNOWN and not is_global:
        if any(database.runs for database in store.databases):
            yield f"{said}, and has runs"
        expected = 0
    else:
        if end.offset < 0:
            yield f"{said}, which is not an offset"
        elif store.restored_by_kafka_streams:
            yield f"{said}, and is left to restore"
        expected = next_offset(end.offset, is_global=is_global)
    if end.end != expected:
        yield f"{said}, and that its data end before {end.end}"


def _of_database(database: StoredDatabase, store: StoreSnapshot) -> Iterator[str]:
    ends = {end.topic_partition: end.end for end in store.changelogs}
    for stored in database.runs:
        yield from (f"run {stored.run.sha256[:12]} {why}" for why in _of_run(stored, database, store))
        changelog = stored.run.origin.changelog
        end = max(ends.values(), default=0) if changelog is None else ends.get(changelog)
        if end is None:
            yield f"run {stored.run.sha256[:12]} is of {changelog}"
        elif stored.run.end > end:
            yield f"run {stored.run.sha256[:12]} ends at {stored.run.end}, beyond the store's end {end}"
    if not store.kind.is_versioned:  # runs of versioned stores share no key, and have no offsets
        for runs in runs_of_one_partition([stored.run for stored in database.runs], several=len(ends) > 1):
            try:
                check_order(runs)
            except Invalid as error:
                yield error.what.rstrip(".")


def _of_run(stored: StoredRun, database: StoredDatabase, store: StoreSnapshot) -> Iterator[str]:
    run = stored.run
    if run.store not in ("", store.store):
        yield f"is of store {run.store!a}"
    if run.kind not in (None, store.kind):
        yield f"is of a {run.kind} store, and not of a {store.kind} store"
    if run.segment != database.segment:
        yield f"is of {_database(run.segment)}"
    if run.format is not RunFormat.SST:
        yield f"has {run.format}, and no rows"
    if run.file_bytes != stored.extent.bytes:
        yield f"has {run.file_bytes:,} bytes, and its extent {stored.extent.bytes:,}"
    if not 0 <= run.start <= run.end:
        yield f"begins at {run.start} and ends at {run.end}"


def _database(segment: int | None) -> str:
    return "database without a segment" if segment is None else f"database of segment {segment}"


def _repeated(values: Iterable[T]) -> list[T]:
    return [value for value, times in Counter(values).items() if times > 1]


def _summary(wrong: list[str]) -> str:
    more = f"; and {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else ""
    return "; ".join(wrong[:_SHOWN]) + more


_SHA256 = re.compile(r"[0-9a-f]{64}")
_STORE = re.compile(r"(?!\.{1,2}\Z)[A-Za-z0-9._-]{1,249}")
_BASE_FILE = re.compile(r"[0-9]+\.(?:sst|blob|log)|CURRENT|IDENTITY|(?:MANIFEST|OPTIONS)-[0-9]+")


def check_names(task_manifest: TaskManifest, blobs: str) -> None:
    """Refuse names that statecore never writes: a writer of the repository must not reach other files by them."""
    wrong = [] if TaskId.match(task_manifest.task) else [f"task {task_manifest.task!a}"]
    for store in task_manifest.stores:
        wrong += [] if _STORE.fullmatch(store.store) else [f"store {store.store!a}"]
        for digest, extent in store.extents:
            wrong += [] if _SHA256.fullmatch(digest) else [f"hash {digest!a}"]
            is_below = extent.blob.startswith(blobs) and ".." not in extent.blob.split("/")
            wrong += [] if is_below else [f"blob {extent.blob!a}"]
            wrong += [] if extent.start >= 0 and extent.bytes >= 0 else [f"extent {extent.start}, {extent.bytes}"]
        files = [file.name for database in store.databases for file in database.base]
        wrong += [f"file {name!a}" for name in files if not _BASE_FILE.fullmatch(name)]
    if wrong:
        raise Corrupted(
            f"A task manifest has invalid names: {shortened_list(wrong, 5)}.",
            code="manifest-names-invalid",
            action="Find out who has written to the repository, and publish a new snapshot.",
        )
