"""The fetch: from a repository into a state directory, without Spark, by the placement that every job uses.

Order of things, and why a kill at any moment is harmless::

    look      head, manifest, parts                        nothing is changed; "none there" is not "could not look"
    lock      the application's .lock, until the end       a running application makes it refuse to start
    recover   finish or clear what a killed job left       (statecore.statedir.apply)
    plan      which tasks; rights, owners, siblings, room  nothing was changed before this line
    check     the offsets against the live topics          where brokers are given
    download  files that are not here, by their hashes     they stay until a fetch has come to its end
    build     runs and base files → images                 in the staging directory of the plan
    place     whole task directories, by journal           by this process alone
    report    written beside those of restores, then returned

**A task that the directory has is kept**, and that is said: an init container runs at every start, and must neither put
an older state over a newer one nor fail because there is one. To have them replaced is to be asked for.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path

from statecore.changelog.cluster import Cluster
from statecore.discover.contradicted_kinds import contradicted
from statecore.errors import Corrupted, Invalid, NotFound, Retryable, StatecoreError
from statecore.faults import NO_FAULTS, FaultInjected, FaultPoints
from statecore.jobs.attempt import moment, utc, utc_now
from statecore.jobs.engine import Engine, Workers
from statecore.jobs.failures import as_statecore_error
from statecore.jobs.fetch.digests import FetchedContents
from statecore.jobs.fetch.files import FetchedFiles
from statecore.jobs.fetch.plan import FetchPlan, declared_spec, todo_of
from statecore.jobs.fetch.report import FETCH_REPORT, FETCH_SUFFIX, FetchedStore, FetchReport
from statecore.jobs.fetch.request import FetchRequest
from statecore.jobs.fetch.select import FoundSnapshot, Snapshots
from statecore.jobs.fetch.store_to_fetch import StoreToFetch
from statecore.jobs.fetch.topic_check import check_topics
from statecore.jobs.in_process import InProcessEngine
from statecore.jobs.job import Job, Surroundings
from statecore.jobs.job_files import DirectoryHome
from statecore.jobs.pipeline import staging
from statecore.jobs.pipeline.image_tasks import ImageResult
from statecore.jobs.pipeline.stages import build_images
from statecore.jobs.pipeline.staging_place import DirectoryPlace
from statecore.jobs.processes import ProcessEngine
from statecore.jobs.restore.placement_request import siblings_of
from statecore.progress import NullProgress, Progress
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.download import Downloaded
from statecore.spec.model import ApplicationSpec
from statecore.statedir.apply import PlacementPlan, StoreImage, apply_placement, plan_placement, recover
from statecore.statedir.file_ownership import parse_owner
from statecore.statedir.plan import would_not_open
from statecore.statedir.state_directory import StateDirectory

_LITTLE = 64 << 20
"""Bytes below which this process builds the stores itself: others would take longer to start."""

_LINKING = ("statecore.jobs.pipeline.image_tasks", "statecore.images.image", "statecore.images.bases")
_PRELOADED = (*_LINKING, "statecore.images.kernels.kernel")


def run_fetch(
    request: FetchRequest,
    progress: Progress | None = None,
    *,
    faults: FaultPoints = NO_FAULTS,
    say: Callable[[str], None] = lambda _: None,
    shelf: ApplicationRepository | None = None,
    cluster: Callable[..., Cluster] = Cluster,
) -> FetchReport:
    """Bring stores from a repository into a state directory.

    Args:
        request: what, from where, to where.
        progress: told how far it is; ``None`` for nobody.
        faults: points at which tests let the process die.
        say: told what an operator should read at once.
        shelf: the repository of the request, where the caller has it open.
        cluster: makes the client of the brokers.

    Returns:
        The report; with ``request.plan_only`` what would be done, and nothing was changed.

    Raises:
        NotFound: there is no repository, or no snapshot of the application: nothing else is told by it.
        Retryable: repository or brokers could not be reached.
        Corrupted: no snapshot is whole; nothing was replaced.
        Invalid: no snapshot fits the topics and the spec, it does not have what was named, or the request or the
            directory is wrong; nothing was replaced.
        Fenced, Capacity: as their docs say; nothing was replaced.
        StatecoreError: a defect of this program.
    """
    try:
        return _run_fetch(request, progress or NullProgress(), faults, say, shelf, cluster)
    except FaultInjected:
        raise
    except Exception as error:
        raise as_statecore_error(error, _doing(request)) from error


def _run_fetch(
    request: FetchRequest,
    progress: Progress,
    faults: FaultPoints,
    say: Callable[[str], None],
    shelf: ApplicationRepository | None,
    cluster: Callable[..., Cluster],
) -> FetchReport:
    declared = declared_spec(request)
    directory = StateDirectory(Path(request.state_dir), request.application_id, request.owner)
    if request.owner is not None:
        parse_owner(request.owner)  # an owner that nobody knows is refused by a plan too
    progress.phase("look")
    shelf = shelf or ApplicationRepository.at(request.repository, request.application_id)
    snapshots = Snapshots(shelf, request, say)
    with _there_are_some():
        found = snapshots.first()
        progress.done()
        home = DirectoryHome(directory.work_path, directory.work_path, request.request_id)
        around = Surroundings(found.spec, home, progress, faults, say)
        job = _Fetch(request, declared, snapshots, directory, around, cluster)
        if request.plan_only:
            say(directory.owner_note())
            directory.check_usable()
            return job.plan(found)
        # Before the lock, which makes the directory that would then be its own model.
        owner_note = directory.owner_note()
        with directory.lock():
            faults.reach("fetch.after-lock")
            say(owner_note)
            return job.run(found)


@contextmanager
def _there_are_some() -> Iterator[None]:
    """Around what is done with snapshots that there are: what is not found then does not say that there are none."""
    try:
        yield
    except NotFound as error:
        raise Retryable(
            f"What was there a moment ago is gone: {error.what}",
            code="snapshot-deleted",
            action="Look who deletes it, then run this again.",
            **error.context,
        ) from error


class _Fetch(Job):
    """One run of a fetch."""

    report_suffix = FETCH_SUFFIX

    def __init__(
        self,
        request: FetchRequest,
        declared: ApplicationSpec | None,
        snapshots: Snapshots,
        directory: StateDirectory,
        around: Surroundings,
        cluster: Callable[..., Cluster],
    ) -> None:
        super().__init__(around, request_id=request.request_id, state_dir=request.state_dir, doing=_doing(request))
        self.cluster = cluster
        self.request, self.declared, self.snapshots, self.directory = request, declared, snapshots, directory
        self.shelf = snapshots.shelf
        self.files = FetchedFiles(directory)
        self.contents = FetchedContents(self.shelf)

    def plan(self, found: FoundSnapshot) -> FetchReport:
        """What a run would do, without the lock: nothing is changed."""
        while True:
            try:
                todo = self._todo(found)
                notes = self._checked(todo)
            except Invalid as error:
                found = self.snapshots.after(found, error)
                continue
            notes = (*notes, *self._refuse_as_a_run(todo))
            self.contents.look_for(todo.stores)
            at_hand = self.files.at_hand(todo.stores)
            came = self.files.to_come(todo.stores, at_hand.keys())
            return self._report(todo, Downloaded(came, 0, todo.file_bytes - came, 0), {}, notes)

    def run(self, found: FoundSnapshot) -> FetchReport:
        """Fetch, under the lock."""
        if recovered := str(recover(self.directory, self.faults)):
            self.say(recovered)
        while True:
            ended = self._try(found)
            if isinstance(ended, FetchReport):
                return ended
            found = self.snapshots.after(found, ended)

    def _refuse_as_a_run(self, todo: FetchPlan) -> tuple[str, ...]:
        """Refuse a plan where a run would be refused for what lies in the place of the stores; else its notes."""
        holder = self.directory.in_use_by()
        if holder is not None:  # what lies there when that has ended nobody can tell
            return (self.directory.use_note(holder),)
        spec, tasks = self.declared or todo.found.spec, {store.task for store in todo.stores}
        images = [
            StoreImage(*store.key, store.snapshot.kind, store.snapshot.changelogs[0].topic_partition)
            for store in todo.stores
        ]
        refusal = contradicted(self.directory, spec, tasks) or would_not_open(self.directory, images)
        if refusal is not None:
            raise refusal
        return ()

    def _todo(self, found: FoundSnapshot) -> FetchPlan:
        return todo_of(found, self.request, self.directory, self.declared, self.spec)

    def _try(self, found: FoundSnapshot) -> FetchReport | StatecoreError:
        """Fetch one snapshot, all steps in order; or why it cannot be used, which has changed nothing."""
        with self.phase("plan"):
            try:
                todo = self._todo(found)
            except Invalid as error:
                return error
            for note in todo.notes:
                self.say(note)
            placement, resumes = self._first_look(todo)
            for note in placement.notes:
                self.say(note)
            todo = replace(todo, notes=(*todo.notes, *placement.notes))
            remaining = todo.without([task.task for task in placement.tasks if task.already_placed])
            if not remaining.stores:
                self.directory.give_to_owner()  # which a killed try may not have come to
                self.files.drop()
                self.home.discard(todo.plan_id)  # what it had built
                self._end_earlier()
                return self._report(remaining, Downloaded(0, 0, 0, 0), {}, ())
            self.contents.look_for(remaining.stores)
            at_hand = self.files.at_hand(remaining.stores)
            self.files.ensure_room(remaining.stores, at_hand)
        self.faults.reach("fetch.after-plan")
        try:
            with self.phase("check"):
                notes = self._checked(remaining)
        except Invalid as error:
            return error
        work = self.directory.work_path / todo.plan_id
        try:
            came, images = self._brought_and_built(remaining, at_hand, work)
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

    def _first_look(self, todo: FetchPlan) -> tuple[PlacementPlan, bool]:
        """What placing would do, and whether an earlier try of this request has begun to do just that."""
        resumes = False
        content = self.home.read(FETCH_SUFFIX)
        with suppress(Invalid):
            resumes = content is not None and FETCH_REPORT.decode(content).plan_id == todo.plan_id
        return self._placement(todo, None, todo, resumes=resumes), resumes

    def _end_earlier(self) -> None:
        """Say of what a killed try has placed that it is in place."""
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
        if work is None and (refusal := contradicted(self.directory, spec, {store.task for store in todo.stores})):
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

    def _checked(self, todo: FetchPlan) -> tuple[str, ...]:
        """Compare the offsets with the live topics, where brokers were given; what the operator should know."""
        servers = self.request.bootstrap_servers or (self.declared.bootstrap_servers if self.declared else "")
        if not servers or not todo.stores:
            return ()
        seen = self.snapshots.horizons_since(todo.found)
        with self.cluster(servers, self.declared.kafka if self.declared else {}) as cluster:
            return tuple(check_topics(cluster, todo.stores, seen, no_doubts=self.snapshots.has_unfit))

    def _brought_and_built(
        self, todo: FetchPlan, at_hand: Mapping[str, Path], work: Path
    ) -> tuple[Downloaded, dict[tuple[str, str], ImageResult]]:
        """All files, and the images of them; files that were damaged on this disk since they came are brought again."""
        with self._engine(todo).start("fetch", self.spec) as workers:
            came = self._brought(todo, at_hand)
            try:
                return came, self._built(workers, todo, work)
            except Corrupted as error:
                self.say(f"Brought again, because it was damaged on this machine: {error.what}")
            again = self._brought(todo, {})
            came = Downloaded(came.bytes + again.bytes, came.files + again.files, came.kept_bytes, came.kept)
            return came, self._built(workers, todo, work)

    def _engine(self, todo: FetchPlan) -> Engine:
        """Processes where there is much to be read; this one alone where there are but links to be made."""
        is_little = todo.file_bytes < _LITTLE or all(store.is_linked(self.contents.of(store)) for store in todo.stores)
        if self.request.processes == 1 or (self.request.processes is None and is_little):
            return InProcessEngine(_LINKING)
        return ProcessEngine(self.request.processes, _PRELOADED)

    def _brought(self, todo: FetchPlan, at_hand: Mapping[str, Path]) -> Downloaded:
        with self.phase("download"):
            self.progress.phase(
                "download", sum(one.snapshot.file_bytes for one in todo.stores if not one.left), "bytes"
            )

            def advance(amount: int) -> None:
                self.progress.advance(amount)
                self.faults.reach("fetch.during-download")

            came = self.files.bring(self.shelf, todo.stores, at_hand, advance)
            self.progress.done()
        self.faults.reach("fetch.after-download")
        return came

    def _built(self, workers: Workers, todo: FetchPlan, work: Path) -> dict[tuple[str, str], ImageResult]:
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
        came: Downloaded,
        images: Mapping[tuple[str, str], ImageResult],
        notes: Sequence[str],
    ) -> FetchReport:
        entry = todo.found.entry
        cut = entry.cut_ms
        began = moment(entry.made) if cut is None else datetime.fromtimestamp(cut / 1000, UTC)
        return FetchReport(
            **asdict(self.attempt),
            repository=self.shelf.url,
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


def _doing(request: FetchRequest) -> str:
    return f"stores were fetched into {request.state_dir}"
