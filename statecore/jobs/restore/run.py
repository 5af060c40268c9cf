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

An advance is a restore with the directory itself as base: existing files are linked, and one run is added above them.
Stores that cannot be advanced are refused by name before anything is changed. Versioned, in-memory and unlogged stores
stay as they are.

What concerns only the directory or only the repository is in their sinks (:mod:`statecore.jobs.restore.sinks`). The
same function serves ``statecore restore`` and the Spark job that Airflow submits, on any engine
(:mod:`statecore.jobs.engine.protocol`).
"""

from __future__ import annotations

from collections.abc import Callable

from statecore.errors import NotFound
from statecore.faults import NO_FAULTS, FaultPoints
from statecore.jobs.context import JobContext, ignore
from statecore.jobs.engine.protocol import Engine
from statecore.jobs.failures import translated_errors
from statecore.jobs.planning.plan import NotedPlan, RestorePlan
from statecore.jobs.planning.selection import select_stores, unadvanceable_stores
from statecore.jobs.restore.planned_restore import Until
from statecore.jobs.restore.report import RestoreReport
from statecore.jobs.restore.request import AdvanceRequest, RestoreRequest
from statecore.jobs.restore.restore_job import RestoreJob
from statecore.progress import Progress
from statecore.statedir.state_directory import StateDirectory, application_directory_given


def run_restore(
    request: RestoreRequest,
    engine: Engine,
    progress: Progress | None = None,
    *,
    faults: FaultPoints | None = None,
    say: Callable[[str], None] | None = None,
    until: Until | None = None,
    keeps: bool = False,
    locked: StateDirectory | None = None,
) -> RestoreReport | RestorePlan:
    """Rebuild the stores of a request.

    Returns:
        The report; with ``request.plan_only`` the plan, and nothing was changed.
    """
    with translated_errors(f"stores were restored in {request.state_dir or request.repository}"):
        context = JobContext.open(request, progress, faults=faults, say=say, shared_directory=locked)
        return restored(context, engine, until, keeps=keeps)


def restored(
    context: JobContext[RestoreRequest],
    engine: Engine,
    until: Until | None = None,
    *,
    keeps: bool = False,
) -> RestoreReport | RestorePlan:
    """The restore of an opened context."""
    if context.request.plan_only:
        return _planned(RestoreJob(context, until, keeps=keeps), engine)
    if not context.state_dir:
        return RestoreJob(context, until, keeps=keeps).run(engine)
    with context.locked("restore.after-lock"):
        return RestoreJob(context, until, keeps=keeps).run(engine)


def _planned(job: RestoreJob, engine: Engine) -> NotedPlan:
    """Plan only, and show what a run would be refused with."""
    context, notes = job.context, []
    context.progress.phase("plan")
    with context.cluster() as cluster:
        planned = job.planner.new(cluster, lambda: engine.expected(context.spec))
    context.progress.done()
    for found in (planned.notes, *(sink.preview(planned) for sink in job.sinks)):
        for note in found:
            context.say(f"note: {note}")
            notes.append(note)
    return NotedPlan.of_plan(planned.plan, notes)


def run_advance(
    request: AdvanceRequest,
    engine: Engine,
    progress: Progress | None = None,
    *,
    faults: FaultPoints = NO_FAULTS,
    say: Callable[[str], None] = ignore,
) -> RestoreReport | RestorePlan:
    """Bring the stores of a state directory to the end of their changelogs.

    Returns:
        The report; with ``request.plan_only`` the plan, and nothing was changed.
    """
    with translated_errors(f"stores were advanced in {request.state_dir}"):
        return _advanced(JobContext.open(request, progress, faults=faults, say=say), engine)


def _advanced(context: JobContext[AdvanceRequest], engine: Engine) -> RestoreReport | RestorePlan:
    request, directory = context.request, context.directory
    if directory.is_application_given():
        raise application_directory_given(directory.state_dir)
    if not directory.task_directories() and not directory.stores("global"):
        raise NotFound(
            f"{directory.path} has no task: there is nothing to advance.",
            code="no-tasks",
            action="Check state_dir and the application id, or build the stores (statecore restore, statecore fetch).",
            state_dir=str(directory.state_dir),
        )
    wanted = select_stores(context.spec, request.stores, request.partitions)
    unadvanceable_stores(wanted, request.stores)  # refused before a broker is asked
    return restored(context.with_request(request.restore()), engine)
