"""Restore: rebuild the stores of an application from its changelogs and place them in its state directory.

The phases, and why a kill at any time is harmless::

    lock      the application's .lock, until the end       a running application makes the job refuse to start
    recover   complete or roll back an interrupted job     (statecore.statedir.placement)
    plan      choose bases, then freeze the offsets        nothing was changed before this line
    check     can every worker take part?                  on a cluster only
    read      the engine's workers: ranges → runs          in the staging directory of the plan
    build     the engine's workers: runs → images          ditto; each appears complete or not at all
    publish   manifest and head, with a repository         the workers have uploaded the runs
    place     whole task directories, by journal           by this process alone
    report    written beside the plan, then returned

The phases are in :mod:`statecore.jobs.restore.job`. What concerns only the directory or only the repository is
in their sinks (:mod:`statecore.jobs.restore.sinks`). The same function serves ``statecore restore`` and the Spark job
that Airflow submits, on any engine (:mod:`statecore.jobs.engine`).
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

from statecore.jobs.context import JobContext
from statecore.jobs.engine.protocol import Engine
from statecore.jobs.failures import translated_errors
from statecore.jobs.planning.plan import NotedPlan, ReadPlan
from statecore.jobs.planning.selection import select_stores
from statecore.jobs.read_report import ReadReport
from statecore.jobs.restore.job import RestoreJob
from statecore.jobs.restore.place_sink import PlaceSink
from statecore.jobs.restore.planned_restore import PlanLimit
from statecore.jobs.restore.publish_sink import PublishSink
from statecore.jobs.restore.request import RestoreRequest
from statecore.progress import Progress
from statecore.words import note_line


def run_restore(
    request: RestoreRequest,
    engine: Engine,
    progress: Progress | None = None,
    *,
    limit: PlanLimit | None = None,
    repairs: bool = False,
    **opened: Any,
) -> ReadReport | ReadPlan:
    """Rebuild the stores of a request; with ``request.plan_only`` only the plan is returned.

    Args:
        repairs: whether it is a part of a repair, which keeps the stores that it replaces, and publishes nothing.
    """
    with translated_errors(f"stores were restored in {request.state_dir or request.repository}"):
        context = JobContext.open(request, progress, **opened)
        select_stores(context.spec, request.stores, request.partitions)  # refused before an engine starts
        return restore_in(context, engine, limit, repairs=repairs)


def restore_in(
    context: JobContext[RestoreRequest], engine: Engine, limit: PlanLimit | None = None, *, repairs: bool = False
) -> ReadReport | ReadPlan:
    """Restore under the directory's lock, or only plan, in a context that is already open."""
    if context.request.plan_only:
        return _plan_only(_job(context, engine, limit, repairs=repairs))
    with context.locked("restore.after-lock") if context.state_dir else nullcontext():
        return _job(context, engine, limit, repairs=repairs).run()


def _job(context: JobContext[RestoreRequest], engine: Engine, limit: PlanLimit | None, *, repairs: bool) -> RestoreJob:
    """The restore, with a sink for each place that its stores go to."""
    job = RestoreJob(context, engine, limit)
    if context.has_repository and not repairs:
        job.sinks.append(PublishSink(job, is_only=not context.state_dir))
    if context.state_dir:
        job.sinks.append(PlaceSink(job, keep_replaced=repairs))
    return job


def _plan_only(job: RestoreJob) -> NotedPlan:
    """Plan only, and show what a run would be refused with."""
    context, notes = job.context, []
    context.progress.phase("plan")
    with context.cluster() as cluster:
        planned = job.planner.new(cluster, lambda: job.engine.expected(context.spec))
    context.progress.done()
    for found in (planned.notes, *(sink.preview(planned) for sink in job.sinks)):
        for note in found:
            context.say(note_line(note))
            notes.append(note)
    return NotedPlan.of_plan(planned.plan, notes)
