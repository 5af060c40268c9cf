"""Restore: rebuild the stores of an application from its changelogs and place them in its state directory.

The phases, and why a kill at any time is harmless::

    lock      the application's .lock, until the end       a running application makes the job refuse to start
    recover   complete or roll back an interrupted job     (statecore.statedir.apply)
    plan      choose bases, then freeze the offsets        nothing was changed before this line
    check     can every worker take part?                  on a cluster only
    read      the engine's workers: ranges → runs          in the staging directory of the plan
    build     the engine's workers: runs → images          ditto; each appears complete or not at all
    publish   manifest and head, with a repository         the workers have uploaded the runs
    place     whole task directories, by journal           by this process alone
    report    written beside the plan, then returned

The same function serves ``statecore restore`` and the Spark job that Airflow submits, on any engine
(:mod:`statecore.jobs.engine`).
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import asdict, replace
from pathlib import Path

from statecore.changelog.cluster import Cluster
from statecore.discover.contradicted_kinds import contradiction_error
from statecore.errors import Corrupted, Fenced, Reason
from statecore.faults import NO_FAULTS, FaultInjected, FaultPoints
from statecore.jobs.attempt import utc_now
from statecore.jobs.bases.base import DAMAGED, Key
from statecore.jobs.bases.tail_check import found_unsound
from statecore.jobs.engine import Engine, Workers
from statecore.jobs.failures import as_statecore_error
from statecore.jobs.in_progress_marker import marked_in_progress
from statecore.jobs.job import Job, JobContext, nobody, spec_of
from statecore.jobs.job_files import DirectoryHome, JobHome, RepositoryHome
from statecore.jobs.pipeline.image_tasks import ImageResult
from statecore.jobs.pipeline.publish import Made, SnapshotOf, task_manifests
from statecore.jobs.pipeline.range_tasks import ClusterSettings
from statecore.jobs.pipeline.run_sink import ApplicationAddress
from statecore.jobs.pipeline.stages import build_images, publish_rows, read_runs, stores_to_build
from statecore.jobs.pipeline.staging import staged_names, staging_base
from statecore.jobs.pipeline.staging_place import StagingPlace
from statecore.jobs.planning.disk_estimate import disk_warnings, ensured_room
from statecore.jobs.planning.frozen_plan import ATTEMPT_SUFFIX, FROZEN_PLAN, PLAN_SUFFIX, REPORT_SUFFIX
from statecore.jobs.planning.plan import NotedPlan, RestorePlan
from statecore.jobs.planning.planner import covers
from statecore.jobs.restore.base_candidates import RestoreCandidates
from statecore.jobs.restore.local_build import build_locally
from statecore.jobs.restore.placement_request import placement_notes_of, placement_of
from statecore.jobs.restore.plan_with_bases import PlannedRestoreOf, Until, check_plan, new_plan, resumed_plan
from statecore.jobs.restore.report import RestoreReport
from statecore.jobs.restore.report_stores import cpu_of, store_report, work_of
from statecore.jobs.restore.request import RestoreRequest
from statecore.jobs.restore.resume import NOT_PUBLISHED, frozen_plan, is_published, placed_report, report_of
from statecore.progress import NullProgress, Progress
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.publication import Published
from statecore.statedir.apply import PlacementPlan, apply_placement, recover
from statecore.statedir.file_ownership import parse_owner
from statecore.statedir.state_directory import StateDirectory


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
    try:
        return _run_restore(
            request, progress or NullProgress(), engine, faults or NO_FAULTS, say or nobody, until, keeps, locked
        )
    except FaultInjected:
        raise
    except Exception as error:
        raise as_statecore_error(error, _doing(request)) from error


def _run_restore(
    request: RestoreRequest,
    progress: Progress,
    engine: Engine,
    faults: FaultPoints,
    say: Callable[[str], None],
    until: Until | None,
    keeps: bool,
    locked: StateDirectory | None,
) -> RestoreReport | RestorePlan:
    spec = spec_of(request)
    directory = locked
    if request.state_dir and locked is None:
        directory = StateDirectory(Path(request.state_dir), spec.application_id, request.owner)
    if request.owner is not None:
        parse_owner(request.owner)  # refuses an unknown owner, also for a plan only
    repository = (
        None if request.repository is None else ApplicationRepository.open(request.repository, spec.application_id)
    )
    if request.plan_only:
        progress.phase("plan")
        with Cluster(spec.bootstrap_servers, spec.kafka, timeout=request.timeout) as cluster:
            candidates = RestoreCandidates(request, spec, directory, repository, {})
            planned = new_plan(cluster, spec, request, candidates, lambda: engine.expected(spec), until=until)
        progress.done()
        room = [] if directory is None else placement_notes_of(planned.plan, spec, directory, planned.here)
        if directory is not None and planned.disk is not None:
            room += disk_warnings(directory, request.staging_dir, planned.disk)
        notes = [*planned.notes, *room, *([] if directory is None else [directory.owner_note()])]
        for note in notes:
            say(f"note: {note}")
        doubts_of_plan = check_plan(planned, request, directory, spec)
        for note in doubts_of_plan:
            say(f"note: {note}")
        return NotedPlan.of_plan(planned.plan, [*notes, *doubts_of_plan])
    if directory is None:
        assert repository is not None  # the request has one of the two
        home: JobHome = RepositoryHome(repository, request.request_id)
        with engine.start("restore", spec) as workers:
            around = JobContext(spec, home, progress, faults, say)
            return _Restore(request, around, None, repository, until, keeps).run(workers)
    owner_note = directory.owner_note()  # before the lock, which creates the directory whose owner is taken
    with directory.lock() if locked is None else nullcontext():
        faults.reach("restore.after-lock")
        say(owner_note)
        home = DirectoryHome(directory.work_path, staging_base(request.staging_dir, directory), request.request_id)
        with engine.start("restore", spec) as workers:
            around = JobContext(spec, home, progress, faults, say)
            return _Restore(request, around, directory, repository, until, keeps).run(workers)


class _Restore(Job):
    """One attempt of a restore; a directory to place into, a repository to publish to, or both."""

    def __init__(
        self,
        request: RestoreRequest,
        around: JobContext,
        directory: StateDirectory | None,
        repository: ApplicationRepository | None,
        until: Until | None,
        keeps: bool,
    ) -> None:
        super().__init__(around, request_id=request.request_id, state_dir=request.state_dir, doing=_doing(request))
        self.request, self.directory = request, directory
        self.repository, self.until, self.keeps = repository, until, keeps
        self.resumes = False
        self.placement = uuid.uuid4().hex
        self.refused: dict[tuple[Key, str], Reason] = {}
        self.withheld = ""

    def run(self, workers: Workers) -> RestoreReport:
        """Restore, while the in-progress marker makes scheduled checkpoints wait:

        a restore cannot be rebased on theirs.
        """
        with (
            self.attempted(),
            nullcontext() if self.repository is None else marked_in_progress(self.repository, at_once=True),
        ):
            return self._run(workers)

    def _run(self, workers: Workers) -> RestoreReport:
        """All phases in order."""
        with self.phase("plan"):
            self.progress.phase("plan")
            if self.directory is not None and (recovered := str(recover(self.directory, self.faults))):
                self.say(recovered)
            earlier = self._already_placed()
            if earlier is not None:
                assert self.directory is not None
                self.directory.apply_ownership()  # the killed attempt may not have got there
                self.home.discard(earlier.plan_id)  # staged by the killed attempt
                self.progress.done("already in place")
                return earlier
            planned = self._plan(workers)
            snapshot = self._publication(planned)
            done = self._already_published(planned.plan, snapshot)
            if done is not None:
                self.progress.done("already published")
                return done
            self.save(ATTEMPT_SUFFIX, self.attempt.begun())
            self.progress.done()
        self.faults.reach("restore.after-plan")
        self.wait_for(workers, planned.plan.plan_id, lambda: self._shared(workers, planned.plan), self.spec.kafka)
        while True:  # each round refuses at least one more base; without a base the whole changelog is read
            made = self._read(workers, planned, snapshot)
            if not self._refuses(planned, made):
                self.faults.reach("restore.after-runs")
                images = self._built(workers, planned, made)
                if images is not None:
                    break
            with self.phase("plan again"):
                self.home.discard(planned.plan.plan_id)
                planned = self._new_plan(workers, ())
                snapshot = self._publication(planned)
        plan, notes = planned.plan, planned.notes
        self.faults.reach("restore.after-images")
        published = self._publish(snapshot, planned, made, images)
        self.faults.reach("restore.after-publication")

        def report(finished: str) -> RestoreReport:
            return replace(self._report(plan, made, images, notes, published), finished=finished)

        if self.directory is not None:
            with self.phase("place"):
                # Saved before the placement: a retry after a kill finds the stores in place and needs their report.
                self.save(REPORT_SUFFIX, report("").to_json())
                placement = self._placement(planned, self._staging(plan))
                assert placement is not None
                for line in placement.lines:
                    self.say(line)
                staged = staged_names(self._staging(plan))
                apply_placement(placement, self.faults, self.progress, staged=staged, keeps=self.keeps)
        self.faults.reach("restore.after-placement")
        last = report(utc_now())
        if self._are_apart(workers):
            self._repository_home().discard(plan.plan_id)
            self._repository_home().sweep()
        self.finish(plan.plan_id, last.to_json())  # differs from the one saved before only in its times
        return last

    def _already_placed(self) -> RestoreReport | None:
        """Report of an earlier attempt of this request, if everything it placed is still there."""
        frozen = frozen_plan(self.home)
        if self.directory is None or frozen is None or not covers(frozen, self.spec, self.request):
            return None
        found = placed_report(self.home, self.directory, frozen, self.attempt)
        if found is None or (self.repository is not None and not is_published(found[0], frozen.plan)):
            return None  # placed by an attempt that was not asked to publish
        report, corrected = found
        if corrected is not None:
            self.save(REPORT_SUFFIX, corrected)
        return report

    def _already_published(self, plan: RestorePlan, snapshot: SnapshotOf | None) -> RestoreReport | None:
        """Report of an earlier attempt of this request that published and had nothing to place."""
        earlier = None if snapshot is None or self.directory is not None else snapshot.earlier()
        found = None if earlier is None else report_of(self.home, plan)
        return None if found is None else replace(found.value, published=earlier)

    def _plan(self, workers: Workers) -> PlannedRestoreOf:
        """The frozen plan of this request, or a new one. All refusals happen here."""
        with self._cluster() as cluster:
            found = resumed_plan(cluster, self.spec, self.request, self._candidates(), self.home)
            if isinstance(found, PlannedRestoreOf):
                self.is_resumed = True
                self.resumes = report_of(self.home, found.plan) is not None
                self.brokers = cluster.brokers()
                placement = self._placement(found)
                return found if placement is None else replace(found, notes=(*found.notes, *placement.notes))
        why = () if found is None else (f"The plan of an earlier attempt of this request was recreated: {found}",)
        return self._new_plan(workers, why)

    def _new_plan(self, workers: Workers, why: tuple[str, ...]) -> PlannedRestoreOf:
        staging = str(self._staging_base().absolute()) if self.directory is not None else ""
        with self._cluster() as cluster:
            candidates, until = self._candidates(), self.until
            planned = new_plan(cluster, self.spec, self.request, candidates, workers.parallelism, staging, until)
            placement = self._placement(planned)
            notes = [] if placement is None else placement.notes
            if self.directory is not None and planned.disk is not None:
                notes += ensured_room(self.directory, self.request.staging_dir, planned.disk)
            self.brokers = cluster.brokers()
        self.home.save(PLAN_SUFFIX, FROZEN_PLAN.encode(planned.frozen))
        return replace(planned, notes=(*why, *planned.notes, *notes))

    def _cluster(self) -> Cluster:
        return Cluster(self.spec.bootstrap_servers, self.spec.kafka, timeout=self.request.timeout)

    def _candidates(self) -> RestoreCandidates:
        return RestoreCandidates(self.request, self.spec, self.directory, self.repository, self.refused)

    def _refuses(self, planned: PlannedRestoreOf, made: Made) -> bool:
        """Whether a base turned out unsound when its tail was read; it is not tried again."""
        if not planned.bases:
            return False
        with self._cluster() as cluster:
            found = found_unsound(planned.plan, planned.bases, made.runs, planned.topics, cluster)
        self.refused |= found.permanent
        for one in found.refused:
            self.say(str(one))
        return bool(found.refused)

    def _publication(self, planned: PlannedRestoreOf) -> SnapshotOf | None:
        """Begin the publication before anything is read, so that conflicts and missing permissions are noticed."""
        if self.repository is None or not planned.published.partitions:
            return None
        return SnapshotOf(self.repository, self.spec, self.request, planned.plan, self.faults)

    def _read(self, workers: Workers, planned: PlannedRestoreOf, snapshot: SnapshotOf | None) -> Made:
        cluster = ClusterSettings(self.spec.bootstrap_servers, self.spec.kafka, self.request.timeout)
        plan, budget, place = planned.plan, self.request.memory_budget, self._place(workers, planned.plan)
        repository = None if snapshot is None and not self._are_apart(workers) else self._address()
        with self.phase("read"), self.discarding_invalid(plan.plan_id):
            runs = read_runs(workers, plan, cluster, place, budget, self.progress, repository, planned.bases)
            versions = publish_rows(workers, plan, runs, place, repository, budget, self.progress)
        return Made(runs, versions)

    def _address(self) -> ApplicationAddress | None:
        return (
            None if self.repository is None else ApplicationAddress(self.repository.url, self.repository.application_id)
        )

    def _built(
        self, workers: Workers, planned: PlannedRestoreOf, made: Made
    ) -> dict[tuple[str, str], ImageResult] | None:
        """Build all images; ``None`` if files of base snapshots are damaged, after refusing these bases."""
        try:
            return self._build(workers, planned, made)
        except Corrupted as error:
            snapshot_bases = {key: base for key, base in planned.bases.items() if key not in planned.here}
            if not snapshot_bases:
                raise
            # The error does not say which base is damaged, so all of them are refused.
            for key, base in sorted(snapshot_bases.items()):
                self.refused[key, base.name] = Reason(f"{DAMAGED}: {error.what}", error.code, **error.context)
            names = ", ".join(sorted({one.name for one in snapshot_bases.values()}))
            self.say(f"warning: Not used as base: {names}. {error.what}")
            return None

    def _build(self, workers: Workers, planned: PlannedRestoreOf, made: Made) -> dict[tuple[str, str], ImageResult]:
        if self.directory is None:
            return {}
        plan, budget = planned.plan, self.request.memory_budget
        place, staging = self.home.place(plan.plan_id), self._staging(plan)
        brought = set(plan.stores) if self._are_apart(workers) else planned.bases.keys() - planned.here
        images: dict[tuple[str, str], ImageResult] = {}
        with self.phase("build"):
            if brought:
                assert self.repository is not None  # bases that are not in the directory come from it
                parts = task_manifests(plan.of(brought), made, {}, bases=planned.bases)
                directories = {key: planned.bases[key].bases for key in planned.here & brought}
                images |= build_locally(
                    self.repository, parts, self.directory, staging, self.spec, budget, self.progress, directories
                )
            stores = stores_to_build(plan.of(plan.stores.keys() - brought), made.runs, planned.bases)
            if stores:
                application_id = self.spec.application_id
                images |= build_images(workers, application_id, stores, place, staging, budget, self.progress)
        return images

    def _publish(
        self,
        snapshot: SnapshotOf | None,
        planned: PlannedRestoreOf,
        made: Made,
        images: Mapping[tuple[str, str], ImageResult],
    ) -> Published | None:
        if snapshot is None:
            return None
        with self.phase("publish"):
            self.progress.phase("publish")
            try:
                found = snapshot.publish(planned, made, {key: built.image for key, built in images.items()})
            except Fenced as error:
                if self.directory is None:
                    raise
                # A checkpoint published first; the stores that were built are still good.
                self.progress.done("nothing")
                self.withheld = f"{NOT_PUBLISHED}: {error.what}"
                self.say(f"warning: {self.withheld}")
                return None
            self.progress.done(found.snapshot)
        self.say(f"Published snapshot {found.snapshot} of {self.spec.application_id} in {snapshot.address.url}.")
        for warning in found.warnings:
            self.say(f"warning: {warning}")
        return found

    def _staging_base(self) -> Path:
        assert self.directory is not None
        return staging_base(self.request.staging_dir, self.directory)

    def _staging(self, plan: RestorePlan) -> Path:
        return self._staging_base() / plan.plan_id

    def _place(self, workers: Workers, plan: RestorePlan) -> StagingPlace:
        """Where runs are kept: with the images that are built of them, or in the repository only."""
        if self._are_apart(workers):
            return self._repository_home().place(plan.plan_id)
        return self.home.place(plan.plan_id)

    def _repository_home(self) -> RepositoryHome:
        assert self.repository is not None
        return RepositoryHome(self.repository, self.request.request_id)

    def _are_apart(self, workers: Workers) -> bool:
        """Whether workers share only the repository with this machine: a cluster without a shared staging directory."""
        return self.repository is not None and not self.request.staging_dir and not workers.are_here()

    def _shared(self, workers: Workers, plan: RestorePlan) -> Path | None:
        """The directory that workers have to share with this process."""
        return None if self.directory is None or self._are_apart(workers) else self._staging(plan)

    def _placement(self, planned: PlannedRestoreOf, staged: Path | None = None) -> PlacementPlan | None:
        if self.directory is None:
            return None
        plan, request = planned.plan, self.request
        if staged is None:
            decided = plan.stores if self.keeps else ()  # the caller replaces stores of another kind on purpose
            if (refusal := contradiction_error(self.directory, self.spec, plan.tasks, decided)) is not None:
                raise refusal
        return placement_of(plan, staged, self.spec, self.directory, request, planned.here, resumes=self.resumes)

    def _report(
        self,
        plan: RestorePlan,
        made: Made,
        images: Mapping[tuple[str, str], ImageResult],
        notes: tuple[str, ...],
        published: Published | None,
    ) -> RestoreReport:
        stores = [
            store_report(parts, made.runs.get(key, ()), images.get(key), made.versions.get(key))
            for key, parts in sorted(plan.stores.items())
        ]
        return RestoreReport(
            **asdict(self.attempt),
            plan_id=plan.plan_id,
            processing_guarantee=str(plan.processing_guarantee),
            seconds=time.monotonic() - self.began,
            phases=dict(self.phases),
            stores=tuple(stores),
            work=work_of(made.runs, images),
            cpu={**cpu_of(made.runs, images), "place": round(self.cpu.get("place", 0.0), 3)},
            notes=(*notes, *((self.withheld,) if self.withheld else ()), *(published.warnings if published else ())),
            placement=self.placement if self.directory is not None else "",
            ran_on=self.ran_on,
            repository="" if self.repository is None else self.repository.url,
            published=published,
        )


def _doing(request: RestoreRequest) -> str:
    return f"stores were restored in {request.state_dir or request.repository}"
