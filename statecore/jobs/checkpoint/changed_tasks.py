"""Decide what a checkpoint publishes: changed tasks, and for unchanged ones the time up to which they are complete."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from statecore.formats.integers import min_known
from statecore.jobs.bases.base import Key
from statecore.jobs.checkpoint.plan import CheckpointPlan
from statecore.jobs.planning.plan import PartitionPlan
from statecore.repository.manifest import Manifest, StoreSnapshot, TaskManifestReference
from statecore.repository.publication import Publication
from statecore.repository.snapshot_composition import ReadPosition

_SHARE_OF_HORIZON = 4


@dataclass(frozen=True)
class ChangedTasks:
    """What is published.

    Attributes:
        read_positions: of unchanged tasks, when nothing lay beyond their ends; none for a task with unread stores.
        oldest_ms: the earliest such time that the newest snapshot has for these tasks; ``None`` if it lacks one.
        is_lowered: whether the delete retention of one of these is shorter than the newest snapshot says.
    """

    tasks: frozenset[str]
    read_positions: Mapping[str, ReadPosition]
    oldest_ms: int | None
    now_ms: int
    is_lowered: bool = False

    def is_aged(self, delete_retention_ms: int | None) -> bool:
        """Whether the times are worth a publication of their own."""
        return bool(self.read_positions) and (
            self.is_lowered or is_aged(self.oldest_ms, self.now_ms, delete_retention_ms)
        )


def is_aged(oldest_ms: int | None, now_ms: int, delete_retention_ms: int | None) -> bool:
    """Whether the time up to which a snapshot is complete is so old that a later one is worth publishing."""
    if delete_retention_ms is None:
        return False
    return oldest_ms is None or now_ms - oldest_ms > delete_retention_ms // _SHARE_OF_HORIZON


def oldest_read_at(manifest: Manifest, tasks: Iterable[str]) -> int | None:
    """Earliest time, in ms, up to which a snapshot says some tasks are complete; ``None`` if it lacks one."""
    references = [manifest.reference(task) for task in tasks]
    return min_known(None if one is None else one.read_at_ms for one in references)


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
    oldest = None if manifest is None else oldest_read_at(manifest, quiet)
    read_positions = {task: ReadPosition(planned.made_ms, _horizon_of(planned, task)) for task in quiet}
    is_lowered = manifest is not None and any(
        _is_lower(position, manifest.reference(task)) for task, position in read_positions.items()
    )
    return ChangedTasks(frozenset(changed), read_positions, oldest, planned.made_ms, is_lowered)


def _horizon_of(planned: CheckpointPlan, task: str) -> int | None:
    """Shortest delete retention of a task's changelogs when the ends were read."""
    parts = [part for part in planned.plan.partitions if part.task == task and not part.restored_by_kafka_streams]
    return min_known(part.delete_retention_ms for part in parts)


def _is_lower(position: ReadPosition, known: TaskManifestReference | None) -> bool:
    """Whether the delete retention is shorter than a snapshot says."""
    return (
        position.delete_retention_ms is not None
        and known is not None
        and known.delete_retention_ms is not None
        and position.delete_retention_ms < known.delete_retention_ms
    )


def _is_as_planned(known: StoreSnapshot, planned: Sequence[PartitionPlan]) -> bool:
    """Whether a store that is always rebuilt whole is already as the plan would make it."""
    one = planned[0]
    return (
        not known.restored_by_kafka_streams
        and (known.kind, known.retention_ms) == (one.kind, one.retention_ms)
        and [(end.topic_partition, end.topic_id, end.end) for end in known.changelogs]
        == [(part.topic_partition, part.topic_id, part.end) for part in planned]
    )
