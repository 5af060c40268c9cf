"""Plan of a checkpoint: a base for each store and the tails to read, frozen under the request's id."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

from statecore.changelog.cluster import Cluster
from statecore.changelog.delete_retention import min_current_retention_ms
from statecore.errors import Invalid, Reason
from statecore.jobs.bases.base import Key, Refused, grouped
from statecore.jobs.bases.planned_tails import (
    RESUMED_NOTE,
    PlannedTails,
    check_unchanged,
    covers,
    topics_of,
    valid_bases,
)
from statecore.jobs.bases.snapshot_bases import SnapshotBases
from statecore.jobs.checkpoint.request import CheckpointRequest
from statecore.jobs.context import JobContext
from statecore.jobs.job_files import JobHome
from statecore.jobs.planning.plan import RestorePlan
from statecore.jobs.planning.planner import plan_restore
from statecore.jobs.planning.request_files import FROZEN_PLAN, PLAN_SUFFIX, FrozenPlan
from statecore.repository.manifest import TaskManifest
from statecore.repository.publication import Publication
from statecore.spec.units import format_duration


@dataclass(frozen=True, kw_only=True)
class CheckpointPlan(PlannedTails):
    """A planned checkpoint; ``candidates`` are the snapshots."""

    candidates: SnapshotBases

    def without_resumed_note(self) -> CheckpointPlan:
        """The same for an attempt whose own first process has made the plan."""
        return replace(self, notes=tuple(note for note in self.notes if note != RESUMED_NOTE))

    def below(self, task: str) -> TaskManifest | None:
        """The task in the snapshot that was the newest when the plan was made."""
        return self.candidates.task(self.frozen.newest_snapshot, task)

    @property
    def made_ms(self) -> int:
        """When the ends were read, in ms since the epoch."""
        return self.frozen.read_at_ms

    @property
    def not_advanced(self) -> frozenset[Key]:
        """Stores with a refused base and no other."""
        return frozenset(one.key for one in self.refused) - self.bases.keys()

    @property
    def urgent_notes(self) -> tuple[str, ...]:
        """Told to the operator at once: bases that are not used, and what is read whole for that reason."""
        return (*grouped(self.refused), *_rebuilt(self.not_advanced, self.frozen.newest_snapshot))

    @property
    def lacking(self) -> tuple[str, ...]:
        """Why no snapshot can be advanced for some stores."""
        return grouped(self.refused_without_base)

    @property
    def refused_without_base(self) -> tuple[Refused, ...]:
        """All refused bases of the stores without a base."""
        return tuple(one for one in self.refused if one.key in self.not_advanced)

    @property
    def delete_retention_ms(self) -> int | None:
        """Shortest time after which deletes of one of the changelogs may be gone; ``None`` if never."""
        return min_current_retention_ms(self.topics.values())


def plan_checkpoint(
    cluster: Cluster,
    context: JobContext[CheckpointRequest],
    publication: Publication,
    home: JobHome,
    refused: Mapping[tuple[Key, str], Reason],
    parallelism: Callable[[], int],
) -> CheckpointPlan:
    """The frozen plan of this request, or a new one, frozen now if anything is to be read."""
    request, spec = context.request, context.spec
    candidates = SnapshotBases(
        context.repository, spec, publication.entries, publication.newest, publication.task_manifests(), refused
    )
    why: tuple[str, ...] = ()
    if not refused and not request.plan_only:
        found = _resumed(cluster, context, home, candidates)
        if isinstance(found, CheckpointPlan):
            return found
        why = () if found is None else (f"The plan of an earlier attempt of this request was recreated: {found}.",)
    made_at = time.time()
    planned = plan_restore(
        cluster,
        spec,
        request,
        parallelism=parallelism,
        candidates=candidates,
        versioned_ms=request.versioned_interval,
        builds=False,
    )
    newest = "" if publication.newest is None else publication.newest.snapshot
    bases, before, _ = planned.chosen
    frozen = FrozenPlan(
        planned.plan,
        request.partitions,
        made_at,
        request.request_id,
        newest_snapshot=newest,
        refused=before,
        broker_read_at_ms=planned.read_at_ms,
    )
    if planned.plan.offsets and not request.plan_only:
        home.save(PLAN_SUFFIX, FROZEN_PLAN.encode(frozen))
    old = [key for key, parts in planned.plan.stores.items() if parts[0].kind.is_versioned and parts[0].base]
    notes = (
        *why,
        *planned.notes,
        *grouped(before),
        *_rebuilt(_whole(planned.plan), newest),
        *_inherited(old, request.versioned_interval),
    )
    return CheckpointPlan(
        frozen=frozen, bases=bases, refused=before, topics=planned.topics, notes=notes, candidates=candidates
    )


def _resumed(
    cluster: Cluster, context: JobContext[CheckpointRequest], home: JobHome, candidates: SnapshotBases
) -> CheckpointPlan | str | None:
    """The frozen plan of an earlier attempt of this request; or why it cannot be resumed, if there is one."""
    content = home.read(PLAN_SUFFIX)
    if content is None:
        return None
    try:
        frozen = FROZEN_PLAN.decode(content)
    except Invalid as error:
        return error.what
    if not covers(frozen, context.spec, context.request):
        return "it covered other stores"
    topics = topics_of(cluster, frozen.plan)
    try:
        check_unchanged(frozen.plan, topics)
    except Invalid as error:  # a new plan will refuse bases of the old topic
        return error.what
    if frozen.newest_snapshot and not candidates.counts(frozen.newest_snapshot):
        return f"the snapshot {frozen.newest_snapshot} that it was to advance is not valid any more"
    bases = valid_bases(cluster, frozen, topics, candidates)
    if isinstance(bases, str):
        return bases
    notes = (RESUMED_NOTE, *grouped(frozen.refused), *_rebuilt(_whole(frozen.plan), frozen.newest_snapshot))
    return CheckpointPlan(
        frozen=frozen,
        bases=bases,
        refused=frozen.refused,
        topics=topics,
        notes=notes,
        candidates=candidates,
        is_resumed=True,
    )


def _whole(plan: RestorePlan) -> list[Key]:
    """The stores whose whole changelog is read."""
    return [key for key, parts in plan.stores.items() if not parts[0].base and not parts[0].restored_by_kafka_streams]


def _inherited(stores: Collection[Key], versioned_ms: int) -> tuple[str, ...]:
    if not stores:
        return ()
    names = ", ".join(sorted({store for _, store in stores}))
    return (
        f"Versioned stores stay as they are in the snapshot, because a tail cannot advance them: {names}. They are "
        f"rebuilt when that state is {format_duration(versioned_ms)} old.",
    )


def _rebuilt(stores: Collection[Key], newest: str) -> tuple[str, ...]:
    if not stores:
        return ()
    if not newest:
        return ("There is no snapshot yet: whole changelogs are read.",)
    named = ", ".join(f"{store} of task {task}" for task, store in sorted(stores)[:10])
    more = f" and {len(stores) - 10} more" if len(stores) > 10 else ""
    return (f"No snapshot can be advanced for {named}{more}: whole changelogs are read.",)
