"""Fetch: places stores of a repository into a state directory, without Spark, with the placement that every job uses.

Phases, and why a kill at any point is harmless::

    inspect   head, manifest, task manifests               nothing is changed; "no snapshot" differs from "unreachable"
    lock      the application's .lock, until the end       a running application refuses the fetch
    recover   finish or clean up a killed job              (statecore.statedir.placement)
    plan      tasks; permissions, owners, siblings, space  nothing was changed before this point
    check     the age; the offsets against the live        the latter if brokers are given
              topics
    download  missing files, by their hashes               they stay until a fetch has finished
    build     runs and base files → images                 in the staging directory of the plan
    place     whole task directories, by journal           by this process alone
    report    written beside those of restores, then returned

**Existing tasks are kept**, with a note: an init container runs at every start, and must neither replace newer state by
older nor fail because there is state. Replacing has to be requested.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from statecore.errors import Invalid, NotFound, StatecoreError
from statecore.jobs.context import JobContext
from statecore.jobs.failures import translated_errors
from statecore.jobs.fetch.age_check import check_age
from statecore.jobs.fetch.build import download_and_build
from statecore.jobs.fetch.job import FetchJob, activity
from statecore.jobs.fetch.placement import check_placement, place, planned_placement
from statecore.jobs.fetch.planner import plan_fetch
from statecore.jobs.fetch.report import FetchReport
from statecore.jobs.fetch.repositories import Repositories
from statecore.jobs.fetch.request import FetchRequest
from statecore.jobs.fetch.select import deleted_is_retryable
from statecore.jobs.fetch.topic_check import check_live_topics
from statecore.progress import Progress
from statecore.statedir.placement import recover


def run_fetch(request: FetchRequest, progress: Progress | None = None, **opened: Any) -> FetchReport:
    """Place stores of a repository into a state directory; with ``request.plan_only`` the report is the plan."""
    with translated_errors(activity(request)):
        try:
            context = JobContext.open(request, progress, **opened)
        except NotFound as error:  # it would mean that there is no snapshot
            raise Invalid(error.what, code="spec-missing", action="Name an existing file.", **error.context) from error
        context.progress.phase("inspect")
        repositories = Repositories(context)
        with deleted_is_retryable():
            context.progress.done()
            job = FetchJob(context, repositories)
            if request.plan_only:
                context.say(context.directory.owner_note())
                context.directory.check_usable()
                return _plan(job)
            with context.locked("fetch.after-lock"):
                recover(job.directory, job.faults, job.say)
                while (report := _fetch(job)) is None:
                    continue
                return report


def _plan(job: FetchJob) -> FetchReport:
    """Plan without the lock; nothing is changed."""
    while True:
        try:
            plan = plan_fetch(job.found, job.request, job.directory, job.declared, job.spec)
            notes = (*check_age(job, plan), *check_live_topics(job, plan))
        except Invalid as error:
            job.skip(error)
            continue
        notes = (*notes, *check_placement(job, plan))
        try:
            expected = job.files.expected_download(job.repository, plan.stores)
        except StatecoreError as error:
            job.skip_unreadable(error)
            continue
        job.contents.look_up(plan.stores)
        return job.report(plan, expected, notes=notes)


def _fetch(job: FetchJob) -> FetchReport | None:
    """Fetch one snapshot; ``None`` if it cannot be used and another one is selected. Nothing is placed then."""
    with job.phase("plan"):
        try:
            plan = plan_fetch(job.found, job.request, job.directory, job.declared, job.spec)
        except Invalid as error:
            job.skip(error)
            return None
        for note in plan.notes:
            job.say(note)
        resumes = job.has_begun(plan)
        placement = planned_placement(job, plan, resumes=resumes)
        for note in placement.notes:
            job.say(note)
        plan = replace(plan, notes=(*plan.notes, *placement.notes))
        remaining = plan.without([task.task for task in placement.tasks if task.already_placed])
        if not remaining.stores:
            job.directory.apply_ownership()  # which a killed attempt may have missed
            job.files.drop()
            job.home.discard(plan.plan_id)  # its images
            job.finish_earlier_report()
            return job.report(remaining)
        job.contents.look_up(remaining.stores)
        at_hand = job.files.at_hand(remaining.stores)
        job.files.ensure_free_space(remaining.stores, at_hand)
    job.faults.reach("fetch.after-plan")
    try:
        with job.phase("check"):
            notes = (*check_age(job, remaining), *check_live_topics(job, remaining))
    except Invalid as error:
        job.skip(error)
        return None
    work = job.directory.work_path / plan.plan_id
    try:
        downloaded, images = download_and_build(job, remaining, at_hand, work)
    except StatecoreError as error:
        job.skip_unreadable(error)
        return None
    with job.phase("place"):
        job.save_report(job.report(remaining, downloaded, images, notes))
        place(job, plan, remaining, work, resumes=resumes)
    job.faults.reach("fetch.after-placement")
    job.contents.save((store, images[store.key].image.content) for store in remaining.stores)
    report = job.report(remaining, downloaded, images, notes, finished=True)
    job.files.drop()
    job.finish(plan.plan_id, report.to_json())
    return report
