"""Plan a checkpoint, or resume the frozen plan of an earlier attempt of its request.

A new plan is frozen under the request's id if anything is to be read.
"""

from __future__ import annotations

from dataclasses import replace

from statecore.changelog.cluster import Cluster
from statecore.errors import Invalid
from statecore.jobs.bases.base import grouped
from statecore.jobs.bases.snapshot_bases import SnapshotBases
from statecore.jobs.checkpoint.job import CheckpointJob
from statecore.jobs.checkpoint.plan import (
    CheckpointPlan,
    inherited_notes,
    read_whole,
    rebuilt_notes,
)
from statecore.jobs.checkpoint.replaced_changelogs import replaced_notes, replaced_stores
from statecore.jobs.checkpoint.request import WhenRefused
from statecore.jobs.planning.frozen_plan import FrozenPlan
from statecore.jobs.planning.planned_tails import RESUMED_NOTE, check_unchanged, covers, topics_of, valid_bases
from statecore.jobs.planning.planner import plan_reads
from statecore.repository.publish.publication import Publication


def plan_checkpoint(job: CheckpointJob, publication: Publication) -> CheckpointPlan:
    """The plan of a checkpoint. Raises ``Invalid`` for stores that have no base and may not be rebuilt."""
    with job.context.cluster() as cluster:
        publication.check_cluster(cluster.cluster_id())
        planned = _resumed_or_new(cluster, job, publication)
        if job.continues_own_plan:
            planned = planned.without_resumed_note()
        if planned.plan.offsets >= job.small_tail:
            planned = replace(planned, brokers=tuple(cluster.brokers()))
    if job.request.when_refused == WhenRefused.REFUSE and planned.not_advanced:
        if not job.request.plan_only:
            job.forget_plan()
        raise _advance_refused(planned)
    job.say_once(planned.urgent_notes)
    return planned


def _advance_refused(planned: CheckpointPlan) -> Invalid:
    lines = [f"  {line}" for line in planned.lacking]
    return Invalid(
        "Stores cannot be advanced, and rebuilding them was not allowed:\n" + "\n".join(lines) + "\n",
        code="advance-refused",
        action="Rebuild them (--when-refused rebuild), or restore them (statecore restore --repository).",
        problems=[one.to_json() for one in planned.refused_without_base],
    )


def _resumed_or_new(cluster: Cluster, job: CheckpointJob, publication: Publication) -> CheckpointPlan:
    request, spec = job.request, job.spec
    damaged = {(key, one.snapshot): why for key, why in job.damaged.items() for one in publication.entries}
    refused_bases = job.refused | damaged
    candidates = SnapshotBases(
        job.repository,
        spec,
        publication.entries,
        publication.newest,
        publication.task_manifests(),
        refused_bases,
        cluster_id=cluster.cluster_id(),
    )
    why: tuple[str, ...] = ()
    if not refused_bases and not request.plan_only:
        found = _resumed(cluster, job, candidates)
        if isinstance(found, CheckpointPlan):
            return found
        why = () if found is None else (f"The plan of an earlier attempt of this request was recreated: {found}.",)
    made_at = job.context.clock()
    planned = plan_reads(
        cluster,
        spec,
        request,
        parallelism=lambda: job.engine.expected(spec),
        candidates=candidates,
        versioned_ms=request.versioned_interval,
        builds=False,
    )
    newest = "" if publication.newest is None else publication.newest.snapshot
    bases, refused, _ = planned.chosen
    frozen = FrozenPlan(
        planned.plan,
        request.partitions,
        made_at,
        request.request_id,
        newest_snapshot=newest,
        refused=refused,
        broker_read_at_ms=planned.read_at_ms,
    )
    if planned.plan.offsets and not request.plan_only:
        job.home.save_plan(frozen)
    notes = (
        *why,
        *planned.notes,
        *grouped(refused),
        *rebuilt_notes(read_whole(planned.plan), newest),
        *replaced_notes(replaced_stores(refused, read_whole(planned.plan), newest)),
        *inherited_notes(planned.plan, request.versioned_interval),
    )
    return CheckpointPlan(
        frozen=frozen, bases=bases, refused=refused, topics=planned.topics, notes=notes, candidates=candidates
    )


def _resumed(cluster: Cluster, job: CheckpointJob, candidates: SnapshotBases) -> CheckpointPlan | str | None:
    """The frozen plan of an earlier attempt of this request; or why it cannot be resumed, if there is one.

    A restore follows other rules (`RestorePlanner.resumed`): it refuses recreated topics, where a checkpoint makes a
    new plan from other bases. Only a checkpoint needs that the snapshot which it advances is still valid.
    """
    try:
        frozen = job.home.read_plan()
    except Invalid as error:
        return error.what
    if frozen is None:
        return None
    if not covers(frozen, job.spec, job.request):
        return "it covered other stores"
    topics = topics_of(cluster, frozen.plan)
    try:
        check_unchanged(frozen.plan, topics)
    except Invalid as error:  # a new plan will refuse bases of the old topic
        return error.what
    if frozen.newest_snapshot and not candidates.has(frozen.newest_snapshot):
        return f"the snapshot {frozen.newest_snapshot} that it was to advance is not valid any more"
    bases = valid_bases(cluster, frozen, topics, candidates)
    if isinstance(bases, str):
        return bases
    newest = frozen.newest_snapshot
    rebuilt = read_whole(frozen.plan)
    replaced = replaced_notes(replaced_stores(frozen.refused, rebuilt, newest))
    notes = (RESUMED_NOTE, *grouped(frozen.refused), *rebuilt_notes(rebuilt, newest), *replaced)
    return CheckpointPlan(
        frozen=frozen,
        bases=bases,
        refused=frozen.refused,
        topics=topics,
        notes=notes,
        candidates=candidates,
        is_resumed=True,
    )
