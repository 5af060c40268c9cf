"""Plan of a restore with its bases, and the reasons in a state directory that refuse it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from statecore.discover.contradicted_kinds import contradiction_error
from statecore.errors import Invalid
from statecore.formats.topic_partition import TopicPartition
from statecore.jobs.bases.base import DIRECTORY, SHOWN, Key
from statecore.jobs.planning.estimate import DiskNeed
from statecore.jobs.planning.plan import ReadPlan
from statecore.jobs.planning.planned_tails import PlannedTails
from statecore.jobs.restore.base_candidates import RestoreCandidates
from statecore.jobs.restore.request import RestoreRequest
from statecore.repository.manifest import TaskManifest
from statecore.repository.publish.rebase import rebase_advance, rebase_rebuild
from statecore.spec.model import ApplicationSpec
from statecore.statedir.placement_plan import existing_stores_error, unopenable_stores_error
from statecore.statedir.placement_stores import StoreImage
from statecore.statedir.state_directory import StateDirectory


@dataclass(frozen=True)
class PlanLimit:
    """Limits a plan to some stores, and their changelogs to given end offsets.

    Attributes:
        ends: by changelog partition the offset at which reading stops, if the log goes on.
    """

    keys: frozenset[Key]
    ends: Mapping[TopicPartition, int]


@dataclass(frozen=True, kw_only=True)
class PlannedRestore(PlannedTails):
    """A planned restore.

    Attributes:
        candidates: bases in the directory and in snapshots.
        disk: disk space needed; ``None`` for a resumed plan.
    """

    candidates: RestoreCandidates
    disk: DiskNeed | None = None

    @property
    def based_on_directory(self) -> frozenset[Key]:
        """Stores whose base is the state directory."""
        return frozenset(key for key, base in self.bases.items() if base.is_directory)

    @property
    def images(self) -> list[StoreImage]:
        """The images that a placement puts in place, before they exist."""
        return [
            StoreImage(one.task, one.store, one.kind, one.topic_partition, advances=key in self.based_on_directory)
            for key, (one, *_) in self.plan.stores.items()
        ]

    def rebase(self, mine: TaskManifest, theirs: TaskManifest) -> TaskManifest | None:
        """See :func:`statecore.repository.publish.rebase.rebase_advance`."""
        return rebase_advance(mine, theirs, self.candidates.task(self.frozen.newest_snapshot, mine.task))

    def rebuild(
        self, begun: Callable[[], Mapping[str, TaskManifest]]
    ) -> Callable[[TaskManifest, TaskManifest], TaskManifest]:
        """See :func:`~statecore.repository.publish.rebase.rebase_rebuild`; ``begun`` reads the tasks as they were."""
        return lambda mine, theirs: rebase_rebuild(mine, theirs, begun().get(mine.task))

    @property
    def published(self) -> ReadPlan:
        """The plan of the tasks that can be published: those without a base in the state directory."""
        advanced = {task for task, _ in self.based_on_directory}
        return self.plan.of_tasks(self.plan.tasks - advanced)


class RefusedPlan(Invalid):
    """The result of a request for a plan only, if the job would be refused: the plan, and the error.

    Attributes:
        plan: the plan; ``None`` if the error comes from another process.
    """

    plan: ReadPlan | None = None

    @staticmethod
    def of(plan: ReadPlan, refusal: Invalid) -> RefusedPlan:
        made = RefusedPlan(refusal.what, code=refusal.code, action=refusal.action, **refusal.context)
        made.plan = plan
        return made

    def to_json(self) -> dict[str, Any]:
        """The error, with the plan if known."""
        document = super().to_json()
        return document if self.plan is None else {**document, "plan": self.plan.to_json()}


def refuse_preview(
    planned: PlannedRestore,
    request: RestoreRequest,
    directory: StateDirectory | None,
    spec: ApplicationSpec | None = None,
) -> tuple[str, ...]:
    """Refuse the request for a plan only, if its job would be refused; returns notes if the directory is in use."""
    if directory is None:
        return ()
    try:
        directory.check_usable()
        holder = directory.in_use_by()
    except Invalid as error:
        raise RefusedPlan.of(planned.plan, error) from error
    used = () if holder is None else (directory.use_note(holder),)
    refusal = refusal_to_advance(planned)
    if refusal is None and spec is not None:
        refusal = contradiction_error(directory, spec, planned.plan.tasks)
    if refusal is None and not request.replace:
        refusal = existing_stores_error(directory, planned.images)
    if refusal is None:
        refusal = unopenable_stores_error(directory, planned.images)
    if refusal is None:
        return used
    if holder is None:
        raise RefusedPlan.of(planned.plan, refusal)
    return (
        *used,
        f"Whether the stores of {directory.path} can serve as bases is known only after {holder} has ended; in their "
        f"present state: {refusal.what}",
    )


def refusal_to_advance(planned: PlannedRestore) -> Invalid | None:
    """The error for stores that were to be advanced and cannot be, or else cannot be replaced; ``None`` without any."""
    lacking = [one for one in planned.refused if one.base == DIRECTORY and one.key not in planned.bases]
    if not lacking:
        return None
    directory, stores = planned.candidates.directory, {one.key for one in lacking}
    if directory is not None:
        tasks = {task for task, _ in stores}
        images = [image for image in planned.images if (image.task, image.store) in stores]
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
