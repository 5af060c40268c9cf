"""The restore: rebuild stores of one application from its changelogs, and put them where the application finds them.

Order of things, and why a kill at any moment is harmless::

    lock      the application's .lock, until the end       a running application makes the job refuse to start
    recover   finish or clear what a killed job left       (statecore.placement.apply)
    plan      preconditions, then freeze the offsets       nothing was changed before this line
    check     could every worker take part?                on a cluster; nobody is asked on this machine
    read      the engine's workers: ranges → runs          in the staging directory of the plan
    build     the engine's workers: runs → images          ditto; each appears complete or not at all
    publish   manifest and head, where there is a repository; the workers have put the runs there
    place     whole task directories, by journal           by this process alone
    report    written beside the plan, then returned

The same function serves ``statecore restore`` and the Spark job that Airflow submits, on any engine
(:mod:`statecore.jobs.engine`).
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path

from statecore.changelog.cluster import Cluster
from statecore.documents import Document
from statecore.errors import Invalid
from statecore.faults import NO_FAULTS, FaultInjected, FaultPoints
from statecore.jobs.attempt import utc_now
from statecore.jobs.built_here import build_here
from statecore.jobs.engine import Engine, Workers
from statecore.jobs.estimate import DiskNeed
from statecore.jobs.failures import as_statecore_error
from statecore.jobs.frozen_plan import (
    ATTEMPT_SUFFIX,
    FROZEN_PLAN,
    PLAN_SUFFIX,
    REPORT_SUFFIX,
    FrozenPlan,
)
from statecore.jobs.home import DirectoryHome, JobHome, RepositoryHome
from statecore.jobs.image_tasks import ImageResult
from statecore.jobs.job import Job, Surroundings, nobody, spec_of
from statecore.jobs.notes import notes_of
from statecore.jobs.placing import placement_of
from statecore.jobs.plan import RestorePlan
from statecore.jobs.planning import check_unchanged, covers, plan_restore, why_stale
from statecore.jobs.publishing import Made, SnapshotOf, task_parts
from statecore.jobs.range_tasks import ClusterSettings
from statecore.jobs.report import REPORT, RestoreReport
from statecore.jobs.reporting import cpu_of, store_report, work_of
from statecore.jobs.request import RestoreRequest
from statecore.jobs.stages import build_images, publish_rows, read_runs, stores_to_build
from statecore.jobs.staging import staged_names, staging_base
from statecore.jobs.staging_place import StagingPlace
from statecore.placement.apply import PlacementPlan, apply_placement, recover
from statecore.placement.journal import read_record
from statecore.placement.ownership import parse_owner
from statecore.placement.state_directory import StateDirectory, ensure_room
from statecore.progress import NullProgress, Progress
from statecore.repository.publication import Published
from statecore.repository.shelf import Shelf


def run_restore(
    request: RestoreRequest,
    engine: Engine,
    progress: Progress | None = None,
    *,
    faults: FaultPoints | None = None,
    say: Callable[[str], None] | None = None,
) -> RestoreReport | RestorePlan:
    """Rebuild the stores of a request.

    Args:
        request: what to restore, from where, to where.
        engine: who reads and builds.
        progress: told how far it is; ``None`` for nobody.
        faults: points at which tests let the process die.
        say: told what is about to be replaced, before it is; with ``plan_only`` the plan's notes.

    Returns:
        The report; with ``request.plan_only`` the plan, and nothing was changed.

    Raises:
        Invalid, NotFound, Fenced, Capacity, Retryable: as their docs say; nothing was replaced.
        Corrupted: bytes on their way into the stores were not what they must be; nothing was replaced.
        StatecoreError: a defect of this program.
    """
    try:
        return _run_restore(request, progress or NullProgress(), engine, faults or NO_FAULTS, say or nobody)
    except FaultInjected:
        raise
    except Exception as error:
        raise as_statecore_error(error, _doing(request)) from error


def _run_restore(
    request: RestoreRequest, progress: Progress, engine: Engine, faults: FaultPoints, say: Callable[[str], None]
) -> RestoreReport | RestorePlan:
    spec = spec_of(request)
    directory = None
    if request.state_dir:
        directory = StateDirectory(Path(request.state_dir), spec.application_id, request.owner)
    if request.owner is not None:
        parse_owner(request.owner)  # an owner that nobody knows is refused by a plan too
    shelf = None if request.repository is None else Shelf.at(request.repository, spec.application_id)
    if request.plan_only:
        progress.phase("plan")
        with Cluster(spec.bootstrap_servers, spec.kafka, timeout=request.timeout) as cluster:
            plan, notes, disk, *_ = plan_restore(cluster, spec, request, parallelism=lambda: engine.expected(spec))
        progress.done()
        about = () if directory is None else (*_doubts(directory, request, disk), directory.owner_note())
        for note in (*notes, *about):
            say(f"note: {note}")
        return plan
    if directory is None:
        assert shelf is not None  # the request has one of the two
        home: JobHome = RepositoryHome(shelf, request.request_id)
        with engine.start("restore", spec) as workers:
            return _Restore(request, Surroundings(spec, home, progress, faults, say), None, shelf).run(workers)
    owner_note = directory.owner_note()  # before the lock, which makes the directory that would then be its own model
    with directory.lock():
        faults.reach("restore.after-lock")
        say(owner_note)
        home = DirectoryHome(directory.work_path, staging_base(request.staging_dir, directory), request.request_id)
        with engine.start("restore", spec) as workers:
            return _Restore(request, Surroundings(spec, home, progress, faults, say), directory, shelf).run(workers)


class _Restore(Job):
    """One run of a restore: under the application's lock where it has a state directory.

    Args:
        request: what is restored.
        around: see :class:`Job`.
        directory: the application's directory, locked by this process; ``None`` where nothing is placed.
        shelf: where a snapshot is published; ``None`` for nowhere. One of the two there is.
    """

    def __init__(
        self, request: RestoreRequest, around: Surroundings, directory: StateDirectory | None, shelf: Shelf | None
    ) -> None:
        super().__init__(around, request_id=request.request_id, state_dir=request.state_dir, doing=_doing(request))
        self.request, self.directory = request, directory
        self.shelf = shelf
        self.resumes = False
        self.placement = uuid.uuid4().hex

    def run(self, workers: Workers) -> RestoreReport:
        """Restore."""
        with self.attempted():
            return self._run(workers)

    def _run(self, workers: Workers) -> RestoreReport:
        """All steps in order; each is timed under its name."""
        with self.phase("plan"):
            self.progress.phase("plan")
            if self.directory is not None and (recovered := str(recover(self.directory, self.faults))):
                self.say(recovered)
            frozen, why = self._frozen_plan()
            earlier = self._already_placed(frozen)
            if earlier is not None:
                assert self.directory is not None
                self.directory.give_to_owner()  # which the killed attempt may not have come to
                self.home.discard(earlier.plan_id)  # what the killed attempt had staged
                self.progress.done("in place already")
                return earlier
            frozen, notes = self._plan(workers, frozen, why)
            plan = frozen.plan
            snapshot = self._publication(plan)
            done = self._already_published(plan, snapshot)
            if done is not None:
                self.progress.done("published already")
                return done
            self.save(ATTEMPT_SUFFIX, self.attempt.begun())
            self.progress.done()
        self.faults.reach("restore.after-plan")
        self.wait_for(workers, plan.plan_id, lambda: self._shared(workers, plan), self.spec.kafka)
        made = self._read(workers, plan, snapshot)
        self.faults.reach("restore.after-runs")
        images = self._build(workers, plan, made)
        self.faults.reach("restore.after-images")
        published = self._publish(snapshot, frozen, made, images)
        self.faults.reach("restore.after-publication")

        def report(finished: str) -> RestoreReport:
            return replace(self._report(plan, made, images, notes, published), finished=finished)

        if self.directory is not None:
            with self.phase("place"):
                # Before the placement: a retry after a kill finds the stores in place and needs their report.
                self.save(REPORT_SUFFIX, report("").to_json())
                placement = self._placement(plan, self._staging(plan))
                assert placement is not None
                for line in placement.lines:
                    self.say(line)
                apply_placement(placement, self.faults, self.progress, staged=staged_names(self._staging(plan)))
        self.faults.reach("restore.after-placement")
        last = report(utc_now())
        if self._are_apart(workers):
            self._repository_home().discard(plan.plan_id)
            self._repository_home().sweep()
        self.finish(plan.plan_id, last.to_json())  # the one that was saved before differs in its times alone
        return last

    def _frozen_plan(self) -> tuple[FrozenPlan | None, tuple[str, ...]]:
        """The plan of an earlier attempt of this request, or why there is none although there is a file."""
        content = self.home.read(PLAN_SUFFIX)
        try:
            return None if content is None else FROZEN_PLAN.decode(content), ()
        except Invalid as error:
            return None, (f"The plan of an earlier attempt of this request was made anew: {error.what}",)

    def _already_placed(self, frozen: FrozenPlan | None) -> RestoreReport | None:
        """The report of an earlier attempt of this request, while all that it had placed still stands there."""
        found = None if frozen is None else self._report_of(frozen.plan)
        if self.directory is None or frozen is None or found is None or not covers(frozen, self.spec, self.request):
            return None
        record = read_record(self.directory.work_path)
        tasks = {part.task for part in frozen.plan.partitions}
        if record is None or not all(
            record.placed(task, self.directory.task_path(task), self.request.request_id) for task in tasks
        ):
            return None
        report = found.value
        if self.shelf is not None and report.published is None:
            return None  # it was placed before it was to be published
        if not report.finished:  # killed between the last swap and the last word, or placed by an older release
            report = replace(report, finished=utc_now(), **({} if report.started else asdict(self.attempt)))
            self.save(REPORT_SUFFIX, REPORT.rewritten(found, report))
        return replace(report, placed=False)

    def _already_published(self, plan: RestorePlan, snapshot: SnapshotOf | None) -> RestoreReport | None:
        """The report of an earlier attempt of this request that published and had nothing else to do."""
        earlier = None if snapshot is None or self.directory is not None else snapshot.earlier()
        found = None if earlier is None else self._report_of(plan)
        return None if found is None else replace(found.value, published=earlier)

    def _report_of(self, plan: RestorePlan) -> Document[RestoreReport] | None:
        """The saved report of a plan, which is written before anything is placed; not one of an earlier plan."""
        content = self.home.read(REPORT_SUFFIX)
        try:
            found = None if content is None else REPORT.read(content)
        except Invalid:
            return None
        return found if found is not None and found.value.plan_id == plan.plan_id else None

    def _plan(
        self, workers: Workers, frozen: FrozenPlan | None, why: tuple[str, ...]
    ) -> tuple[FrozenPlan, tuple[str, ...]]:
        """The frozen plan of this request, or a new one, frozen now. All refusals are made here."""
        with Cluster(self.spec.bootstrap_servers, self.spec.kafka, timeout=self.request.timeout) as cluster:
            if frozen is not None and covers(frozen, self.spec, self.request):
                stale = self._why_stale(frozen, cluster)
                if stale is None:
                    self.taken_up = True
                    self.resumes = self._report_of(frozen.plan) is not None
                    self.brokers = cluster.brokers()
                    self._placement(frozen.plan)
                    notes = notes_of(cluster, self.spec, frozen.plan, self.request)
                    return frozen, ("The plan of an earlier attempt of this request was taken up.", *notes)
                why = (f"The plan of an earlier attempt of this request was made anew: {stale}.",)
            made_at = time.time()
            plan, notes, disk, *_ = plan_restore(cluster, self.spec, self.request, parallelism=workers.parallelism)
            self._placement(plan)
            room = self._ensure_room(disk)
            self.brokers = cluster.brokers()
        request = self.request
        staging = str(self._staging_base().absolute()) if self.directory is not None else ""
        frozen = FrozenPlan(plan, request.partitions, made_at, request.request_id, staging)
        self.home.save(PLAN_SUFFIX, FROZEN_PLAN.encode(frozen))
        return frozen, (*why, *notes, *room)

    def _why_stale(self, frozen: FrozenPlan, cluster: Cluster) -> str | None:
        topics = cluster.describe_topics(sorted({part.topic for part in frozen.plan.partitions}))
        check_unchanged(frozen.plan, topics)
        offsets = cluster.log_offsets({part.topic_partition for part in frozen.plan.partitions})
        return why_stale(frozen, topics, offsets, time.time())

    def _publication(self, plan: RestorePlan) -> SnapshotOf | None:
        """Begun before anything is read: what others publish from now on is seen, and rights that lack as well."""
        if self.shelf is None:
            return None
        return SnapshotOf(self.shelf, self.spec, self.request, plan, self.faults)

    def _read(self, workers: Workers, plan: RestorePlan, snapshot: SnapshotOf | None) -> Made:
        cluster = ClusterSettings(self.spec.bootstrap_servers, self.spec.kafka, self.request.timeout)
        budget, place = self.request.memory_budget, self._place(workers, plan)
        shelf = None if snapshot is None else snapshot.address
        with self.phase("read"), self.nothing_left_of_the_invalid(plan.plan_id):
            runs = read_runs(workers, plan, cluster, place, budget, self.progress, shelf)
            versions = publish_rows(workers, plan, runs, place, shelf, budget, self.progress)
        return Made(runs, versions)

    def _build(self, workers: Workers, plan: RestorePlan, made: Made) -> dict[tuple[str, str], ImageResult]:
        if self.directory is None:
            return {}
        place, staging, budget = self.home.place(plan.plan_id), self._staging(plan), self.request.memory_budget
        with self.phase("build"):
            if self.shelf is not None and self._are_apart(workers):
                parts = task_parts(plan, made, {})
                return build_here(self.shelf, parts, self.directory, staging, self.spec, budget, self.progress)
            stores = stores_to_build(plan, made.runs)
            return build_images(workers, self.spec.application_id, stores, place, staging, budget, self.progress)

    def _publish(
        self,
        snapshot: SnapshotOf | None,
        frozen: FrozenPlan,
        made: Made,
        images: Mapping[tuple[str, str], ImageResult],
    ) -> Published | None:
        if snapshot is None:
            return None
        with self.phase("publish"):
            self.progress.phase("publish")
            found = snapshot.publish(frozen, made, {key: built.image for key, built in images.items()})
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
        """Where runs are kept: with the images that are built of them, or in the repository alone."""
        if self._are_apart(workers):
            return self._repository_home().place(plan.plan_id)
        return self.home.place(plan.plan_id)

    def _repository_home(self) -> RepositoryHome:
        assert self.shelf is not None
        return RepositoryHome(self.shelf, self.request.request_id)

    def _are_apart(self, workers: Workers) -> bool:
        """Whether the workers share nothing with this machine but the repository: a cluster, unless a staging directory
        that all of them share was named.
        """
        return self.shelf is not None and not self.request.staging_dir and not workers.are_here()

    def _shared(self, workers: Workers, plan: RestorePlan) -> Path | None:
        """The directory that workers have to share with this process."""
        return None if self.directory is None or self._are_apart(workers) else self._staging(plan)

    def _placement(self, plan: RestorePlan, staged: Path | None = None) -> PlacementPlan | None:
        if self.directory is None:
            return None
        return placement_of(plan, staged, self.spec, self.directory, self.request, resumes=self.resumes)

    def _ensure_room(self, disk: DiskNeed) -> list[str]:
        """Refuse when a disk certainly cannot hold what is made, and say where one may not."""
        if self.directory is None:
            return []
        self.directory.ensure_room(disk.least)
        if self.request.staging_dir:
            ensure_room(self._staging_base(), disk.least)
        return _doubts(self.directory, self.request, disk)

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
            notes=(*notes, *(published.warnings if published is not None else ())),
            placement=self.placement if self.directory is not None else "",
            ran_on=self.ran_on,
            repository="" if self.shelf is None else self.shelf.url,
            published=published,
        )


def _doing(request: RestoreRequest) -> str:
    return f"stores were restored in {request.state_dir or request.repository}"


def _doubts(directory: StateDirectory, request: RestoreRequest, disk: DiskNeed) -> list[str]:
    """Which disk may have too little room."""
    elsewhere = [staging_base(request.staging_dir, directory)] if request.staging_dir else []
    return [note for place in (directory.path, *elsewhere) if (note := disk.doubt(place)) is not None]
