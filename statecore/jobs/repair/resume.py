"""What is left of a repair that was approved and done in part: whoever runs it again has that approval still.

The id of a plan changes with the directory, so the rest of a plan has another one. The word that a try leaves of itself
(:mod:`statecore.jobs.directory_change`) therefore says what was approved, and a later try that would do a part of just
that goes on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from statecore.jobs.history.directory_changes import killed_tries
from statecore.jobs.history.report_head import ReportError, read_report
from statecore.jobs.repair.report import RebuiltStores, RepairedTask

_PLAN = "plan"


def word_of(plan_id: str, mended: Iterable[RepairedTask], rebuilt: Iterable[RebuiltStores]) -> dict[str, Any]:
    """What the word of a try says of its plan.

    Args:
        plan_id: the id of the plan.
        mended: the tasks that are changed.
        rebuilt: the stores that are rebuilt.
    """
    of_rebuilds = list(rebuilt)
    return {
        _PLAN: {
            "id": plan_id,
            "mended": [[task.task, step] for task in mended for step in task.steps],
            "rebuilt": [[task, store] for one in of_rebuilds for task in one.tasks for store in one.stores],
            "logs": [log for one in of_rebuilds for log in one.logs],
        }
    }


def begun_before(work: Path, job: str, approved: str, rest: Mapping[str, Any]) -> dict[str, Any] | None:
    """The word of the plan that was approved, where a try has begun it and nothing but a part of it is to be done.

    Args:
        work: the application's ``.statecore``.
        job: what the job is called in the word of its tries.
        approved: the id of the plan that was approved.
        rest: the word of what would be done now.
    """
    for one in killed_tries(work):
        if one.job != job:
            continue
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
