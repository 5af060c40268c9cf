"""Plan of a restore: a base for each store and the offsets to read, frozen under the request's id."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from statecore.changelog.cluster import Cluster
from statecore.discover.contradicted_kinds import contradiction_error
from statecore.errors import Invalid
from statecore.formats.topic_partition import TopicPartition
from statecore.jobs.bases.base import DIRECTORY, SHOWN, Key, grouped
from statecore.jobs.bases.planned_tails import RESUMED_NOTE, PlannedTails, topics_of, valid_bases
from statecore.jobs.job_files import JobHome
from statecore.jobs.planning.estimate import DiskNeed
from statecore.jobs.planning.frozen_plan import FROZEN_PLAN, PLAN_SUFFIX, FrozenPlan
from statecore.jobs.planning.plan import RestorePlan
from statecore.jobs.planning.plan_warnings import notes_of
from statecore.jobs.planning.planner import check_unchanged, covers, plan_restore
from statecore.jobs.planning.selection import select_stores, unadvanceable_stores
from statecore.jobs.restore.base_candidates import RestoreCandidates, cost
from statecore.jobs.restore.placement_request import images_of
from statecore.jobs.restore.request import CHEAPEST, HERE, RestoreRequest
from statecore.repository.manifest import TaskManifest
from statecore.repository.rebase import rebase_advance
from statecore.spec.model import ApplicationSpec
from statecore.statedir.placement_plan import existing_stores_error, unopenable_stores_error
from statecore.statedir.state_directory import StateDirectory


@dataclass(frozen=True)
class Until:
    """Limits a plan to some stores, and their changelogs to given end offsets.

    Attributes:
        keys: the stores, by task and name.
        ends: by changelog partition the offset at which reading stops, if the log goes on.
    """

    keys: frozenset[Key]
    ends: Mapping[TopicPartition, int]


@dataclass(frozen=True, kw_only=True)
class PlannedRestoreOf(PlannedTails):
    """A planned restore.

    Attributes:
        candidates: bases in the directory and in snapshots.
        disk: disk space needed; ``None`` for a resumed plan.
    """

    candidates: RestoreCandidates
    disk: DiskNeed | None = None

    @property
    def here(self) -> frozenset[Key]:
        """Stores whose base is the state directory."""
        return frozenset(key for key, base in self.bases.items() if base.is_here)

    def rebase(self, mine: TaskManifest, theirs: TaskManifest) -> TaskManifest | None:
        """See :func:`statecore.repository.rebase.rebase_advance`."""
        return rebase_advance(mine, theirs, self.candidates.task(self.frozen.newest_snapshot, mine.task))

    @property
    def published(self) -> RestorePlan:
        """The plan of the tasks that can be published: those without a base in the state directory."""
        here = {task for task, _ in self.here}
        return self.plan.of_tasks(self.plan.tasks - here)


def new_plan(
    cluster: Cluster,
    spec: ApplicationSpec,
    request: RestoreRequest,
    candidates: RestoreCandidates,
    parallelism: Callable[[], int],
    staging: str = "",
    until: Until | None = None,
) -> PlannedRestoreOf:
    """Make a new plan."""
    made_at = time.time()
    asked = select_stores(spec, request.stores, request.partitions)
    stays = unadvanceable_stores(asked, request.stores) if request.start_from == HERE else ()

    def only(key: Key) -> bool:
        if until is not None and key not in until.keys:
            return False
        return request.start_from != HERE or (key[1] not in stays and candidates.has_store(key))

    planned = plan_restore(
        cluster,
        spec,
        request,
        parallelism=parallelism,
        candidates=candidates,
        cost=cost if request.start_from == CHEAPEST else None,
        only=only,
        ends={} if until is None else until.ends,
    )
    bases, refused, costlier = planned.chosen
    plan, kept = _without_finished_tasks(planned.plan)
    is_partial = request.start_from == HERE or plan != planned.plan
    left_out = {store.name for store in asked} - {part.store for part in plan.partitions} if is_partial else set()
    frozen = FrozenPlan(
        plan,
        request.partitions,
        made_at,
        request.request_id,
        staging,
        newest_snapshot=candidates.newest,
        refused=refused,
        is_partial=is_partial,
        excluded_stores=tuple(sorted(left_out)),
        command=_words(request),
        broker_read_at_ms=planned.read_at_ms,
    )
    notes = (
        *planned.notes,
        *_base_notes(plan, request),
        *_versioned_notes(stays),
        *kept,
        *grouped((*refused, *costlier)),
    )
    bases = {key: base for key, base in bases.items() if key in plan.stores}
    found = PlannedRestoreOf(
        frozen=frozen,
        bases=bases,
        refused=refused,
        topics=planned.topics,
        notes=notes,
        candidates=candidates,
        disk=planned.disk,
    )
    lacking = _refusal_to_advance(found)
    if lacking is not None and not request.plan_only:
        raise lacking
    return found


class RefusedPlan(Invalid):
    """A plan that was only asked for, and the error with which the job would be refused.

    Attributes:
        plan: the plan; ``None`` if the error comes from another process.
    """

    plan: RestorePlan | None = None

    @staticmethod
    def of(plan: RestorePlan, refusal: Invalid) -> RefusedPlan:
        made = RefusedPlan(refusal.what, code=refusal.code, action=refusal.action, **refusal.context)
        made.plan = plan
        return made

    def to_json(self) -> dict[str, Any]:
        """See :class:`StatecoreError`; with the plan, if known."""
        said = super().to_json()
        return said if self.plan is None else {**said, "plan": self.plan.to_json()}


def check_plan(
    planned: PlannedRestoreOf,
    request: RestoreRequest,
    directory: StateDirectory | None,
    spec: ApplicationSpec | None = None,
) -> tuple[str, ...]:
    """Refuse a plan that was only asked for if the job would be refused because of the state directory.

    Returns:
        Notes if the directory is in use: whether the job would be refused shows only after it was closed.
    """
    if directory is None:
        return ()
    try:
        directory.check_usable()
        holder = directory.in_use_by()
    except Invalid as error:
        raise RefusedPlan.of(planned.plan, error) from error
    used = () if holder is None else (directory.use_note(holder),)
    refusal = _refusal_to_advance(planned)
    if refusal is None and spec is not None:
        refusal = contradiction_error(directory, spec, planned.plan.tasks)
    if refusal is None and not request.replace:
        refusal = existing_stores_error(directory, images_of(planned.plan, planned.here))
    if refusal is None:
        refusal = unopenable_stores_error(directory, images_of(planned.plan, planned.here))
    if refusal is None:
        return used
    if holder is None:
        raise RefusedPlan.of(planned.plan, refusal)
    return (
        *used,
        f"Whether the stores of {directory.path} can serve as bases is known only after {holder} has ended; in their "
        f"present state: {refusal.what}",
    )


def resumed_plan(
    cluster: Cluster,
    spec: ApplicationSpec,
    request: RestoreRequest,
    candidates: RestoreCandidates,
    home: JobHome,
) -> PlannedRestoreOf | str | None:
    """The frozen plan of an earlier attempt of this request; or why it must be recreated, if there is one."""
    content = home.read(PLAN_SUFFIX)
    if content is None:
        return None
    try:
        frozen = FROZEN_PLAN.decode(content)
    except Invalid as error:
        return error.what
    if not covers(frozen, spec, request):
        return None
    topics = topics_of(cluster, frozen.plan)
    check_unchanged(frozen.plan, topics)
    bases = valid_bases(cluster, frozen, topics, candidates)
    if isinstance(bases, str):
        return f"{bases}."
    return PlannedRestoreOf(
        frozen=frozen,
        bases=bases,
        refused=frozen.refused,
        topics=topics,
        notes=(RESUMED_NOTE, *notes_of(cluster, spec, frozen.plan, request)),
        candidates=candidates,
        is_resumed=True,
    )


def _without_finished_tasks(plan: RestorePlan) -> tuple[RestorePlan, list[str]]:
    """The plan without the tasks that are already at the end of their changelogs."""
    done = {
        task
        for task in plan.tasks
        if all(part.base == DIRECTORY and part.start == part.end for part in plan.partitions if part.task == task)
    }
    if not done:
        return plan, []
    rest = plan.of_tasks(plan.tasks - done)
    many = f"{len(done)} tasks are at the end of their changelogs and stay as they are."
    return rest, [many if len(done) > 1 else "1 task is at the end of its changelogs and stays as it is."]


def _words(request: RestoreRequest) -> tuple[str, ...]:
    """The command that repeats this request; a restore from a directory only is an ``advance``."""
    without = {"spec_path", "state_dir", "plan_only", "request_id"}
    if request.start_from == HERE:
        return ("advance", *request.to_words({*without, "start_from"}))
    return ("restore", *request.to_words(without))


def _versioned_notes(stays: Sequence[str]) -> list[str]:
    return [f"Versioned stores stay as they are: {', '.join(stays)}."] if stays else []


def _base_notes(plan: RestorePlan, request: RestoreRequest) -> list[str]:
    """Operator notes: the bases, and the offsets that need not be read."""
    names = {key: parts[0].base for key, parts in plan.stores.items() if not parts[0].restored_by_kafka_streams}
    counts = Counter(names.values())
    if set(counts) <= {""}:
        return []
    read: Counter[str] = Counter()
    saved: Counter[str] = Counter()
    for key, name in names.items():
        for part in plan.stores[key]:
            read[name] += part.end - part.start
            saved[name] += part.start - min(part.log_start, part.start)
    why = "the cheapest sound base" if request.start_from == CHEAPEST else "as requested"
    return [
        f"{counts[name]} store partitions have {name} as base ({why}): {read[name]:,} offsets are read instead of "
        f"{read[name] + saved[name]:,}."
        if name
        else f"{counts[name]} store partitions are built from their whole changelogs: {read[name]:,} offsets."
        for name in sorted(counts, reverse=True)
    ]


def _refusal_to_advance(planned: PlannedRestoreOf) -> Invalid | None:
    """The error for stores that were to be advanced and cannot be; ``None`` if there are none.

    If a store cannot be replaced either, because of its kind or options, that is the error: replacing is no remedy.
    """
    lacking = [one for one in planned.refused if one.base == DIRECTORY and one.key not in planned.bases]
    if not lacking:
        return None
    directory, stores = planned.candidates.directory, {one.key for one in lacking}
    if directory is not None:
        tasks = {task for task, _ in stores}
        images = [image for image in images_of(planned.plan, ()) if (image.task, image.store) in stores]
        final = contradiction_error(directory, planned.candidates.spec, tasks) or unopenable_stores_error(
            directory, images
        )
        if final is not None:
            return final
    lines = "\n".join(f"  store {one.store} of task {one.task}: {one.why}" for one in lacking[:SHOWN])
    more = f"\n  ... and {len(lacking) - SHOWN} more" if len(lacking) > SHOWN else ""
    return Invalid(
        f"{len(lacking)} stores cannot be advanced by the tails of their changelogs:\n{lines}{more}\n",
        code="advance-refused",
        action="Rebuild them: statecore restore --replace (with --store and --partition for these only), and with the "
        "repository if there is one.",
        problems=[one.to_json() for one in lacking],
    )
