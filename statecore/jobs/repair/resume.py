"""Resumes a partially applied, approved repair.

The plan id changes with the directory, so the rest of a plan has another id. The attempt file
(:mod:`statecore.jobs.directory_change`) therefore records what was approved, and a later attempt that would do only a
part of that continues under the same approval.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from statecore.jobs.history.directory_changes import UnfinishedChange
from statecore.jobs.history.report_head import ReportError, read_report
from statecore.jobs.repair.report import RebuiltStores, RepairedTask

_PLAN = "plan"


def plan_record(plan_id: str, repaired: Iterable[RepairedTask], rebuilt: Iterable[RebuiltStores]) -> dict[str, Any]:
    """What an attempt file records of a plan: its id, repairs, rebuilds and logs."""
    of_rebuilds = list(rebuilt)
    return {
        _PLAN: {
            "id": plan_id,
            "mended": [[task.task, step] for task in repaired for step in task.steps],
            "rebuilt": [[task, store] for one in of_rebuilds for task in one.tasks for store in one.stores],
            "logs": [log for one in of_rebuilds for log in one.logs],
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
    return all(_among(rest[name], plan.get(name) or ()) for name in ("mended", "rebuilt", "logs"))


def _among(some: Sequence[Any], every: Sequence[Any]) -> bool:
    return all(one in every for one in some)
