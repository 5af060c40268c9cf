"""Task manifests of a backup, and their publication."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from statecore import __version__
from statecore.jobs.backup.changelog_check import Logs
from statecore.jobs.backup.copies import StoreCopy
from statecore.jobs.backup.stores import StoreKey
from statecore.jobs.job import Job
from statecore.repository.head import Origin
from statecore.repository.identity import store_identity
from statecore.repository.manifest import StoredDatabase, StoreSnapshot, TaskManifest
from statecore.repository.publish.publication import Publication
from statecore.spec.model import ApplicationSpec, retention_of, segment_interval_of, task_of
from statecore.spec.writer import spec_hash


def publication_of(job: Job) -> Publication:
    """The publication of a backup, under its request id."""
    context = job.context
    return Publication(
        context.repository,
        job.spec,
        request=context.request.request_id,
        origin=Origin.BACKUP,
        clock=context.clock,
        faults=job.faults,
    )


def task_manifests_of(
    spec: ApplicationSpec,
    copies: Sequence[StoreCopy],
    databases: Mapping[StoreKey, Sequence[StoredDatabase]],
    logs: Logs,
) -> list[TaskManifest]:
    """The copied stores with their databases in the repository, grouped by task."""
    by_task: dict[str, list[StoreSnapshot]] = {}
    for copy in sorted(copies, key=lambda copy: copy.key):
        by_task.setdefault(copy.selected.task, []).append(_snapshot(spec, copy, databases[copy.key], logs))
    return [TaskManifest(task, tuple(stores)) for task, stores in by_task.items()]


def _snapshot(spec: ApplicationSpec, copy: StoreCopy, databases: Sequence[StoredDatabase], logs: Logs) -> StoreSnapshot:
    """A store's manifest entry. Its content digest and stream time are unknown."""
    store = copy.selected.spec
    expires = retention_of(store) is not None and not copy.restored_by_kafka_streams
    return StoreSnapshot(
        store=store.name,
        kind=store.kind,
        identity=store_identity(store.kind, databases, copy.offsets, 0 if store.kind.is_segmented else None),
        changelogs=logs.ends[copy.key],
        isolation=str(spec.processing_guarantee.isolation),
        databases=tuple(databases),
        read_at_ms=None if copy.restored_by_kafka_streams else logs.read_at_ms(copy.key),
        stream_time=None if expires else -1,
        retention_ms=retention_of(store),
        segment_interval_ms=segment_interval_of(store),
        restored_by_kafka_streams=copy.restored_by_kafka_streams,
        spec_digest=spec_hash(spec),
        statecore_release=__version__,
        delete_retention_ms=None if copy.restored_by_kafka_streams else logs.delete_retention_ms(copy.key),
    )


def is_whole(spec: ApplicationSpec, copies: Sequence[StoreCopy], logs: Logs) -> bool:
    """Whether these are all stores of all tasks, by the number of partitions on the brokers."""
    if logs.partitions is None:
        return False
    wanted = set()
    for store in (*spec.stores, *spec.global_stores):
        if not store.is_logged or not store.kind.can_be_built:
            continue
        if store.changelog not in logs.partitions:
            return False
        wanted |= {(task_of(store, number), store.name) for number in range(logs.partitions[store.changelog])}
    return wanted == {copy.key for copy in copies}
