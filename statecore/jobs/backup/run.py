"""The snapshot of a state directory: what Kafka Streams wrote is published as it lies, file by file.

Order of things, and why a kill at any moment is harmless::

    look      the head of the repository                   a retry finds what an earlier try has published
    link      under the application's .lock, or beside     in a scratch directory of the application's, which the
              the application: files get second names      next snapshot sweeps
              of one moment; then the lock is let go
    check     do the offsets fit the brokers' logs?        nothing was changed before this line
    hash      every file, from the disk                    the same
    compare   is what the newest snapshot has still        the same
              there?
    upload    files that it has not                        garbage, or what a retry finds
    publish   parts, manifest, head                        (statecore.repository.publication)

One snapshot is the whole of what was asked for: where one store cannot be taken, nothing is published, and every
reason is said at once. Where nothing has changed since the newest snapshot, that one stands.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path

from statecore.errors import Fenced, NotFound, Reason
from statecore.faults import NO_FAULTS, FaultInjected, FaultPoints
from statecore.formats.offsets import OFFSET_UNKNOWN
from statecore.formats.releases import CHECKPOINT_FILE, CURRENT, GLOBAL, LOCK_FILE
from statecore.jobs.attempt import utc_now
from statecore.jobs.backup.changed_files import refuse_changed
from statecore.jobs.backup.changelog_check import Logs, asked, not_asked, refuse_ahead
from statecore.jobs.backup.copies import Copier, StoreCopy
from statecore.jobs.backup.problems import refused
from statecore.jobs.backup.report import BackupReport, Outcome, StoreTaken
from statecore.jobs.backup.request import BackupRequest
from statecore.jobs.backup.scratch_dir import scratch
from statecore.jobs.backup.stores import Selection, select_taken
from statecore.jobs.backup.task_manifests import (
    Files,
    Newest,
    StoreKey,
    believed_of,
    is_unchanged,
    is_whole,
    key,
    listed,
    newest_of,
    parts_of,
    planned_store,
    refuse_older,
    snapshot_of,
    taken_store,
)
from statecore.jobs.failures import as_statecore_error
from statecore.jobs.job import Job, Surroundings, nobody, spec_of
from statecore.jobs.job_files import RepositoryHome
from statecore.progress import NullProgress, Progress
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.bases import hashed, put_bases
from statecore.repository.manifest import StoredDatabase, extents_of
from statecore.repository.publication import Publication
from statecore.repository.upload import LocalFile
from statecore.spec.model import ProcessingGuarantee
from statecore.statedir.open_stores import refuse_open_stores
from statecore.statedir.state_directory import StateDirectory
from statecore.statedir.store_places import application_directory
from statecore.stores.legacy_offsets import read_offsets
from statecore.stores.lock_holder import lock_holder
from statecore.stores.rocksdb.checkpoint import named_files
from statecore.stores.rocksdb.directory_lock import writer_of


def run_backup(
    request: BackupRequest,
    progress: Progress | None = None,
    *,
    faults: FaultPoints | None = None,
    say: Callable[[str], None] | None = None,
    clock: Callable[[], float] = time.time,
) -> BackupReport:
    """Publish stores of one application as they lie in its state directory.

    Args:
        request: what of it, and where to.
        progress: told how far it is; ``None`` for nobody.
        faults: points at which tests let the process die.
        say: told what an operator should read at once, line by line.
        clock: seconds since the epoch.

    Returns:
        What was taken, and what became of it; with ``request.plan_only`` nothing was published.

    Raises:
        Invalid: something that was asked for cannot be taken, or does not fit spec, brokers or repository; all reasons
            are said, and nothing was published.
        NotFound: there is no application, task, store, topic or repository of that name.
        Fenced: somebody is at work in the directory, or others publish what this one was about to.
        Corrupted: a database, or what the repository has, is damaged; nothing was published.
        Retryable, Capacity: brokers, repository or disk were not there, or have no room.
        StatecoreError: a defect of this program.
    """
    try:
        spec = spec_of(request)
        directory = application_directory(Path(request.state_dir), spec.application_id)
        shelf = ApplicationRepository.at(request.repository, spec.application_id)
        home = RepositoryHome(shelf, request.request_id)
        around = Surroundings(spec, home, progress or NullProgress(), faults or NO_FAULTS, say or nobody)
        return _Snapshot(request, around, directory, shelf, clock).run()
    except FaultInjected:
        raise
    except Exception as error:
        raise as_statecore_error(error, _doing(request.state_dir)) from error


class _Snapshot(Job):
    """One try of a snapshot."""

    def __init__(
        self,
        request: BackupRequest,
        around: Surroundings,
        directory: StateDirectory,
        shelf: ApplicationRepository,
        clock: Callable[[], float],
    ) -> None:
        super().__init__(
            around, request_id=request.request_id, state_dir=request.state_dir, doing=_doing(request.state_dir)
        )
        self.request, self.clock = request, clock
        self.directory, self.shelf = directory, shelf
        self.running = False
        self.listed: dict[StoreKey, dict[int | None, list[LocalFile]]] = {}
        self.problems: list[Reason] = []
        self.notes: list[str] = []
        self._counting = threading.Lock()

    def run(self) -> BackupReport:
        """Take it. There is no plan to be kept: a retry looks anew, and finds what was published."""
        with self.phase("look"):
            publication = Publication(
                self.shelf,
                self.spec,
                request=self.request.request_id,
                origin="snapshot",
                clock=self.clock,
                faults=self.faults,
            )
            earlier = publication.earlier()
        if earlier is not None:
            return self._report(Outcome.EARLIER, snapshot=earlier.snapshot, identity=earlier.identity)
        if not self.request.plan_only:
            self.shelf.check_writable()
        with ExitStack() as kept:
            with self.phase("link"):
                where, selection, copies = self._link(kept)
            self.faults.reach("snapshot.after-links")
            with self.phase("check"):
                logs = self._ask(copies)
            newest = newest_of(self.shelf, selection.tasks)
            if self.request.plan_only:
                hashes = extents_of(newest.parts.values()).keys()
                planned = [
                    planned_store(copy, logs, self.listed[key(copy)], newest.store(key(copy)), hashes)
                    for copy in copies
                ]
                return self._report(Outcome.PLANNED, stores=planned)
            with self.phase("hash"):
                files = self._hash(copies)
            self.faults.reach("snapshot.after-hashes")
            return self._publish(publication, copies, files, logs, newest, where)

    def _link(self, kept: ExitStack) -> tuple[Path, Selection, list[StoreCopy]]:
        """Everything as it is at one moment; who waits for the application's lock need not wait any longer."""
        with self._held(kept):
            self.faults.reach("snapshot.after-lock")
            selection = select_taken(self.directory, self.spec, self.request, self.problems.append)
            self.notes += selection.notes
            if not self.running:
                for task in selection.tasks:
                    refuse_open_stores(self.directory.task_path(task))
            self._refuse()  # before anything is linked
            where = kept.enter_context(scratch(self.directory))
            self.progress.phase("link", len(selection.stores), "stores")
            copier = Copier(
                where,
                exactly_once=self.spec.processing_guarantee is ProcessingGuarantee.EXACTLY_ONCE_V2,
                transactional=self.spec.transactional_state_stores,
                running=self.running,
                refuse=self.problems.append,
                note=self.notes.append,
            )
            copies = []
            for store in selection.stores:
                copy = copier.copy(store)
                if copy is not None:
                    copies.append(copy)
                self.progress.advance()
            self._check_files(selection, copies)
            if self.request.plan_only:
                self.listed = {key(copy): listed(copy) for copy in copies}
            self.progress.done()
        self._refuse()
        if not copies:
            raise NotFound(
                f"Nothing in {self.directory.path} is to be published.",
                code="nothing-to-publish",
                action="Check what was asked for, and the spec.",
                state_dir=str(self.directory.state_dir),
            )
        for note in self.notes:
            self.say(f"note: {note}")
        if not self.running and not self.request.plan_only:
            self.say("Every file is linked: the application may be started.")
        return where, selection, copies

    @contextmanager
    def _held(self, kept: ExitStack) -> Iterator[None]:
        """Hold the application's lock; or look beside it, where the application itself has it."""
        try:
            lock = self.directory.lock()
        except Fenced:
            if not self._application_runs():
                raise
            self.running = True
            self.say(f"The application runs in {self.directory.path}: what it has flushed is taken.")
            yield
            return
        with lock:
            yield
            if self.request.plan_only:
                kept.close()
                lock.withdraw()

    def _application_runs(self) -> bool:
        """Whether who holds the lock is the application: another job has no store open."""
        holder = lock_holder(self.directory.path / LOCK_FILE)
        if holder is None or holder.process == os.getpid():
            return False
        writers = (
            writer_of(database)
            for task in [*self.directory.task_directories(), GLOBAL]
            for store in self.directory.stores(task)
            for database in store.databases
        )
        return any(writer is not None and writer.process == holder.process for writer in writers)

    def _check_files(self, selection: Selection, copies: Sequence[StoreCopy]) -> None:
        """Refuse where ``.checkpoint`` says other offsets than the stores: at the next start these would count."""
        for task in selection.tasks:
            file = self.directory.task_path(task) / CHECKPOINT_FILE
            said = read_offsets(file)
            for copy in copies:
                if copy.taken.task != task:
                    continue
                for partition, offset in copy.offsets.items():
                    other = said.get(partition, offset)
                    if other not in (offset, OFFSET_UNKNOWN):
                        what = (
                            f"{copy.taken.name} says offset {offset} of {partition}, and {file} says {other}, which "
                            f"counts when the application starts next. Start it on {CURRENT.name} once and close it, "
                            "or delete the file if it is a leftover."
                        )
                        self.problems.append(
                            Reason(what, "checkpoint-file-mismatch", task=task, store=copy.taken.spec.name)
                        )

    def _ask(self, copies: Sequence[StoreCopy]) -> Logs:
        if self.request.offline:
            logs = not_asked(copies)
        else:
            self.progress.phase("ask the brokers")
            logs = asked(self.spec, copies, self.problems.append, timeout=self.request.timeout, clock=self.clock)
            self.progress.done()
        refuse_ahead(copies, logs, self.problems.append)
        self._refuse()
        return logs

    def _hash(self, copies: Sequence[StoreCopy]) -> Files:
        paths = {
            (key(copy), segment): named_files(database)
            for copy in copies
            for segment, database in copy.databases.items()
        }
        every = [file for files in paths.values() for file in files]
        self.progress.phase("hash", sum(file.stat().st_size for file in every), "bytes")
        found = hashed(every, self.progress.advance)
        self.progress.done()
        files: dict[StoreKey, dict[int | None, list[LocalFile]]] = {key(copy): {} for copy in copies}
        for (of, segment), named in paths.items():
            files[of][segment] = [found[file] for file in named]
        return files

    def _publish(
        self,
        publication: Publication,
        copies: Sequence[StoreCopy],
        files: Files,
        logs: Logs,
        newest: Newest,
        where: Path,
    ) -> BackupReport:
        with self.phase("compare"):
            refuse_changed(self.shelf, copies, files, newest)
            believed = believed_of(self.shelf, copies, files, newest)
            standing, known = believed.standing, believed.known
            if believed.gone:
                self._note(
                    f"{len(believed.gone)} files that the newest snapshot has are damaged or gone in "
                    f"{self.shelf.url}; they are put again. Look at the object store."
                )
        to_put = {
            (of, segment): found
            for of, databases in files.items()
            for segment, found in databases.items()
            if of not in standing
        }
        new = {file.sha256: file.bytes for found in to_put.values() for file in found if file.sha256 not in known}
        with self.phase("upload"):
            self.progress.phase("upload", sum(new.values()), "bytes")
            bases = put_bases(self.shelf, list(to_put.values()), known, self._counter(where))
            self.progress.done()
        self.faults.reach("snapshot.after-files")
        put = dict(zip(to_put, bases, strict=True))
        snapshots = {}
        for copy in copies:
            of = key(copy)
            stored = tuple(StoredDatabase(segment, (), put[of, segment]) for segment in files[of] if of not in standing)
            snapshots[of] = snapshot_of(self.spec, copy, standing.get(of, stored), logs)
        stores = [taken_store(copy, logs, snapshots[key(copy)], new) for copy in copies]
        parts, whole = parts_of(snapshots), is_whole(self.spec, copies, logs)
        if self.request.offline:
            refuse_older(parts, newest)
        has_all = is_unchanged(parts, newest, whole=whole) and not believed.have_moved(bases)
        if newest.manifest is not None and has_all:
            manifest = newest.manifest
            return self._report(
                Outcome.UNCHANGED,
                snapshot=manifest.snapshot,
                identity=manifest.identity,
                stores=stores,
                put_bytes=sum(new.values()),
            )
        with self.phase("publish"):
            published = publication.publish(parts, whole=whole)
        assert published is not None  # there are parts, and none is rebased
        for warning in published.warnings:
            self._note(warning)
        return self._report(
            Outcome.PUBLISHED,
            snapshot=published.snapshot,
            identity=published.identity,
            stores=stores,
            put_bytes=sum(new.values()),
        )

    def _counter(self, where: Path) -> Callable[[int], None]:
        """Counts what was put, for several threads, and keeps the scratch directory from looking forgotten."""

        def done(count: int) -> None:
            with self._counting:
                self.progress.advance(count)
                os.utime(where)

        return done

    def _note(self, note: str) -> None:
        """Keep what an operator should know, and say it at once."""
        self.notes.append(note)
        self.say(f"warning: {note}")

    def _refuse(self) -> None:
        if self.problems:
            raise refused(self.problems)

    def _report(
        self,
        outcome: Outcome,
        *,
        snapshot: str = "",
        identity: str = "",
        stores: Sequence[StoreTaken] = (),
        put_bytes: int = 0,
    ) -> BackupReport:
        return BackupReport(
            **asdict(self.attempt),
            finished=utc_now(),
            repository=self.shelf.url,
            outcome=outcome,
            snapshot=snapshot,
            identity=identity,
            running=self.running,
            seconds=time.monotonic() - self.began,
            phases=dict(self.phases),
            put_bytes=put_bytes,
            notes=tuple(self.notes),
            stores=tuple(stores),
        )


def _doing(state_dir: str) -> str:
    return f"a snapshot was taken of {state_dir}"
