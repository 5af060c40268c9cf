"""Recoveries of global stores: parameters and entries of a run, and short plans.

The counterpart of :mod:`~.migration_runs` and :mod:`~.plans`, with the same entries and short plans.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from airflow.sdk import Param

from statecore.airflow.directory_change.migration_runs import (
    DIRECTORIES,
    WITHOUT,
    approval_params,
    directories_param,
    entries_of,
)
from statecore.airflow.directory_change.plans import bounded, cell, code, details
from statecore.airflow.directory_change.xcom_values import Entry, Plans, ShortPlan
from statecore.airflow.form import params_of
from statecore.airflow.requests import check_names
from statecore.formats.releases import CURRENT, GLOBAL
from statecore.jobs.migrate.summary import CombinedChange
from statecore.jobs.recover_global.request import RecoverGlobalRequest
from statecore.jobs.repair.report import RepairReport


class RecoveryPlan(ShortPlan):
    """The short report of a recovery.

    Attributes:
        doubts: number of doubts that a person has to review before the plan is applied.
    """

    doubts: int


def recovery_params(state_dir: str | None) -> dict[str, Param]:
    """The Params of the form; ``state_dir`` is the default of a directory."""
    return {
        DIRECTORIES: directories_param(RecoverGlobalRequest, state_dir, ("spec_path",)),
        **params_of(RecoverGlobalRequest, without=WITHOUT),
        **approval_params(),
    }


def recovery_entries(params: Mapping[str, Any], state_dir: str | None = None) -> list[Entry]:
    """One entry for each state directory, in the order of the parameter.

    Args:
        params: the parameters of the run.
        state_dir: default of a directory's ``state_dir``.

    Raises:
        Invalid: as :func:`statecore.airflow.directory_change.migration_runs.migrate_entries`.
    """
    check_names(params, RecoverGlobalRequest, WITHOUT, ("approve", "approve_within"), of=DIRECTORIES)
    return entries_of(RecoverGlobalRequest, params, "recover-global", state_dir=state_dir)


def recovery_path(report_file: Path) -> Path:
    """Path of a recovery's report for the report path of a restore."""
    return report_file.parent / "recoveries" / report_file.name


def short(report: RepairReport) -> RecoveryPlan:
    """A report for XCom, of bounded size."""
    rebuilt = [
        CombinedChange(one.tasks, f"rebuilt from {one.sources}" + _rows(one.rows), store)
        for one in report.rebuilt
        for store in one.stores
    ]
    repaired = [CombinedChange((task.task,), step) for task in report.mended for step in task.steps]
    doubts = [CombinedChange(one.tasks, f"To be reviewed: {doubt}") for one in report.rebuilt for doubt in one.doubts]
    starts = [
        CombinedChange(
            (GLOBAL,), f"{one.store}: next start without recovery: {one.start}. {' '.join(one.why)}".rstrip()
        )
        for one in report.next_starts
    ]
    left = [CombinedChange((str(one.get("task") or GLOBAL),), str(one["what"])) for one in report.left]
    return {
        "application_id": report.application_id,
        "state_dir": report.state_dir,
        "host": report.host,
        "to": CURRENT.name,
        "outcome": str(report.outcome),
        "plan_id": report.plan_id,
        "kept": ", ".join(filter(None, [report.kept, *(one.kept for one in report.rebuilt)])),
        "seconds": report.seconds,
        "phases": dict(report.phases),
        "seen": [],
        "tasks": 1,
        "changed": int(bool(rebuilt or repaired)),
        "rewritten_bytes": 0,
        "done": bounded([*repaired, *rebuilt]),
        "left": bounded(left),
        "notes": bounded([*doubts, *starts, *(CombinedChange((GLOBAL,), note) for note in report.notes)]),
        "doubts": len(doubts),
    }


def _rows(rows: int | None) -> str:
    return "" if rows is None else f": {rows:,} rows"


def body(plans: Plans) -> str:
    """The Markdown that is shown for approval."""
    shown = [(entry, plan) for entry, plan in plans if plan is not None and plan["changed"]]
    lines = [
        "If you approve, global stores of these state directories are rebuilt from their topics, and the replaced "
        "files are kept for a week. "
        "Nothing has been changed yet; keep the applications stopped until this run has ended.",
        "",
        "| application | state directory | stores | plan |",
        "|---|---|---|---|",
    ]
    lines += [_overview(entry, plan) for entry, plan in plans]
    return "\n".join([*lines, *details(shown)])


def _overview(entry: Entry, plan: ShortPlan | None) -> str:
    where = code(entry["request"]["state_dir"]) + (f" on {cell(entry['host'])}" if entry["host"] else "")
    begin = f"| {cell(entry['application_id'])} | {where} |"
    if plan is None:
        return f"{begin} not included: its task *plan* failed, see its log |  |"
    if not plan["changed"]:
        return f"{begin} none: its global stores are valid, or recover by themselves |  |"
    named = ", ".join(dict.fromkeys(row["store"] or "files of global" for row in plan["done"]["rows"]))
    return f"{begin} {cell(named)} | {code(plan['plan_id'])} |"
