"""Decide what a checkpoint publishes: changed tasks, and for unchanged ones the time up to which they are complete."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from statecore.formats.integers import min_known
from statecore.jobs.bases.base import Key
from statecore.jobs.checkpoint.plan import CheckpointPlan
from statecore.jobs.planning.plan import PartitionPlan
from statecore.repository.manifest import ReadPosition, StoreSnapshot
from statecore.repository.publication import Publication


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
