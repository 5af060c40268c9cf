"""Approval of a repair plan: what needs one, and what remains covered by one after an attempt was killed.

A rebuild replaces local state by what the brokers have. Another cluster may have topics of the same names, and a topic
may have been emptied. So a plan names the topic ids, its id changes with them, and a rebuild that would lose rows is
done only if that exact plan was approved.

The plan id changes with the directory, so the rest of a plan has another id. The attempt file
(:mod:`statecore.jobs.directory_change`) therefore records what was approved, and a later attempt that would do only a
part of that continues under the same approval.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from statecore.doctor.repair_actions import why_not_repairable
from statecore.errors import Invalid
from statecore.jobs.history.directory_changes import UnfinishedChange
from statecore.jobs.history.report_head import ReportError, read_report
from statecore.jobs.repair.plan import PlannedRepair
from statecore.jobs.repair.planner import permission_denied
from statecore.statedir.state_directory import StateDirectory

_PLAN = "plan"
_SHOWN = 5


def refuse(plan: PlannedRepair, directory: StateDirectory, approved: str) -> None:
    """Refuse doubtful rebuilds without an approval, and repairs that this user may not do. Raises ``Invalid``."""
    if plan.doubts and not approved:
        raise Invalid(
            f"Stores in {directory.path} may have been made from other logs than they would be rebuilt from. "
            + " ".join(plan.doubts[:_SHOWN]),
            code="rebuild-source-unverified",
            action="Make sure that these are the brokers and topics of this application, and not others of the "
            f"same names; then approve this plan: --approved {plan.plan_id}. Nothing was changed.",
            state_dir=str(directory.state_dir),
            plan_id=plan.plan_id,
            doubts=plan.doubts,
        )
    if lacking := lacking_permission(plan, directory):
        raise permission_denied(directory, lacking)


def lacking_permission(plan: PlannedRepair, directory: StateDirectory) -> str:
    """Why this user may not apply a plan; empty if it may."""
    return why_not_repairable(directory, plan.actions.actions)


def plan_record(plan: PlannedRepair) -> dict[str, Any]:
    """What an attempt file records of a plan: its id, repairs, rebuilds and logs."""
    return {
        _PLAN: {
            "id": plan.plan_id,
            "repaired": [[task.task, step] for task in plan.repaired for step in task.steps],
            "rebuilt": [[task, store] for one in plan.rebuilt for task in one.tasks for store in one.stores],
            "logs": [log for one in plan.rebuilt for log in one.logs],
        }
    }


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
