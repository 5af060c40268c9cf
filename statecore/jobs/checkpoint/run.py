"""Checkpoint: advance the newest snapshot of an application by the tails of its changelogs.

The phases, and why a kill at any time is harmless::

    plan      head and manifests of the newest snapshot; a base for       nothing was published before this line
              each store; then the offsets are frozen
    read      [base end, end) of each changelog → runs, uploaded into the repository under their hashes
    validate  is each tail complete, or read in time?                     else the next base and a new plan; or the
                                                                          whole log is compared with the base
    publish   task manifests of changed tasks, manifest, head             one swap; unchanged tasks are inherited
    compact   if there are many runs                                      a publication of its own
    rebuild   a second checkpoint that rebuilds the stores which the      they are recorded first, for a retry
              compaction found damaged, unless that is not allowed
              (checkpoint.compaction)

Older runs and the files below them are neither read nor moved. If nothing is new, only the time up to which the
snapshot is known to be complete is published now and then: its age decides whether deletes may be missing.

A small tail is read by this process itself, which is faster than starting an engine; the runs are the same.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from statecore.errors import Fenced
from statecore.jobs.bases.base import Key
from statecore.jobs.checkpoint.compaction import (
    compact_after,
    forget_damaged,
    not_rebuilt_note,
    rebuilding_job,
    recorded_damaged,
)
from statecore.jobs.checkpoint.job import CheckpointJob, activity
from statecore.jobs.checkpoint.planner import plan_checkpoint
from statecore.jobs.checkpoint.publish import finish_if_made, publication_of, publish_tails
from statecore.jobs.checkpoint.request import CheckpointRequest, WhenRefused
from statecore.jobs.checkpoint.tails import SMALL_TAIL, read_sound_tails
from statecore.jobs.context import JobContext
from statecore.jobs.engine.protocol import Engine
from statecore.jobs.failures import translated_errors
from statecore.jobs.in_progress_marker import InProgressMarker, marked_in_progress
from statecore.jobs.planning.plan import ReadPlan
from statecore.jobs.read_report import ReadReport
from statecore.progress import Progress


def run_checkpoint(
    request: CheckpointRequest,
    engine: Engine,
    progress: Progress | None = None,
    *,
    small_tail: int = SMALL_TAIL,
    continues_own_plan: bool = False,
    **opened: Any,
) -> ReadReport | ReadPlan:
    """Advance the newest snapshot of an application; with ``request.plan_only`` only the plan is returned."""
    with translated_errors(activity(request)):
        context = JobContext.open(request, progress, **opened)
        job = CheckpointJob(context, engine, small_tail, continues_own_plan=continues_own_plan)
        if not request.plan_only:
            return _advance(job)
        planned = plan_checkpoint(job, publication_of(job))
        job.say_once(planned.note_lines)
        return planned.plan


def _advance(job: CheckpointJob) -> ReadReport:
    with job.attempted(), marked_in_progress(job.repository, job.request.request_id) as marker:
        try:
            report, damaged = _publish_once(job, marker)
        except Fenced as error:
            if not job.plans_again(error):
                raise
            job.forget_plan()
            report, damaged = _publish_once(job, marker)
        return _rebuild_damaged(job, report, damaged)


def _publish_once(job: CheckpointJob, marker: InProgressMarker) -> tuple[ReadReport, Collection[Key]]:
    """Plan, read and publish; the report, and the stores that are damaged in the snapshot.

    Raises ``Fenced`` if what another job has published meanwhile does not fit.
    """
    with job.phase("plan"):
        job.progress.phase("plan")
        publication = publication_of(job)
        if (already := finish_if_made(job, publication, marker)) is not None:
            job.progress.done(already.how)
            return job.report(None, already.notes, already.published), recorded_damaged(job)
        planned = plan_checkpoint(job, publication)
        if planned.is_resumed:
            marker.delete_at_end()
        job.progress.done()
    job.faults.reach("checkpoint.after-plan")
    tails = read_sound_tails(job, publication, planned)
    manifests, published, unchanged = publish_tails(job, publication, tails)
    left = job.forget_plan()
    job.faults.reach("checkpoint.after-publication")
    if published is None:
        return job.report(tails, (*tails.notes, *left), None, unchanged), ()
    compacted = compact_after(job, publication, manifests)
    if publication.newest is not None and _day(published.created_at) != _day(publication.newest.created_at):
        job.home.sweep()  # once a day, because listing costs as much as writing
    return job.report(tails, (*tails.notes, *compacted.notes, *left), published), compacted.damaged


def _rebuild_damaged(job: CheckpointJob, report: ReadReport, damaged: Collection[Key]) -> ReadReport:
    """Rebuild damaged stores by a second checkpoint, if allowed; returns the report of both."""
    if not damaged:
        return report
    if job.request.when_refused == WhenRefused.REFUSE:
        note = not_rebuilt_note(damaged)
        job.say_once([note])
        return replace(report, notes=(*report.notes, note))
    rebuilt = _advance(rebuilding_job(job, damaged))
    if rebuilt.published is not None:
        forget_damaged(job)
    return replace(rebuilt, notes=(*report.notes, *rebuilt.notes))


def _day(made: str) -> str:
    return made[: len("2026-11-23")]
