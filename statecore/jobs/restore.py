"""The restore: rebuild stores of one application from its changelogs, and put them where the application finds them.

Order of things, and why a kill at any moment is harmless::

    lock      the application's .lock, until the end       a running application makes the job refuse to start
    recover   finish or clear what a killed job left       (statecore.placement.apply)
    plan      preconditions, then freeze the offsets       nothing was changed before this line
    check     could every worker take part?                on a cluster; nobody is asked on this machine
    read      the engine's workers: ranges → runs          in the staging directory of the plan
    build     the engine's workers: runs → images          ditto; each appears complete or not at all
    place     whole task directories, by journal           by this process alone
    report    written beside the plan, then returned

The same function serves ``statecore restore`` and the Spark job that Airflow submits, on any engine
(:mod:`statecore.jobs.engine`).
"""

from __future__ import annotations

import shutil
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from statecore.changelog.cluster import Cluster
from statecore.documents import Document
from statecore.errors import Invalid
from statecore.faults import NO_FAULTS, FaultInjected, FaultPoints
from statecore.jobs.attempt import utc_now
from statecore.jobs.engine import Engine, Workers
from statecore.jobs.estimate import DiskNeed
from statecore.jobs.failures import as_statecore_error
from statecore.jobs.frozen_plan import FrozenPlan, load_plan, save_plan
from statecore.jobs.image_tasks import ImageResult
from statecore.jobs.job import Job, Surroundings, spec_of
from statecore.jobs.notes import notes_of
from statecore.jobs.placing import placement_of
from statecore.jobs.plan import RestorePlan
from statecore.jobs.planning import check_unchanged, covers, plan_restore, why_stale
from statecore.jobs.range_tasks import ClusterSettings, RangeResult
from statecore.jobs.report import REPORT, RestoreReport
from statecore.jobs.reporting import cpu_of, store_report, work_of
from statecore.jobs.request import RestoreRequest
from statecore.jobs.stages import build_images, read_runs, stores_to_build
from statecore.jobs.staging import staging_base
from statecore.jobs.staging_place import DirectoryPlace
from statecore.placement.apply import PlacementPlan, RecoveryReport, apply_placement, recover
from statecore.placement.journal import read_record
from statecore.placement.ownership import parse_owner
from statecore.placement.state_directory import StateDirectory, ensure_room
from statecore.progress import NullProgress, Progress


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
        return _run_restore(request, progress or NullProgress(), engine, faults or NO_FAULTS, say or _nobody)
    except FaultInjected:
        raise
    except Exception as error:
        raise as_statecore_error(error, _doing(request)) from error


def _run_restore(
    request: RestoreRequest, progress: Progress, engine: Engine, faults: FaultPoints, say: Callable[[str], None]
) -> RestoreReport | RestorePlan:
    spec = spec_of(request)
    directory = StateDirectory(Path(request.state_dir), spec.application_id, request.owner)
    if request.owner is not None:
        parse_owner(request.owner)  # an owner that nobody knows is refused by a plan too
    if request.plan_only:
        progress.phase("plan")
        with Cluster(spec.bootstrap_servers, spec.kafka, timeout=request.timeout) as cluster:
            plan, notes, disk = plan_restore(cluster, spec, request, parallelism=lambda: engine.expected(spec))
        progress.done()
        for note in (*notes, *_doubts(directory, request, disk), _owner_note(directory)):
            say(f"note: {note}")
        return plan
    owner_note = _owner_note(directory)  # before the lock, which makes the directory that would then be its own model
    with directory.lock():
        faults.reach("restore.after-lock")
        say(owner_note)
        with engine.start("restore", spec) as workers:
            return _Restore(request, Surroundings(spec, directory, progress, faults, say)).run(workers)


