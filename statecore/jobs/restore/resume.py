"""Resume a restore: what an earlier attempt has placed or published without reporting it."""

from __future__ import annotations

from dataclasses import asdict, replace

from statecore.documents import Document
from statecore.errors import Invalid
from statecore.jobs.attempt import Attempt
from statecore.jobs.bases.base import DIRECTORY
from statecore.jobs.job_home import JobHome
from statecore.jobs.planning.frozen_plan import REPORT_SUFFIX, FrozenPlan
from statecore.jobs.planning.plan import PlanRequest, ReadPlan
from statecore.jobs.planning.planned_tails import covers
from statecore.jobs.read_report import REPORT, ReadReport
from statecore.spec.model import ApplicationSpec
from statecore.statedir.journal import read_record
from statecore.statedir.state_directory import StateDirectory
from statecore.words import WARNING

NOT_PUBLISHED = f"{WARNING}Nothing was published, because others were first"
"""Prefix of a report's note that nothing was published."""


def frozen_plan(home: JobHome) -> FrozenPlan | None:
    """The readable frozen plan of an earlier attempt of the request, if any."""
    try:
        return home.read_plan()
    except Invalid:
        return None


def answered_plan(home: JobHome, spec: ApplicationSpec, request: PlanRequest) -> FrozenPlan | None:
    """The frozen plan of an earlier attempt, if it still answers the request."""
    found = frozen_plan(home)
    return found if found is not None and covers(found, spec, request) else None


def report_of(home: JobHome, plan: ReadPlan) -> Document[ReadReport] | None:
    """The saved report of this very plan, which is written before anything is placed."""
    content = home.read(REPORT_SUFFIX)
    try:
        found = None if content is None else REPORT.read(content)
    except Invalid:
        return None
    return found if found is not None and found.value.plan_id == plan.plan_id else None


def placed_report(
    home: JobHome, directory: StateDirectory, frozen: FrozenPlan, attempt: Attempt
) -> tuple[ReadReport, dict[str, object] | None] | None:
    """Report of an earlier attempt, if all it placed is still there; and a document to save if it lacks its end."""
    found = report_of(home, frozen.plan)
    if found is None:
        return None
    record = read_record(directory.work_path)
    tasks = {part.task for part in frozen.plan.partitions}
    if record is None or not all(
        record.placed(task, directory.task_path(task), attempt.request_id, frozen.plan.plan_id) for task in tasks
    ):
        return None
    report = found.value
    if report.finished:
        return replace(report, placed=False), None
    # Killed between the last swap and the final report, or placed by an older release.
    report = replace(report.finish(), **({} if report.started else asdict(attempt)))
    return replace(report, placed=False), dict(REPORT.rewritten(found, report))


def is_published(report: ReadReport, plan: ReadPlan) -> bool:
    """Whether nothing that was placed remains to be published; stores based on the state directory never are."""
    if report.published is not None or all(part.base == DIRECTORY for part in plan.partitions):
        return True
    return is_not_published(report)


def is_not_published(report: ReadReport) -> bool:
    """Whether others were first, and nothing remains to be published."""
    return any(note.startswith(NOT_PUBLISHED) for note in report.notes)
