"""Repairs copies of task directories, and swaps them in."""

from __future__ import annotations

from statecore.doctor.checks.context import CheckContext
from statecore.doctor.repair_actions import apply_repairs
from statecore.errors import Corrupted, Retryable
from statecore.jobs.job import Job
from statecore.jobs.repair.plan import PlannedRepair
from statecore.statedir.file_trees import fingerprint
from statecore.statedir.journal_replay import PlacementOutcome
from statecore.statedir.state_directory import StateDirectory
from statecore.statedir.task_copies import TaskCopies


def repair_copies(job: Job, directory: StateDirectory, plan: PlannedRepair) -> str:
    """Repair copies of the tasks and swap them in; returns where the old ones are kept."""
    actions = plan.repairs.actions
    how = CheckContext(job.context.application_id, plan.diagnosis.guarantee, spec=job.context.declared)
    for task in actions:
        if fingerprint(directory.task_path(task)) != plan.fingerprints[task]:
            raise Retryable(
                f"The directory of {task} in {directory.path} has changed since it was inspected.",
                code="task-directory-changed",
                action="Run this again; nothing was changed.",
                task=task,
            )
    request_id = job.context.request.request_id
    with TaskCopies(directory, request_id, job.faults, job.progress, keeps=True) as swap:
        job.progress.phase("repair", len(actions), "tasks")
        for task, of in actions.items():
            apply_repairs(swap.copy(task), of, how, directory)
            job.progress.advance()
        job.progress.done()
        failed = sorted(task for task, outcome in swap.swap(actions).items() if outcome is not PlacementOutcome.PLACED)
        if failed:
            raise Corrupted(
                f"{', '.join(failed)} in {directory.path} are not what they were repaired to.",
                code="repair-unverified",
                action="Check the disk, and what else writes there, then run this again.",
                tasks=failed,
            )
        return str(swap.kept_path)
