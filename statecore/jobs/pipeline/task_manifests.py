"""Build the task manifests of a snapshot from the results of the tasks that read its changelogs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from statecore import __version__
from statecore.formats.integers import min_known
from statecore.formats.kinds import StoreKind
from statecore.images.model import Image, StoreDigest, segment_order
from statecore.jobs.bases.base import Base, Key
from statecore.jobs.pipeline.ranges import RangeResult
from statecore.jobs.pipeline.read_stage import ReadResult
from statecore.jobs.pipeline.version_tasks import VersionResult
from statecore.jobs.planning.plan import PartitionPlan, ReadPlan
from statecore.jobs.planning.selection import select_stores
from statecore.repository.identity import store_identity
from statecore.repository.manifest import (
    StoredDatabase,
    StoredEnd,
    StoredRun,
    StoreSnapshot,
    TaskManifest,
)
from statecore.spec.model import ApplicationSpec


def task_manifests(
    plan: ReadPlan,
    made: ReadResult,
    images: Mapping[Key, Image],
    *,
    bases: Mapping[Key, Base] = MappingProxyType({}),
    read_at_ms: int | None = None,
    spec_digest: str = "",
) -> list[TaskManifest]:
    """The stores of a plan with what was read above their bases; versioned stores of a base are inherited."""
    runs, versions = made.runs, made.versions
    tasks: dict[str, list[StoreSnapshot]] = defaultdict(list)
    for key, parts in sorted(plan.stores.items()):
        stored = _stored(parts[0], runs.get(key, ()), versions.get(key))
        base = bases.get(key)
        below = None if base is None else base.snapshot
        if below is not None and below.kind.is_versioned:
            tasks[key[0]].append(below)  # inherited with its age
            continue
        newest = max((result.stream_time for result in runs.get(key, ())), default=-1)
        newest = max(newest, -1 if base is None else base.stream_time)
        stream_time = None if below is not None and below.stream_time is None else newest
        databases = _live(parts[0], below, stored, newest)
        content = _content(parts[0].kind, databases, below, images.get(key))
        # A versioned store records it always, as its age, because a tail cannot advance it.
        reaches_log_end = all(part.reaches_log_end for part in parts)
        delete_retention_ms = min_known(part.delete_retention_ms for part in parts) if reaches_log_end else None
        store = _store(plan, parts, databases, stream_time, content, spec_digest)
        store = replace(
            store,
            read_at_ms=read_at_ms if parts[0].kind.is_versioned or reaches_log_end else None,
            delete_retention_ms=delete_retention_ms,
        )
        tasks[key[0]].append(replace(store, base_snapshot=None if below is None or base is None else base.name))
    return [TaskManifest(task, tuple(stores)) for task, stores in sorted(tasks.items())]


def tasks_to_publish(
    spec: ApplicationSpec, built: Collection[str], published: Mapping[str, TaskManifest]
) -> frozenset[str]:
    """All tasks of an application: the ``built`` ones, which have every store that can be restored, and ``published``
    ones with a declared store that only a backup publishes, such as one that a processor fills.
    """
    restorable = {store.name for store in select_stores(spec)}

    def is_of_backup(store: str) -> bool:
        return store not in restorable and spec.store(store) is not None

    kept = {task for task, found in published.items() if any(is_of_backup(one.store) for one in found.stores)}
    return frozenset(built) | kept


def _stored(
    part: PartitionPlan, results: Sequence[RangeResult | VersionResult], rows: VersionResult | None
) -> list[StoredRun]:
    if part.kind.is_versioned:
        results = () if rows is None else (rows,)
    # Strict: a run that is in no repository must not be left out, its rows would be missing below the offset.
    pairs = (zip(result.runs, result.extents, strict=True) for result in results)
    return [StoredRun(run, extent) for of_result in pairs for run, extent in of_result]


def _live(
    part: PartitionPlan, below: StoreSnapshot | None, stored: Sequence[StoredRun], stream_time: int
) -> list[StoredDatabase]:
    """The databases that have not expired, each with its runs in the order they are applied."""
    of = part.segmentation if part.kind.is_segmented else None
    first = 0 if of is None else of.first_live(stream_time)
    databases = {} if below is None else below.by_segment
    for one in stored:
        there = databases.get(one.run.segment, StoredDatabase(one.run.segment, ()))
        databases[one.run.segment] = replace(there, runs=(*there.runs, one))
    if part.is_global:
        databases = {segment: _by_partition(one) for segment, one in databases.items()}
    return [
        databases[segment] for segment in sorted(databases, key=segment_order) if segment is None or segment >= first
    ]


def _by_partition(database: StoredDatabase) -> StoredDatabase:
    """Runs of a global store in the order of a restore from nothing: by partition, then by offset."""
    if any(stored.run.origin.changelog is None for stored in database.runs):
        return database
    return replace(database, runs=tuple(sorted(database.runs, key=lambda stored: stored.run.partition)))


def _store(
    plan: ReadPlan,
    parts: Sequence[PartitionPlan],
    databases: Sequence[StoredDatabase],
    stream_time: int | None,
    content: StoreDigest | None,
    spec_digest: str,
) -> StoreSnapshot:
    one = parts[0]
    return StoreSnapshot(
        store=one.store,
        kind=one.kind,
        identity=_identity(parts, databases, stream_time or -1),
        changelogs=tuple(
            StoredEnd(
                part.topic,
                part.partition,
                part.topic_id,
                part.committed_offset,
                0 if part.restored_by_kafka_streams else part.end,
                part.log_start,
                part.log_end,
                part.leader_epoch,
            )
            for part in parts
        ),
        isolation=plan.isolation.name.lower(),
        databases=tuple(databases),
        stream_time=stream_time,
        retention_ms=one.retention_ms,
        segment_interval_ms=one.segment_interval_ms,
        restored_by_kafka_streams=one.restored_by_kafka_streams,
        rows=None if content is None else content.rows,
        bytes=None if content is None else content.bytes,
        digest=None if content is None else content.digest,
        spec_digest=spec_digest,
        statecore_release=__version__,
    )


def _identity(parts: Sequence[PartitionPlan], databases: Sequence[StoredDatabase], stream_time: int) -> str:
    one = parts[0]
    interval = one.segment_interval_ms if one.kind.is_segmented else None
    segment = None if interval is None else max(stream_time, 0) // interval
    offsets = {part.topic_partition: part.committed_offset for part in parts}
    return store_identity(one.kind, databases, offsets, segment)


def _content(
    kind: StoreKind, databases: Sequence[StoredDatabase], below: StoreSnapshot | None, image: Image | None
) -> StoreDigest | None:
    """Digest of a store, if its rows were read, or its databases have no files that could overlap."""
    from statecore.images.digest import combined  # not needed for planning

    if image is not None:
        return image.content
    if below is not None and tuple(databases) == below.databases:
        return below.content
    if any(one.base or (len(one.runs) > 1 and not kind.is_versioned) for one in databases):
        return None
    return combined(*(stored.run.content for one in databases for stored in one.runs))
