"""Resumes a partially applied, approved repair, and deletes what killed attempts have staged.

The plan id changes with the directory, so the rest of a plan has another id. The attempt file
(:mod:`statecore.jobs.directory_change`) therefore records what was approved, and a later attempt that would do only a
part of that continues under the same approval.

A rebuild is a restore whose request id is that of the repair with a suffix (:mod:`statecore.jobs.repair.run`). A repair
that is run again inspects the directory anew, may rebuild other stores, and has another request id; so it deletes the
staged rebuilds of killed ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from statecore.errors import Invalid
from statecore.jobs.history.directory_changes import UnfinishedChange, unfinished_changes
from statecore.jobs.history.report_head import ReportError, read_report
from statecore.jobs.job_files import DirectoryHome
from statecore.jobs.planning.frozen_plan import ATTEMPT_SUFFIX, PLAN_SUFFIX, load_plan
from statecore.jobs.repair.report import RebuiltStores, RepairedTask
from statecore.jobs.restore.resume import frozen_plan
from statecore.statedir.journal import read_record
from statecore.statedir.work_directory import PLANS

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


def discard_placed(work: Path) -> None:
    """Delete the staging of a restore that was killed after its last swap; ``work`` is ``.statecore``."""
    record = read_record(work)
    if record is None or not record.request_id:
        return
    home = DirectoryHome(work, work, record.request_id)
    frozen = frozen_plan(home)
    placed = {entry.task for entry in (*record.tasks, *record.earlier)}
    if frozen is not None and frozen.plan.plan_id and {part.task for part in frozen.plan.partitions} <= placed:
        home.discard(frozen.plan.plan_id)


def discard_rebuilds(work: Path, job: str, keep: str = "") -> None:
    """Delete the staged rebuilds of killed attempts."""
    killed_requests = {one.attempt.request_id for one in unfinished_changes(work) if one.job == job} - {keep}
    for file in (work / PLANS).glob(f"*{PLAN_SUFFIX}"):
        with suppress(Invalid, OSError):
            frozen = load_plan(file)
            if frozen is None or not frozen.plan.plan_id or frozen.request_id.rpartition("-")[0] not in killed_requests:
                continue
            home = DirectoryHome(work, work, frozen.request_id)
            home.discard(frozen.plan.plan_id)
            for suffix in (ATTEMPT_SUFFIX, PLAN_SUFFIX):
                home.forget(suffix)
