"""Plan of a repair: the repairs and rebuilds of the findings in a directory, and its approval.

A rebuild replaces local state by what the brokers have. Another cluster may have topics of the same names, and a topic
may have been emptied. So a plan names the topic ids, its id changes with them, and a rebuild that would lose rows is
done only if that exact plan was approved.

The plan id changes with the directory, so the rest of a plan has another id. The attempt file
(:mod:`statecore.jobs.directory_change`) therefore records what was approved, and a later attempt that would do only a
part of that continues under the same approval.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from statecore.doctor.diagnosis import Diagnosis
from statecore.doctor.inspection import StoreView
from statecore.doctor.repair_actions import why_not_repairable
from statecore.doctor.repair_plan import RepairPlan
from statecore.errors import Invalid, Reason
from statecore.jobs.directory_change import plan_id_of
from statecore.jobs.history.directory_changes import UnfinishedChange
from statecore.jobs.history.report_head import ReportError, read_report
from statecore.jobs.repair.report import RebuiltStores, RepairedTask
from statecore.spec.model import ApplicationSpec
from statecore.statedir.placement_plan import refusals
from statecore.statedir.placement_stores import StoreImage, siblings_of
from statecore.statedir.state_directory import StateDirectory

_PLAN = "plan"
_SHOWN = 5


@dataclass(frozen=True)
class PlannedRepair:
    """The repairs of the findings in a directory.

    Attributes:
        repairs: what is done to copies of tasks, and which stores are rebuilt.
        fingerprints: of the task directories, by task.
    """

    diagnosis: Diagnosis
    repairs: RepairPlan
    fingerprints: Mapping[str, str]
    repaired: tuple[RepairedTask, ...]
    rebuilt: tuple[RebuiltStores, ...]

    @property
    def plan_id(self) -> str:
        rebuilt = [{**vars(one), "doubts": ()} for one in self.rebuilt]  # doubts name log ends, which may grow
        return plan_id_of(
            {"repaired": [*map(vars, self.repaired)], "rebuilt": rebuilt, "fingerprints": self.fingerprints}
        )

    @property
    def is_empty(self) -> bool:
        return self.repairs.is_empty

    @property
    def doubts(self) -> list[str]:
        """Why a person has to approve the plan."""
        return [doubt for one in self.rebuilt for doubt in one.doubts]

    def record(self) -> dict[str, Any]:
        """What an attempt file records of the plan: its id, repairs, rebuilds and logs."""
        return {
            _PLAN: {
                "id": self.plan_id,
                "repaired": [[task.task, step] for task in self.repaired for step in task.steps],
                "rebuilt": [[task, store] for one in self.rebuilt for task in one.tasks for store in one.stores],
                "logs": [log for one in self.rebuilt for log in one.logs],
            }
        }

    def refuse(self, directory: StateDirectory, approved: str) -> None:
        """Refuse doubtful rebuilds without an approval, and repairs that this user may not do. Raises ``Invalid``."""
        if self.doubts and not approved:
            raise Invalid(
                f"Rebuilds of stores in {directory.path} may replace rows that no log has. "
                + " ".join(self.doubts[:_SHOWN]),
                code="rebuild-source-unverified",
                action="Make sure that these are the brokers and topics of this application, and not others of the "
                "same names, and that the spec declares its stores as it does; of rows that differ, statecore diff "
                f"shows each. Then approve this plan: --approved {self.plan_id}. Nothing was changed.",
                state_dir=str(directory.state_dir),
                plan_id=self.plan_id,
                doubts=self.doubts,
            )
        if lacking := self.lacking_permission(directory):
            raise permission_denied(directory, lacking)

    def lacking_permission(self, directory: StateDirectory) -> str:
        """Why this user may not apply the plan; empty if it may."""
        return why_not_repairable(directory, self.repairs.actions)


def approved_record(
    attempts: Iterable[UnfinishedChange], approved: str, rest: Mapping[str, Any]
) -> dict[str, Any] | None:
    """The record of the approved plan, if an attempt has begun it and only a part of it remains; otherwise ``None``."""
    for one in attempts:
        try:
            plan = read_report(one.file).get(_PLAN)
        except ReportError:
            continue
        if isinstance(plan, dict) and plan.get("id") == approved and _is_part(rest[_PLAN], plan):
            return {_PLAN: plan}
    return None


def _is_part(rest: Mapping[str, Any], plan: Mapping[str, Any]) -> bool:
    return all(one in (plan.get(name) or ()) for name in ("repaired", "rebuilt", "logs") for one in rest[name])


def permission_denied(directory: StateDirectory, lacking: str) -> Invalid:
    """The error for a directory that this user may not repair."""
    return Invalid(
        f"In {directory.path} {lacking}.",
        code="permission-denied",
        action="Run this as root, or as a user that may; nothing was changed.",
        state_dir=str(directory.state_dir),
    )


def refused_rebuilds(
    directory: StateDirectory, spec: ApplicationSpec, plan: RepairPlan, stores: Sequence[StoreView]
) -> tuple[Reason, ...]:
    """Why the placement would refuse the rebuilds of a task: a store that cannot be opened, and stays as it is."""
    rebuilt = {(task, store) for one in plan.rebuilds for task in one.tasks for store in one.stores}
    changed = {(one.task, one.store) for of in plan.actions.values() for one in of}
    unreadable = {(view.task, view.store) for view in stores if any(one.broken for one in view.databases)} - changed
    tasks = {task for task, _ in rebuilt} & {task for task, _ in unreadable}
    declared = siblings_of(spec, sorted(tasks), ())
    images = [
        StoreImage(one.task, one.store, one.kind, one.changelog) for one in declared if (one.task, one.store) in rebuilt
    ]
    siblings = [one for one in declared if (one.task, one.store) not in rebuilt]
    found = refusals(directory, images, siblings=siblings, guarantee=spec.processing_guarantee)
    return tuple(one for one in found if (one.context["task"], one.context.get("store")) in unreadable)