class _Restore(Job):
    """One run of a restore, under the application's lock."""

    def __init__(self, request: RestoreRequest, around: Surroundings) -> None:
        super().__init__(
            around,
            request_id=request.request_id,
            state_dir=request.state_dir,
            staging_dir=request.staging_dir,
            doing=_doing(request),
        )
        self.request = request
        self.resumes = False
        self.placement = uuid.uuid4().hex

    def run(self, workers: Workers) -> RestoreReport:
        """Restore."""
        with self.attempted():
            return self._run(workers)

    def _run(self, workers: Workers) -> RestoreReport:
        """All steps in order; each is timed under its name."""
        request = self.request
        with self.phase("plan"):
            self.progress.phase("plan")
            recovered = recover(self.directory, self.faults)
            if recovered.placed or recovered.put_back or recovered.left:
                self.say(_recovery(recovered))
            frozen, why = self._frozen_plan()
            earlier = self._already_placed(frozen)
            if earlier is not None:
                self.directory.give_to_owner()  # which the killed attempt may not have come to
                shutil.rmtree(self.work / earlier.plan_id, ignore_errors=True)  # what the killed attempt had staged
                self.progress.done("in place already")
                return earlier
            plan, notes = self._plan(workers, frozen, why)
            self.save(self.attempt_file, self.attempt.begun())
            self.progress.done()
        self.faults.reach("restore.after-plan")
        cluster = ClusterSettings(self.spec.bootstrap_servers, self.spec.kafka, request.timeout)
        staging = self.work / plan.plan_id
        place = DirectoryPlace(str(staging.absolute()))
        self.wait_for(workers, staging, self.spec.kafka)
        with self.phase("read"), self.nothing_left_of_the_invalid(staging):
            runs = read_runs(workers, plan, cluster, place, request.memory_budget, self.progress)
        self.faults.reach("restore.after-runs")
        with self.phase("build"):
            stores, application_id = stores_to_build(plan, runs), self.spec.application_id
            images = build_images(workers, application_id, stores, place, staging, request.memory_budget, self.progress)
        self.faults.reach("restore.after-images")
        with self.phase("place"):
            # Before the placement: a retry after a kill finds the stores in place and needs their report.
            self.save(self.report_file, self._report(plan, runs, images, notes).to_json())
            placement = self._placement(plan, staging)
            for line in placement.lines:
                self.say(line)
            apply_placement(placement, self.faults, self.progress)
        self.faults.reach("restore.after-placement")
        report = replace(self._report(plan, runs, images, notes), finished=utc_now())
        self.finish(staging, report.to_json())  # beside which the one that was saved before differs in its times alone
        return report

    def _frozen_plan(self) -> tuple[FrozenPlan | None, tuple[str, ...]]:
        """The plan of an earlier attempt of this request, or why there is none although there is a file."""
        try:
            return load_plan(self.plan_file), ()
        except Invalid as error:
            return None, (f"The plan of an earlier attempt of this request was made anew: {error.what}",)

    def _already_placed(self, frozen: FrozenPlan | None) -> RestoreReport | None:
        """The report of an earlier attempt of this request, while all that it had placed still stands there."""
        found = None if frozen is None else self._report_of(frozen.plan)
        if frozen is None or found is None or not covers(frozen, self.spec, self.request):
            return None
        record = read_record(self.directory.work_path)
        tasks = {part.task for part in frozen.plan.partitions}
        if record is None or not all(
            record.placed(task, self.directory.task_path(task), self.request.request_id) for task in tasks
        ):
            return None
        report = found.value
        if not report.finished:  # killed between the last swap and the last word, or placed by an older release
            report = replace(report, finished=utc_now(), **({} if report.started else asdict(self.attempt)))
            self.save(self.report_file, REPORT.rewritten(found, report))
        return replace(report, placed=False)

    def _report_of(self, plan: RestorePlan) -> Document[RestoreReport] | None:
        """The saved report of a plan, which is written before anything is placed; not one of an earlier plan."""
        try:
            found = REPORT.read(self.report_file.read_bytes())
        except (FileNotFoundError, Invalid):
            return None
        return found if found.value.plan_id == plan.plan_id else None

    def _plan(
        self, workers: Workers, frozen: FrozenPlan | None, why: tuple[str, ...]
    ) -> tuple[RestorePlan, tuple[str, ...]]:
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
                    return frozen.plan, ("The plan of an earlier attempt of this request was taken up.", *notes)
                why = (f"The plan of an earlier attempt of this request was made anew: {stale}.",)
            made_at = time.time()
            plan, notes, disk = plan_restore(cluster, self.spec, self.request, parallelism=workers.parallelism)
            self._placement(plan)
            room = self._ensure_room(disk)
            self.brokers = cluster.brokers()
        request = self.request
        save_plan(
            self.plan_file, FrozenPlan(plan, request.partitions, made_at, request.request_id, str(self.work.absolute()))
        )
        return plan, (*why, *notes, *room)

    def _why_stale(self, frozen: FrozenPlan, cluster: Cluster) -> str | None:
        topics = cluster.describe_topics(sorted({part.topic for part in frozen.plan.partitions}))
        check_unchanged(frozen.plan, topics)
        offsets = cluster.log_offsets({part.topic_partition for part in frozen.plan.partitions})
        return why_stale(frozen, topics, offsets, time.time())

    def _placement(self, plan: RestorePlan, staged: Path | None = None) -> PlacementPlan:
        return placement_of(plan, staged, self.spec, self.directory, self.request, resumes=self.resumes)

    def _ensure_room(self, disk: DiskNeed) -> list[str]:
        """Refuse when a disk certainly cannot hold what is made, and say where one may not."""
        self.directory.ensure_room(disk.least)
        if self.request.staging_dir:
            ensure_room(self.work, disk.least)
        return _doubts(self.directory, self.request, disk)

    def _report(
        self,
        plan: RestorePlan,
        runs: Mapping[tuple[str, str], Sequence[RangeResult]],
        images: Mapping[tuple[str, str], ImageResult],
        notes: tuple[str, ...],
    ) -> RestoreReport:
        stores = [store_report(parts, runs.get(key, ()), images[key]) for key, parts in sorted(plan.stores.items())]
        return RestoreReport(
            **asdict(self.attempt),
            plan_id=plan.plan_id,
            processing_guarantee=str(plan.processing_guarantee),
            seconds=time.monotonic() - self.began,
            phases=dict(self.phases),
            stores=tuple(stores),
            work=work_of(runs, images),
            cpu={**cpu_of(runs, images), "place": round(self.cpu.get("place", 0.0), 3)},
            notes=notes,
            placement=self.placement,
            ran_on=self.ran_on,
        )


def _doing(request: RestoreRequest) -> str:
    return f"stores were restored in {request.state_dir}"


def _doubts(directory: StateDirectory, request: RestoreRequest, disk: DiskNeed) -> list[str]:
    """Which disk may have too little room."""
    elsewhere = [staging_base(request.staging_dir, directory)] if request.staging_dir else []
    return [note for place in (directory.path, *elsewhere) if (note := disk.doubt(place)) is not None]


def _owner_note(directory: StateDirectory) -> str:
    """Whose the placed files will be, or why they could not be."""
    try:
        return f"What is placed will belong to {directory.ownership}."
    except Invalid as error:
        return f"Nothing could be placed by this user: {error}"


def _nobody(line: str) -> None:
    """Hears nothing."""


def _recovery(found: RecoveryReport) -> str:
    words = [
        f"{what}: {', '.join(tasks)}"
        for what, tasks in (
            ("put in place", found.placed),
            ("put back as they were", found.put_back),
            ("left to the application, which has used them since", found.left),
        )
        if tasks
    ]
    return f"An interrupted placement was settled; {'; '.join(words)}."
