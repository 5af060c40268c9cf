"""Publish what a checkpoint has read, unless it was published already.

Changed tasks are published; of unchanged ones only the time up to which they are complete.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from statecore.formats.integers import min_known
from statecore.jobs.bases.base import Key
from statecore.jobs.checkpoint.confirmation import reason_to_confirm
from statecore.jobs.checkpoint.job import CheckpointJob, Tails
from statecore.jobs.checkpoint.last_checkpoint import made_since
from statecore.jobs.checkpoint.plan import CheckpointPlan
from statecore.jobs.in_progress_marker import InProgressMarker
from statecore.jobs.pipeline.task_manifests import task_manifests, tasks_to_publish
from statecore.jobs.planning.frozen_plan import PLAN_SUFFIX, request_name
from statecore.jobs.planning.plan import PartitionPlan
from statecore.repository.head import Origin
from statecore.repository.manifest import Manifest, ReadPosition, StoreSnapshot, TaskManifest
from statecore.repository.publish.publication import Publication, Published, Unchanged
from statecore.repository.publish.rebase import rebase_advance, rebase_rebuild
from statecore.spec.writer import spec_hash


def publication_of(job: CheckpointJob) -> Publication:
    """The publication of a checkpoint, which finds that of an earlier attempt."""
    return Publication(
        job.repository,
        job.spec,
        request=request_name(job.request.request_id),
        origin=Origin.CHECKPOINT,
        clock=job.context.clock,
        faults=job.faults,
    )


@dataclass(frozen=True)
class AlreadyMade:
    """A checkpoint that another attempt or job has made.

    Attributes:
        published: the snapshot of an earlier attempt; ``None`` if another job was faster.
    """

    how: str
    published: Published | None = None
    notes: tuple[str, ...] = ()


def finish_if_made(job: CheckpointJob, publication: Publication, marker: InProgressMarker) -> AlreadyMade | None:
    """Delete what a killed attempt has left, if nothing is left to do; ``None`` if something is."""
    if (earlier := publication.earlier()) is not None:
        marker.delete_at_end()
        return AlreadyMade("already published", earlier, notes=job.forget_plan())
    if (faster := made_since(publication.entries, job.request.decided_upon)) is not None:
        left: tuple[str, ...] = ()
        if job.home.read(PLAN_SUFFIX) is not None:
            marker.delete_at_end()
            left = job.forget_plan()
        return AlreadyMade("made by another job", notes=(faster, *left))
    return None


class PublishedTails(NamedTuple):
    """What became of tails.

    Attributes:
        manifests: the new task manifests.
        published: ``None`` if nothing was published.
        unchanged: then the newest snapshot, if it had all records of all its stores.
    """

    manifests: Sequence[TaskManifest]
    published: Published | None
    unchanged: Unchanged | None = None


def publish_tails(job: CheckpointJob, publication: Publication, tails: Tails) -> PublishedTails:
    """Publish what is new."""
    request, spec, planned = job.request, job.spec, tails.planned
    is_whole = not request.stores and not request.partitions
    changes = changed_tasks(
        planned, publication, tails.reconciled.keys(), lambda store: is_whole and spec.store(store) is None
    )
    if not changes.tasks:
        why = reason_to_confirm(publication.newest, changes.read_positions, planned.delete_retention_ms)
        if why is None:
            return PublishedTails((), None, _unchanged(publication.newest, changes))
    with job.phase("publish"):
        job.progress.phase("publish")
        manifests = task_manifests(
            planned.plan.of_tasks(changes.tasks),
            tails.read,
            {},
            bases=planned.bases,
            read_at_ms=planned.frozen.read_at_ms,
            spec_digest=spec_hash(spec),
        )
        planned.keep_last(job.repository, publication.entries)
        published = publication.publish(
            manifests,
            drops_other_tasks=False,
            tasks=tasks_to_publish(spec, planned.plan.tasks, publication.task_manifests()) if is_whole else None,
            rebase=lambda mine, theirs: rebased(
                mine, theirs, planned.newest_task(mine.task), tails.reconciled, job.damaged
            ),
            refused=planned.not_newest,
            read_positions=changes.read_positions,
            checks_blobs_hourly=True,
        )
        job.progress.done("" if published is None else published.snapshot)
    return PublishedTails(manifests, published)


def _unchanged(newest: Manifest | None, changes: ChangedTasks) -> Unchanged | None:
    if newest is None or any(one.task not in changes.read_positions for one in newest.task_manifests):
        return None
    times = {position.at_ms for position in changes.read_positions.values()}
    return Unchanged(newest.snapshot, min(times)) if times else None


def rebased(
    mine: TaskManifest,
    theirs: TaskManifest,
    base: TaskManifest | None,
    reconciled: Collection[Key],
    damaged: Collection[Key] = (),
) -> TaskManifest | None:
    """Rebase a task that another job may have published as well; see :func:`rebase_advance`.

    If another job has changed a store since it was compared with its log, its differences no longer fit: all its runs
    are published. So are those of a damaged store that was rebuilt: what another job has appended to it is damaged too.
    """
    rebuilt = tuple(one for one in mine.stores if (mine.task, one.store) in damaged)
    if rebuilt:
        whole = rebase_rebuild(replace(mine, stores=rebuilt), theirs, base)
        others = replace(mine, stores=tuple(one for one in mine.stores if one not in rebuilt))
        advanced = rebased(others, theirs, base, reconciled)
        return whole if advanced is None else replace(mine, stores=(*advanced.stores, *whole.stores))
    there = {store.store: store.identity for store in theirs.stores}

    def is_base(task: str, name: str, identity: str) -> bool:
        return (task, name) not in reconciled or there.get(name, identity) == identity

    if base is not None:
        bases = (one for one in base.stores if is_base(base.task, one.store, one.identity))
        base = replace(base, stores=tuple(bases))
    return rebase_advance(mine, theirs, base)


@dataclass(frozen=True)
class ChangedTasks:
    """What is published.

    Attributes:
        read_positions: of unchanged tasks, when nothing lay beyond their ends; none for a task with unread stores.
    """

    tasks: frozenset[str]
    read_positions: Mapping[str, ReadPosition]


def changed_tasks(
    planned: CheckpointPlan,
    publication: Publication,
    reconciled: Collection[Key] = frozenset(),
    is_dropped: Callable[[str], bool] = lambda _: False,
) -> ChangedTasks:
    """Which tasks changed; a log that went on without a new record counts as a change."""
    manifest = publication.newest
    published: dict[Key, StoreSnapshot] = {
        (task, store.store): store
        for task, task_manifest in publication.task_manifests().items()
        for store in task_manifest.stores
    }
    changed, quiet, lagging = set[str](), set[str](), set[str]()
    for key, of_store in planned.plan.stores.items():
        base, known = planned.bases.get(key), published.get(key)
        if of_store[0].restored_by_kafka_streams:
            is_changed = known is None or not known.restored_by_kafka_streams or known.kind is not of_store[0].kind
        elif of_store[0].kind.is_versioned:
            is_changed = known is None or not _is_as_planned(known, of_store)
        elif base is None or manifest is None or base.name != manifest.snapshot:
            is_changed = True
        else:
            is_changed = key in reconciled or any(part.start < part.end for part in of_store)
        (changed if is_changed else quiet).add(key[0])
        if not all(part.reaches_log_end or part.restored_by_kafka_streams for part in of_store):
            lagging.add(key[0])
    unread = {
        key[0]
        for key, store in published.items()
        if key not in planned.plan.stores and not store.restored_by_kafka_streams and not is_dropped(key[1])
    }
    quiet -= changed | lagging | unread
    read_positions = {
        task: ReadPosition(planned.frozen.read_at_ms, _delete_retention_ms(planned, task)) for task in quiet
    }
    return ChangedTasks(frozenset(changed), read_positions)


def _delete_retention_ms(planned: CheckpointPlan, task: str) -> int | None:
    """Shortest delete retention of a task's changelogs when the ends were read."""
    parts = [part for part in planned.plan.partitions if part.task == task and not part.restored_by_kafka_streams]
    return min_known(part.delete_retention_ms for part in parts)


def _is_as_planned(known: StoreSnapshot, planned: Sequence[PartitionPlan]) -> bool:
    """Whether a store that is always rebuilt whole is already as the plan would make it."""
    one = planned[0]
    return (
        not known.restored_by_kafka_streams
        and (known.kind, known.retention_ms) == (one.kind, one.retention_ms)
        and [(end.topic_partition, end.topic_id, end.end) for end in known.changelogs]
        == [(part.topic_partition, part.topic_id, part.end) for part in planned]
    )
