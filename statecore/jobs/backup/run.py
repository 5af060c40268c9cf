"""Backup of a state directory: publishes Kafka Streams' databases file by file.

Phases, and why a kill at any point is harmless::

    look      the head of the repository                   a retry finds what an earlier attempt published
    link      under the application's .lock, or beside     in a scratch directory of the application, which the
              the running application: hard links of a     next backup cleans
              consistent state; then the lock is released
    check     compare offsets with the brokers' logs       nothing was changed before this point
    hash      every file, from the disk                    the same
    compare   verify what the newest snapshot already has  the same
    upload    new files                                    garbage, or what a retry finds
    publish   task manifests, manifest, head               (statecore.repository.publication)

A snapshot has all requested stores: if one cannot be copied, nothing is published, and all reasons are reported at
once. If nothing has changed since the newest snapshot, no new one is published.
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
from statecore.faults import FaultPoints
from statecore.formats.offsets import OFFSET_UNKNOWN
from statecore.formats.releases import CHECKPOINT_FILE, CURRENT, GLOBAL, LOCK_FILE
from statecore.jobs.attempt import utc_now
from statecore.jobs.backup.changed_files import refuse_changed
from statecore.jobs.backup.changelog_check import Logs, ends_from_brokers, ends_without_brokers, refuse_ahead
from statecore.jobs.backup.copies import Copier, StoreCopy
from statecore.jobs.backup.problems import refused
from statecore.jobs.backup.report import BackupReport, Outcome, StoreTaken
from statecore.jobs.backup.request import BackupRequest
from statecore.jobs.backup.stores import Selection, select_taken
from statecore.jobs.backup.task_manifests import (
    Files,
    Newest,
    StoreKey,
    is_unchanged,
    is_whole,
    key,
    listed,
    newest_of,
    planned_store,
    refuse_older,
    snapshot_of,
    taken_store,
    task_manifests_of,
    verified_of,
)
from statecore.jobs.context import JobContext
from statecore.jobs.failures import translated_errors
from statecore.jobs.job import Job
from statecore.jobs.job_files import RepositoryHome
from statecore.progress import Progress
from statecore.repository.manifest import StoredDatabase, extents_of
from statecore.repository.publication import Publication
from statecore.repository.upload import LocalFile, hash_files, put_bases
from statecore.spec.model import ProcessingGuarantee
from statecore.statedir.link_scratch import scratch
from statecore.statedir.open_stores import refuse_open_stores
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
    """Publish stores of one application from its state directory.

    Returns:
        The report; with ``request.plan_only`` nothing was published.
    """
    with translated_errors(_activity(request.state_dir)):
        return _Backup(JobContext.open(request, progress, faults=faults, say=say, clock=clock)).run()


class _Backup(Job):
    """One attempt of a backup."""

    def __init__(self, context: JobContext[BackupRequest]) -> None:
        request, self.directory, self.repository = context.request, context.existing_directory(), context.repository
        super().__init__(context, RepositoryHome(self.repository, request.request_id), _activity(request.state_dir))
        self.request, self.clock = request, context.clock
        self.running = False
        self.listed: dict[StoreKey, dict[int | None, list[LocalFile]]] = {}
        self.problems: list[Reason] = []
        self.notes: list[str] = []
        self._counting = threading.Lock()

    def run(self) -> BackupReport:
        """Run the backup; there is no stored plan, because a retry starts over and finds what was published."""
        with self.phase("look"):
            publication = Publication(
                self.repository,
                self.spec,
                request=self.request.request_id,
                origin="backup",
                clock=self.clock,
                faults=self.faults,
            )
            earlier = publication.earlier()
        if earlier is not None:
            return self._report(Outcome.EARLIER, snapshot=earlier.snapshot, identity=earlier.identity)
        if not self.request.plan_only:
            self.repository.check_writable()
        with ExitStack() as kept:
            with self.phase("link"):
                where, selection, copies = self._link(kept)
            self.faults.reach("backup.after-links")
            with self.phase("check"):
                logs = self._check_changelogs(copies)
            newest = newest_of(self.repository, selection.tasks)
            if self.request.plan_only:
                hashes = extents_of(newest.task_manifests.values()).keys()
                planned = [
                    planned_store(copy, logs, self.listed[key(copy)], newest.store(key(copy)), hashes)
                    for copy in copies
                ]
                return self._report(Outcome.PLANNED, stores=planned)
            with self.phase("hash"):
                files = self._hash(copies)
            self.faults.reach("backup.after-hashes")
            return self._publish(publication, copies, files, logs, newest, where)

    def _link(self, kept: ExitStack) -> tuple[Path, Selection, list[StoreCopy]]:
        """Link a consistent state of all stores, then release the application's lock."""
        with self._locked(kept):
            self.faults.reach("backup.after-lock")
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
                f"{self.directory.path} has no store to publish.",
                code="nothing-to-publish",
                action="Check the request and the spec.",
                state_dir=str(self.directory.state_dir),
            )
        for note in self.notes:
            self.say(f"note: {note}")
        if not self.running and not self.request.plan_only:
            self.say("All files are linked: the application may be started.")
        return where, selection, copies

    @contextmanager
    def _locked(self, kept: ExitStack) -> Iterator[None]:
        """Hold the application's lock; or work beside the application that holds it."""
        try:
            lock = self.directory.lock()
        except Fenced:
            if not self._application_runs():
                raise
            self.running = True
            self.say(f"The application is running in {self.directory.path}: its flushed state is copied.")
            yield
            return
        with lock:
            yield
            if self.request.plan_only:
                kept.close()
                lock.withdraw()

    def _application_runs(self) -> bool:
        """Whether the lock holder is the application; other jobs have no store open."""
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
        """Refuse stores whose offsets differ from ``.checkpoint``, which overrides them at the next start."""
        for task in selection.tasks:
            file = self.directory.task_path(task) / CHECKPOINT_FILE
            file_offsets = read_offsets(file)
            for copy in copies:
                if copy.taken.task != task:
                    continue
                for partition, offset in copy.offsets.items():
                    other = file_offsets.get(partition, offset)
                    if other not in (offset, OFFSET_UNKNOWN):
                        what = (
                            f"{copy.taken.name} has offset {offset} of {partition}, and {file} has {other}, which the "
                            f"application uses at its next start. Start it on {CURRENT.name} once and close it, or "
                            "delete the file if it is a leftover."
                        )
                        self.problems.append(
                            Reason(what, "checkpoint-file-mismatch", task=task, store=copy.taken.spec.name)
                        )

    def _check_changelogs(self, copies: Sequence[StoreCopy]) -> Logs:
        if self.request.offline:
            logs = ends_without_brokers(copies)
        else:
            self.progress.phase("ask the brokers")
            logs = ends_from_brokers(
                self.spec, copies, self.problems.append, timeout=self.request.timeout, clock=self.clock
            )
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
        found = hash_files(every, self.progress.advance)
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
            refuse_changed(self.repository, copies, files, newest)
            verified = verified_of(self.repository, copies, files, newest)
            reused, known = verified.reused, verified.known
            if verified.lost_files:
                self._note(
                    f"{len(verified.lost_files)} files of the newest snapshot are damaged or missing in "
                    f"{self.repository.url}; they are uploaded again. Check the object store."
                )
        to_put = {
            (of, segment): found
            for of, databases in files.items()
            for segment, found in databases.items()
            if of not in reused
        }
        new = {file.sha256: file.bytes for found in to_put.values() for file in found if file.sha256 not in known}
        with self.phase("upload"):
            self.progress.phase("upload", sum(new.values()), "bytes")
            bases = put_bases(self.repository, list(to_put.values()), known, self._upload_progress(where))
            self.progress.done()
        self.faults.reach("backup.after-files")
        put = dict(zip(to_put, bases, strict=True))
        snapshots = {}
        for copy in copies:
            of = key(copy)
            stored = tuple(StoredDatabase(segment, (), put[of, segment]) for segment in files[of] if of not in reused)
            snapshots[of] = snapshot_of(self.spec, copy, reused.get(of, stored), logs)
        stores = [taken_store(copy, logs, snapshots[key(copy)], new) for copy in copies]
        task_manifests, whole = task_manifests_of(snapshots), is_whole(self.spec, copies, logs)
        if self.request.offline:
            refuse_older(task_manifests, newest)
        has_all = is_unchanged(task_manifests, newest, whole=whole) and not verified.have_moved(bases)
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
            published = publication.publish(task_manifests, whole=whole)
        assert published is not None  # there are task manifests, and none is rebased
        for warning in published.warnings:
            self._note(warning)
        return self._report(
            Outcome.PUBLISHED,
            snapshot=published.snapshot,
            identity=published.identity,
            stores=stores,
            put_bytes=sum(new.values()),
        )

    def _upload_progress(self, where: Path) -> Callable[[int], None]:
        """Counts uploads of several threads, and touches the scratch directory so that it is not cleaned."""

        def done(count: int) -> None:
            with self._counting:
                self.progress.advance(count)
                os.utime(where)

        return done

    def _note(self, note: str) -> None:
        """Record a note and report it as a warning."""
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
            repository=self.repository.url,
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


def _activity(state_dir: str) -> str:
    return f"a snapshot was taken of {state_dir}"
