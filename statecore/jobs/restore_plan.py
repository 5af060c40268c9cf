"""The plan of a restore: what its stores are put upon, the offsets that are read, frozen under the request's id."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from statecore.changelog.cluster import Cluster
from statecore.errors import Invalid
from statecore.jobs.estimate import DiskNeed
from statecore.jobs.frozen_plan import FROZEN_PLAN, PLAN_SUFFIX, FrozenPlan
from statecore.jobs.home import JobHome
from statecore.jobs.notes import notes_of
from statecore.jobs.parents import DIRECTORY, Key
from statecore.jobs.plan import RestorePlan
from statecore.jobs.planned_tails import TAKEN_UP, PlannedTails, still_standing, topics_of
from statecore.jobs.planning import check_unchanged, covers, plan_restore
from statecore.jobs.request import CHEAPEST, HERE, RestoreRequest
from statecore.jobs.restore_candidates import RestoreCandidates, cost
from statecore.jobs.selection import select_stores
from statecore.repository.manifest import TaskPart
from statecore.repository.rebase import advanced
from statecore.spec.model import ApplicationSpec

_SHOWN = 20


@dataclass(frozen=True, kw_only=True)
class PlannedRestoreOf(PlannedTails):
    """What a restore does.

    Attributes:
        candidates: the directory and the snapshots.
        disk: what it takes of the disk; ``None`` where an earlier try had asked.
    """

    candidates: RestoreCandidates
    disk: DiskNeed | None = None

    @property
    def here(self) -> frozenset[Key]:
        """The stores that are put upon what the state directory has."""
        return frozenset(key for key, parent in self.parents.items() if parent.is_here)

    def rebase(self, mine: TaskPart, theirs: TaskPart) -> TaskPart | None:
        """See :func:`statecore.repository.rebase.advanced`."""
        return advanced(mine, theirs, self.candidates.task(self.frozen.newest, mine.task))

    @property
    def published(self) -> RestorePlan:
        """The plan of the tasks that can be published: nothing of a state directory is in the repository."""
        here = {task for task, _ in self.here}
        return self.plan.of_tasks(self.plan.tasks - here)


def plan_anew(
    cluster: Cluster,
    spec: ApplicationSpec,
    request: RestoreRequest,
    candidates: RestoreCandidates,
    parallelism: Callable[[], int],
    staging: str = "",
) -> PlannedRestoreOf:
    """A new plan.

    Args:
        cluster: where the topics are.
        spec: the application.
        request: what is asked for.
        candidates: what the stores may be put upon.
        parallelism: batches that the engine works on at once.
        staging: the directory below which it is built.

    Raises:
        Invalid: see :func:`statecore.jobs.planning.plan_restore`; or stores of the state directory were to be built
            upon, and cannot be.
        NotFound, Retryable: likewise.
    """
    made_at = time.time()
    only = candidates.has_store if request.start_from == HERE else lambda _: True
    planned = plan_restore(
        cluster,
        spec,
        request,
        parallelism=parallelism,
        candidates=candidates,
        cost=cost if request.start_from == CHEAPEST else None,
        only=only,
    )
    parents, refused, dearer = planned.chosen
    plan, kept = _without_what_is_done(planned.plan)
    is_part = request.start_from == HERE or plan != planned.plan
    asked = {store.name for store in select_stores(spec, request.stores, request.partitions)}
    left_out = asked - {part.store for part in plan.partitions} if is_part else set()
    frozen = FrozenPlan(
        plan,
        request.partitions,
        made_at,
        request.request_id,
        staging,
        newest=candidates.newest,
        refused=refused,
        is_part=is_part,
        left_out=tuple(sorted(left_out)),
    )
    notes = (*planned.notes, *_upon(plan, request), *kept, *map(str, (*refused, *dearer)[:_SHOWN]))
    parents = {key: parent for key, parent in parents.items() if key in plan.stores}
    found = PlannedRestoreOf(
        frozen=frozen,
        parents=parents,
        refused=refused,
        topics=planned.topics,
        notes=notes,
        candidates=candidates,
        disk=planned.disk,
    )
    _refuse_what_stays(request, found)
    return found


def taken_up(
    cluster: Cluster,
    spec: ApplicationSpec,
    request: RestoreRequest,
    candidates: RestoreCandidates,
    home: JobHome,
) -> PlannedRestoreOf | str | None:
    """The plan of an earlier try of this request; or why it is made anew, where there is one."""
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
    parents = still_standing(cluster, frozen, topics, candidates)
    if isinstance(parents, str):
        return f"{parents}."
    return PlannedRestoreOf(
        frozen=frozen,
        parents=parents,
        refused=frozen.refused,
        topics=topics,
        notes=(TAKEN_UP, *notes_of(cluster, spec, frozen.plan, request)),
        candidates=candidates,
        taken_up=True,
    )


def _without_what_is_done(plan: RestorePlan) -> tuple[RestorePlan, list[str]]:
    """The plan without the tasks whose stores all lie in the state directory at the end of their changelogs."""
    done = {
        task
        for task in plan.tasks
        if all(part.parent == DIRECTORY and part.start == part.end for part in plan.partitions if part.task == task)
    }
    if not done:
        return plan, []
    rest = plan.of_tasks(plan.tasks - done)
    return rest, [f"{len(done)} tasks are at the end of their changelogs: kept as they are."]


def _upon(plan: RestorePlan, request: RestoreRequest) -> list[str]:
    """What the stores are put upon, and what that saves, for the operator."""
    names = {key: parts[0].parent for key, parts in plan.stores.items() if not parts[0].left_to_restore}
    counts = Counter(names.values())
    if set(counts) <= {""}:
        return []
    read: Counter[str] = Counter()
    saved: Counter[str] = Counter()
    for key, name in names.items():
        for part in plan.stores[key]:
            read[name] += part.end - part.start
            saved[name] += part.start - min(part.log_start, part.start)
    why = "the least work of what is sound" if request.start_from == CHEAPEST else "as it was asked for"
    return [
        f"{counts[name]} store partitions are put upon {name} ({why}): {read[name]:,} offsets are read, and not "
        f"{read[name] + saved[name]:,}."
        if name
        else f"{counts[name]} store partitions are made of the whole of their changelogs: {read[name]:,} offsets."
        for name in sorted(counts, reverse=True)
    ]


def _refuse_what_stays(request: RestoreRequest, planned: PlannedRestoreOf) -> None:
    """Refuse to leave stores behind that were to be advanced, all of which are named."""
    if request.plan_only:
        return
    lacking = [one for one in planned.refused if one.parent == DIRECTORY and one.key not in planned.parents]
    if lacking:
        lines = "\n".join(f"  store {one.store} of task {one.task}: {one.why}" for one in lacking[:_SHOWN])
        more = f"\n  ... and {len(lacking) - _SHOWN} more" if len(lacking) > _SHOWN else ""
        raise Invalid(
            f"{len(lacking)} stores cannot be advanced by the tails of their changelogs:\n{lines}{more}\n",
            action="Have these made anew: statecore restore --replace (with --store and --partition for these alone), "
            "with a repository where there is one.",
            problems=[str(one) for one in lacking],
        )
