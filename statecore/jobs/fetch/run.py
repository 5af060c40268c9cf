"""Fetch: places stores of a repository into a state directory, without Spark, with the placement that every job uses.

Phases, and why a kill at any point is harmless::

    look      head, manifest, task manifests               nothing is changed; "no snapshot" differs from "unreachable"
    lock      the application's .lock, until the end       a running application refuses the fetch
    recover   finish or clean up a killed job              (statecore.statedir.placement)
    plan      tasks; permissions, owners, siblings, space  nothing was changed before this point
    check     the offsets against the live topics          if brokers are given
    download  missing files, by their hashes               they stay until a fetch has finished
    build     runs and base files → images                 in the staging directory of the plan
    place     whole task directories, by journal           by this process alone
    report    written beside those of restores, then returned

**Existing tasks are kept**, with a note: an init container runs at every start, and must neither replace newer state by
older nor fail because there is state. Replacing has to be requested.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace

from statecore.changelog.cluster import Cluster
from statecore.errors import Corrupted, Invalid, NotFound, Retryable, StatecoreError
from statecore.faults import NO_FAULTS, FaultPoints
from statecore.jobs.attempt import utc_now
from statecore.jobs.bases.base import Key
from statecore.jobs.context import JobContext
from statecore.jobs.failures import translated_errors
from statecore.jobs.fetch.build import FetchBuilder
from statecore.jobs.fetch.digests import FetchedContents
from statecore.jobs.fetch.files import FetchedFiles
from statecore.jobs.fetch.plan import FetchPlan, placement_of, plan_fetch, refuse_like_a_run
from statecore.jobs.fetch.report import FETCH_REPORT, FETCH_SUFFIX, FetchReport
from statecore.jobs.fetch.report_stores import NOTHING_DOWNLOADED, fetch_report
from statecore.jobs.fetch.request import FetchRequest
from statecore.jobs.fetch.select import FoundSnapshot, Snapshots
from statecore.jobs.fetch.topic_check import check_topics
from statecore.jobs.job import Job
from statecore.jobs.job_files import home_of
from statecore.jobs.pipeline import staging
from statecore.jobs.pipeline.image_tasks import ImageResult
from statecore.progress import Progress
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.download import DownloadResult
from statecore.spec.model import ApplicationSpec
from statecore.statedir.placement import PlacementPlan, apply_placement, recover


def run_fetch(
    request: FetchRequest,
    progress: Progress | None = None,
    *,
    faults: FaultPoints = NO_FAULTS,
    say: Callable[[str], None] = lambda _: None,
    repository: ApplicationRepository | None = None,
    cluster: Callable[..., Cluster] = Cluster,
) -> FetchReport:
    """Place stores of a repository into a state directory.

    Returns:
        The report; with ``request.plan_only`` the plan, and nothing was changed.
    """
    with translated_errors(_activity(request)):
        try:
            context = JobContext.open(
                request, progress, faults=faults, say=say, connect=cluster, shared_repository=repository
            )
        except NotFound as error:  # it would mean that there is no snapshot
            raise Invalid(error.what, code="spec-missing", action="Name an existing file.", **error.context) from error
        return _run_fetch(context)


def _run_fetch(context: JobContext[FetchRequest]) -> FetchReport:
    context.progress.phase("look")
    snapshots = Snapshots(context.repository, context.request, context.say)
    with _snapshots_exist():
        found = snapshots.first()
        context.progress.done()
        job = _Fetch(context, snapshots, found.spec)
        if context.request.plan_only:
            context.say(context.directory.owner_note())
            context.directory.check_usable()
            return job.plan(found)
        with context.locked("fetch.after-lock"):
            return job.run(found)


@contextmanager
def _snapshots_exist() -> Iterator[None]:
    """Turn ``NotFound`` into ``Retryable`` while existing snapshots are used: it must mean only "no snapshot"."""
    try:
        yield
    except NotFound as error:
        raise Retryable(
            f"Something was deleted during the fetch: {error.what}",
            code="snapshot-deleted",
            action="Find out what deleted it, then run this again.",
            **error.context,
        ) from error


class _Fetch(Job):
    """One attempt of a fetch."""

    report_suffix = FETCH_SUFFIX

    def __init__(self, context: JobContext[FetchRequest], snapshots: Snapshots, newest: ApplicationSpec) -> None:
        request, directory = context.request, context.directory
        super().__init__(context, home_of(context), _activity(request))
        self.request, self.declared, self.snapshots, self.directory = request, context.declared, snapshots, directory
        self.repository, self.spec = context.repository, newest
        self.files = FetchedFiles(directory)
        self.contents = FetchedContents(self.repository)

    def plan(self, found: FoundSnapshot) -> FetchReport:
        """Plan without the lock; nothing is changed."""
        while True:
            try:
                todo = self._todo(found)
                notes = self._check_topics(todo)
            except Invalid as error:
                found = self.snapshots.after(found, error)
                continue
            notes = (*notes, *refuse_like_a_run(self, todo))
            self.contents.look_up(todo.stores)
            at_hand = self.files.at_hand(todo.stores)
            came = self.files.to_come(todo.stores, at_hand.keys())
            return self._report(todo, DownloadResult(came, 0, todo.file_bytes - came, 0), {}, notes)

    def run(self, found: FoundSnapshot) -> FetchReport:
        """Fetch under the lock."""
        if recovered := str(recover(self.directory, self.faults)):
            self.say(recovered)
        while True:
            ended = self._try(found)
            if isinstance(ended, FetchReport):
                return ended
            found = self.snapshots.after(found, ended)

    def _report(
        self, todo: FetchPlan, downloaded: DownloadResult, images: Mapping[Key, ImageResult], notes: Sequence[str]
    ) -> FetchReport:
        return fetch_report(self, self.snapshots, self.contents, todo, downloaded, images, notes)

    def _todo(self, found: FoundSnapshot) -> FetchPlan:
        return plan_fetch(found, self.request, self.directory, self.declared, self.spec)

    def _try(self, found: FoundSnapshot) -> FetchReport | StatecoreError:
        """Fetch one snapshot; or return why it cannot be used, without having changed anything."""
        with self.phase("plan"):
            try:
                todo = self._todo(found)
            except Invalid as error:
                return error
            for note in todo.notes:
                self.say(note)
            placement, resumes = self._dry_placement(todo)
            for note in placement.notes:
                self.say(note)
            todo = replace(todo, notes=(*todo.notes, *placement.notes))
            remaining = todo.without([task.task for task in placement.tasks if task.already_placed])
            if not remaining.stores:
                self.directory.apply_ownership()  # which a killed attempt may have missed
                self.files.drop()
                self.home.discard(todo.plan_id)  # its images
                self._finish_earlier_report()
                return self._report(remaining, NOTHING_DOWNLOADED, {}, ())
            self.contents.look_up(remaining.stores)
            at_hand = self.files.at_hand(remaining.stores)
            self.files.ensure_free_space(remaining.stores, at_hand)
        self.faults.reach("fetch.after-plan")
        try:
            with self.phase("check"):
                notes = self._check_topics(remaining)
        except Invalid as error:
            return error
        work = self.directory.work_path / todo.plan_id
        try:
            came, images = FetchBuilder(self, self.files, self.contents).run(remaining, at_hand, work)
        except Corrupted as error:
            return error
        with self.phase("place"):
            report = self._report(remaining, came, images, notes)
            self.save(FETCH_SUFFIX, replace(report, finished="").to_json())
            final = placement_of(self, todo, work, remaining, resumes=resumes)
            for line in final.lines:
                self.say(line)
            apply_placement(final, self.faults, self.progress, staged=staging.staged_names(self.files.path, work))
        self.faults.reach("fetch.after-placement")
        self.contents.save((store, images[store.key].image.content) for store in remaining.stores)
        report = replace(self._report(remaining, came, images, notes), finished=utc_now())
        self.files.drop()
        self.finish(todo.plan_id, report.to_json())
        return report

    def _dry_placement(self, todo: FetchPlan) -> tuple[PlacementPlan, bool]:
        """The placement without images, and whether an earlier attempt of this request began the same one."""
        resumes = False
        content = self.home.read(FETCH_SUFFIX)
        with suppress(Invalid):
            resumes = content is not None and FETCH_REPORT.decode(content).plan_id == todo.plan_id
        return placement_of(self, todo, None, todo, resumes=resumes), resumes

    def _finish_earlier_report(self) -> None:
        """Write the finish time of a killed attempt whose stores are in place."""
        content = self.home.read(FETCH_SUFFIX)
        with suppress(Invalid):
            if content is not None and not (earlier := FETCH_REPORT.decode(content)).finished:
                self.save(FETCH_SUFFIX, replace(earlier, finished=utc_now()).to_json())

    def _check_topics(self, todo: FetchPlan) -> tuple[str, ...]:
        """Compare the offsets with the live topics if brokers are given; returns notes."""
        if not self.context.bootstrap_servers or not todo.stores:
            return ()
        seen = self.snapshots.horizons_since(todo.found)
        with self.context.cluster() as cluster:
            return tuple(check_topics(cluster, todo.stores, seen, no_doubts=self.snapshots.has_unfit))


def _activity(request: FetchRequest) -> str:
    return f"stores were fetched into {request.state_dir}"
