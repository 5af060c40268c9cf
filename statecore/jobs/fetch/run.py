"""Fetch: places stores of a repository into a state directory, without Spark, with the placement that every job uses.

Phases, and why a kill at any point is harmless::

    look      head, manifest, task manifests               nothing is changed; "no snapshot" differs from "unreachable"
    lock      the application's .lock, until the end       a running application refuses the fetch
    recover   finish or clean up a killed job              (statecore.statedir.apply)
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

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path

from statecore.changelog.cluster import Cluster
from statecore.discover.contradicted_kinds import contradiction_error
from statecore.errors import Corrupted, Invalid, NotFound, Retryable, StatecoreError
from statecore.faults import NO_FAULTS, FaultInjected, FaultPoints
from statecore.jobs.attempt import moment, utc, utc_now
from statecore.jobs.engine import Engine, Workers
from statecore.jobs.failures import as_statecore_error
from statecore.jobs.fetch.digests import FetchedContents
from statecore.jobs.fetch.files import FetchedFiles
from statecore.jobs.fetch.plan import FetchPlan, declared_spec, plan_fetch
from statecore.jobs.fetch.report import FETCH_REPORT, FETCH_SUFFIX, FetchedStore, FetchReport
from statecore.jobs.fetch.request import FetchRequest
from statecore.jobs.fetch.select import FoundSnapshot, Snapshots
from statecore.jobs.fetch.store_to_fetch import StoreToFetch
from statecore.jobs.fetch.topic_check import check_topics
from statecore.jobs.in_process import InProcessEngine
from statecore.jobs.job import Job, JobContext
from statecore.jobs.job_files import DirectoryHome
from statecore.jobs.pipeline import staging
from statecore.jobs.pipeline.image_tasks import ImageResult
from statecore.jobs.pipeline.stages import build_images
from statecore.jobs.pipeline.staging_place import DirectoryPlace
from statecore.jobs.processes import ProcessEngine
from statecore.jobs.restore.placement_request import siblings_of
from statecore.progress import NullProgress, Progress
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.download import DownloadResult
from statecore.spec.model import ApplicationSpec
from statecore.statedir.apply import PlacementPlan, StoreImage, apply_placement, plan_placement, recover
from statecore.statedir.file_ownership import parse_owner
from statecore.statedir.placement_plan import unopenable_stores_error
from statecore.statedir.state_directory import StateDirectory

_SMALL = 64 << 20
"""Bytes below which this process builds the stores itself, because worker processes take longer to start."""

_LINKING = ("statecore.jobs.pipeline.image_tasks", "statecore.images.image", "statecore.images.bases")
_PRELOADED = (*_LINKING, "statecore.images.kernels.kernel")


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
    try:
        return _run_fetch(request, progress or NullProgress(), faults, say, repository, cluster)
    except FaultInjected:
        raise
    except Exception as error:
        raise as_statecore_error(error, _activity(request)) from error


def _run_fetch(
    request: FetchRequest,
    progress: Progress,
    faults: FaultPoints,
    say: Callable[[str], None],
    repository: ApplicationRepository | None,
    cluster: Callable[..., Cluster],
) -> FetchReport:
    declared = declared_spec(request)
    directory = StateDirectory(Path(request.state_dir), request.application_id, request.owner)
    if request.owner is not None:
        parse_owner(request.owner)  # a plan refuses an unknown owner too
    progress.phase("look")
    repository = repository or ApplicationRepository.open(request.repository, request.application_id)
    snapshots = Snapshots(repository, request, say)
    with _snapshots_exist():
        found = snapshots.first()
        progress.done()
        home = DirectoryHome(directory.work_path, directory.work_path, request.request_id)
        around = JobContext(found.spec, home, progress, faults, say)
        job = _Fetch(request, declared, snapshots, directory, around, cluster)
        if request.plan_only:
            say(directory.owner_note())
            directory.check_usable()
            return job.plan(found)
        # Before the lock, which creates the directory whose owner the note depends on.
        owner_note = directory.owner_note()
        with directory.lock():
            faults.reach("fetch.after-lock")
            say(owner_note)
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

    def __init__(
        self,
        request: FetchRequest,
        declared: ApplicationSpec | None,
        snapshots: Snapshots,
        directory: StateDirectory,
        around: JobContext,
        cluster: Callable[..., Cluster],
    ) -> None:
        super().__init__(around, request_id=request.request_id, state_dir=request.state_dir, doing=_activity(request))
        self.cluster = cluster
        self.request, self.declared, self.snapshots, self.directory = request, declared, snapshots, directory
        self.repository = snapshots.repository
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
            notes = (*notes, *self._refuse_like_a_run(todo))
            self.contents.look_for(todo.stores)
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

    def _refuse_like_a_run(self, todo: FetchPlan) -> tuple[str, ...]:
        """Refuse a plan if a run would be refused for existing stores; otherwise return notes."""
        holder = self.directory.in_use_by()
        if holder is not None:  # its state after that process ends is unknown
            return (self.directory.use_note(holder),)
        spec, tasks = self.declared or todo.found.spec, {store.task for store in todo.stores}
        images = [
            StoreImage(*store.key, store.snapshot.kind, store.snapshot.changelogs[0].topic_partition)
            for store in todo.stores
        ]
        refusal = contradiction_error(self.directory, spec, tasks) or unopenable_stores_error(self.directory, images)
        if refusal is not None:
            raise refusal
        return ()

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
                return self._report(remaining, DownloadResult(0, 0, 0, 0), {}, ())
            self.contents.look_for(remaining.stores)
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
            came, images = self._download_and_build(remaining, at_hand, work)
        except Corrupted as error:
            return error
        with self.phase("place"):
            report = self._report(remaining, came, images, notes)
            self.save(FETCH_SUFFIX, replace(report, finished="").to_json())
            final = self._placement(todo, work, remaining, resumes=resumes)
            for line in final.lines:
                self.say(line)
            apply_placement(final, self.faults, self.progress, staged=staging.staged_names(self.files.path, work))
        self.faults.reach("fetch.after-placement")
        self.contents.keep((store, images[store.key].image.content) for store in remaining.stores)
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
        return self._placement(todo, None, todo, resumes=resumes), resumes

    def _finish_earlier_report(self) -> None:
        """Write the finish time of a killed attempt whose stores are in place."""
        content = self.home.read(FETCH_SUFFIX)
        with suppress(Invalid):
            if content is not None and not (earlier := FETCH_REPORT.decode(content)).finished:
                self.save(FETCH_SUFFIX, replace(earlier, finished=utc_now()).to_json())

    def _placement(self, todo: FetchPlan, work: Path | None, built: FetchPlan, *, resumes: bool) -> PlacementPlan:
        keys = {store.key for store in built.stores}

        def image_of(store: StoreToFetch) -> StoreImage:
            first = store.snapshot.changelogs[0].topic_partition
            sibling = (*store.key, store.snapshot.kind, first)
            if work is None or store.key not in keys:
                return StoreImage(*sibling, None, None)
            path = staging.image_path(work, *store.key) / staging.DATABASE
            return StoreImage(*sibling, path, store.offsets)

        spec = self.declared or todo.found.spec
        if work is None and (
            refusal := contradiction_error(self.directory, spec, {store.task for store in todo.stores})
        ):
            raise refusal
        return plan_placement(
            self.directory,
            [image_of(store) for store in todo.stores],
            siblings=siblings_of(
                spec, dict.fromkeys(store.task for store in todo.stores), {store.key for store in todo.stores}
            ),
            guarantee=spec.processing_guarantee,
            replace=self.request.replace,
            request_id=self.request.request_id,
            resumes=resumes,
        )

    def _check_topics(self, todo: FetchPlan) -> tuple[str, ...]:
        """Compare the offsets with the live topics if brokers are given; returns notes."""
        servers = self.request.bootstrap_servers or (self.declared.bootstrap_servers if self.declared else "")
        if not servers or not todo.stores:
            return ()
        seen = self.snapshots.horizons_since(todo.found)
        with self.cluster(servers, self.declared.kafka if self.declared else {}) as cluster:
            return tuple(check_topics(cluster, todo.stores, seen, no_doubts=self.snapshots.has_unfit))

    def _download_and_build(
        self, todo: FetchPlan, at_hand: Mapping[str, Path], work: Path
    ) -> tuple[DownloadResult, dict[tuple[str, str], ImageResult]]:
        """Download and build; files that were damaged locally since their download are downloaded again."""
        with self._engine(todo).start("fetch", self.spec) as workers:
            came = self._download(todo, at_hand)
            try:
                return came, self._build(workers, todo, work)
            except Corrupted as error:
                self.say(f"Downloaded again, because it was damaged on this machine: {error.what}")
            again = self._download(todo, {})
            came = DownloadResult(came.bytes + again.bytes, came.files + again.files, came.kept_bytes, came.kept)
            return came, self._build(workers, todo, work)

    def _engine(self, todo: FetchPlan) -> Engine:
        """Processes for much work; this process alone for little, or if files only need to be linked."""
        is_small = todo.file_bytes < _SMALL or all(store.is_linked(self.contents.of(store)) for store in todo.stores)
        if self.request.processes == 1 or (self.request.processes is None and is_small):
            return InProcessEngine(_LINKING)
        return ProcessEngine(self.request.processes, _PRELOADED)

    def _download(self, todo: FetchPlan, at_hand: Mapping[str, Path]) -> DownloadResult:
        with self.phase("download"):
            self.progress.phase(
                "download", sum(one.snapshot.file_bytes for one in todo.stores if not one.left), "bytes"
            )

            def advance(amount: int) -> None:
                self.progress.advance(amount)
                self.faults.reach("fetch.during-download")

            came = self.files.bring(self.repository, todo.stores, at_hand, advance)
            self.progress.done()
        self.faults.reach("fetch.after-download")
        return came

    def _build(self, workers: Workers, todo: FetchPlan, work: Path) -> dict[tuple[str, str], ImageResult]:
        with self.phase("build"):
            place = DirectoryPlace(str(self.files.path.absolute()))
            place.prepare()
            staging.clear_attempts(work)
            hashed, count = self.files.hashed, self.request.count
            stores = [store.built(hashed, self.contents.of(store), count=count) for store in todo.stores]
            images = build_images(
                workers, self.spec.application_id, stores, place, work, self.request.memory_budget, self.progress
            )
            for store in todo.stores:
                self.contents.compare(store, images[store.key].image.content)
        self.faults.reach("fetch.after-images")
        return images

    def _report(
        self,
        todo: FetchPlan,
        came: DownloadResult,
        images: Mapping[tuple[str, str], ImageResult],
        notes: Sequence[str],
    ) -> FetchReport:
        entry = todo.found.entry
        cut = entry.cut_ms
        began = moment(entry.made) if cut is None else datetime.fromtimestamp(cut / 1000, UTC)
        return FetchReport(
            **asdict(self.attempt),
            repository=self.repository.url,
            snapshot=entry.snapshot,
            snapshot_identity=entry.identity,
            made=entry.made,
            cut=None if cut is None else utc(cut / 1000),
            age=0.0 if began is None else max(0.0, time.time() - began.timestamp()),
            placed=bool(images),
            plan_only=self.request.plan_only,
            plan_id=todo.plan_id,
            stores=tuple(
                self._store_report(store, images.get(store.key))
                for store in sorted(todo.stores, key=lambda store: store.key)
            ),
            kept=todo.kept,
            passed_over=tuple(self.snapshots.passed_over),
            downloaded_bytes=came.bytes,
            at_hand_bytes=came.kept_bytes,
            notes=(*self.snapshots.notes(), *todo.notes, *notes),
            seconds=time.monotonic() - self.began,
            phases=dict(self.phases),
        )

    def _store_report(self, store: StoreToFetch, built: ImageResult | None) -> FetchedStore:
        content = None if built is None else built.image.content
        content = content or self.contents.of(store)
        return FetchedStore(
            task=store.task,
            store=store.snapshot.store,
            kind=str(store.snapshot.kind),
            identity=store.snapshot.identity,
            rows=None if content is None else content.rows,
            bytes=None if content is None else content.bytes,
            digest=None if content is None else content.digest,
            file_bytes=0 if store.left else store.snapshot.file_bytes,
            offsets={str(partition): offset for partition, offset in store.offsets.items()},
            left_to_restore=store.left,
            seconds=0.0 if built is None else round(built.seconds, 3),
        )


def _activity(request: FetchRequest) -> str:
    return f"stores were fetched into {request.state_dir}"
