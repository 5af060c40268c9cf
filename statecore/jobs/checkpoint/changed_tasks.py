"""What of a checkpoint is news: the tasks that are published anew, and of the others up to when that is known."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from statecore.jobs.bases.base import Key
from statecore.jobs.checkpoint.plan import CheckpointPlan
from statecore.jobs.planning.plan import PartitionPlan
from statecore.repository.manifest import Manifest, StoreSnapshot, TaskManifestReference, least_known
from statecore.repository.publication import Publication
from statecore.repository.snapshot_composition import Cut

_SHARE_OF_HORIZON = 4


@dataclass(frozen=True)
class ChangedTasks:
    """What is published.

    Attributes:
        tasks: those of which something is new.
        cuts: of the others, when nothing lay behind their ends; none of a task that has stores nobody looked at.
        oldest_ms: the first of the moments that the newest snapshot says of these; ``None`` where it lacks one.
        now_ms: when the ends were read.
        is_lowered: whether deletes of one of these are kept for a shorter time than the newest snapshot says.
    """

    tasks: frozenset[str]
    cuts: Mapping[str, Cut]
    oldest_ms: int | None
    now_ms: int
    is_lowered: bool = False

    def is_aged(self, horizon_ms: int | None) -> bool:
        """Whether the moments are worth a publication of their own.

        Args:
            horizon_ms: the time after which deletes may be gone; ``None`` where none go.
        """
        return bool(self.cuts) and (self.is_lowered or is_aged(self.oldest_ms, self.now_ms, horizon_ms))


def is_aged(oldest_ms: int | None, now_ms: int, horizon_ms: int | None) -> bool:
    """Whether moments up to which a snapshot is known to be complete are so old that later ones are worth publishing.

    Args:
        oldest_ms: the first of these moments, in ms since the epoch; ``None`` where one is not known.
        now_ms: now, in ms since the epoch.
        horizon_ms: the time after which deletes may be gone; ``None`` where none go.
    """
    if horizon_ms is None:
        return False
    return oldest_ms is None or now_ms - oldest_ms > horizon_ms // _SHARE_OF_HORIZON


def oldest_cut(manifest: Manifest, tasks: Iterable[str]) -> int | None:
    """The first of the moments that a snapshot says of some tasks, in ms; ``None`` where it lacks one."""
    references = [manifest.part(task) for task in tasks]
    return least_known(None if one is None else one.cut_ms for one in references)


def changed_tasks(
    planned: CheckpointPlan,
    publication: Publication,
    reconciled: Collection[Key] = frozenset(),
    goes: Callable[[str], bool] = lambda _: False,
) -> ChangedTasks:
    """What is news of what was read: where a log has gone on without a record, that it has.

    Args:
        planned: the plan.
        publication: what it knows of the newest snapshot.
        reconciled: stores that were compared with their whole changelogs: they end elsewhere, whatever has differed.
        goes: asked whether a store of that name leaves the snapshot, so that nobody needs to look at it.
    """
    manifest = publication.newest
    there: dict[Key, StoreSnapshot] = {
        (task, store.store): store for task, part in publication.parts().items() for store in part.stores
    }
    new, quiet, lagging = set[str](), set[str](), set[str]()
    for key, of_store in planned.plan.stores.items():
        parent, known = planned.parents.get(key), there.get(key)
        if of_store[0].left_to_restore:
            is_news = known is None or not known.left_to_restore or known.kind is not of_store[0].kind
        elif of_store[0].kind.is_versioned:
            is_news = known is None or not _is_as_planned(known, of_store)
        elif parent is None or manifest is None or parent.name != manifest.snapshot:
            is_news = True
        else:
            is_news = key in reconciled or any(part.start < part.end for part in of_store)
        (new if is_news else quiet).add(key[0])
        if not all(part.was_all or part.left_to_restore for part in of_store):
            lagging.add(key[0])
    unread = {
        key[0]
        for key, store in there.items()
        if key not in planned.plan.stores and not store.left_to_restore and not goes(key[1])
    }
    quiet -= new | lagging | unread
    oldest = None if manifest is None else oldest_cut(manifest, quiet)
    cuts = {task: Cut(planned.made_ms, _horizon_of(planned, task)) for task in quiet}
    is_lowered = manifest is not None and any(_is_lower(cut, manifest.part(task)) for task, cut in cuts.items())
    return ChangedTasks(frozenset(new), cuts, oldest, planned.made_ms, is_lowered)


def _horizon_of(planned: CheckpointPlan, task: str) -> int | None:
    """The least time for which deletes were kept in the changelogs of a task when the ends were read."""
    parts = [part for part in planned.plan.partitions if part.task == task and not part.left_to_restore]
    return least_known(part.horizon_ms for part in parts)


def _is_lower(cut: Cut, known: TaskManifestReference | None) -> bool:
    """Whether deletes are kept for a shorter time than a snapshot says."""
    return (
        cut.horizon_ms is not None
        and known is not None
        and known.horizon_ms is not None
        and cut.horizon_ms < known.horizon_ms
    )


def _is_as_planned(known: StoreSnapshot, planned: Sequence[PartitionPlan]) -> bool:
    """Whether a store that is made anew each time has what a plan says already."""
    one = planned[0]
    return (
        not known.left_to_restore
        and (known.kind, known.retention_ms) == (one.kind, one.retention_ms)
        and [(end.topic_partition, end.topic_id, end.end) for end in known.changelogs]
        == [(part.topic_partition, part.topic_id, part.end) for part in planned]
    )
