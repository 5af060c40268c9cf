"""Backup of a state directory: publishes Kafka Streams' databases file by file.

Phases, and why a kill at any point is harmless::

    inspect   the head of the repository                   a retry finds what an earlier attempt published
    link      under the application's .lock, or beside     in a scratch directory of the application, which the
              the running application: hard links of a     next backup cleans
              consistent state; then the lock is released
    check     compare offsets with the brokers' logs       nothing was changed before this point
    hash      every file, from the disk                    the same
    compare   verify what the newest snapshot already has  the same
    upload    new files                                    garbage, or what a retry finds
    publish   task manifests, manifest, head               (statecore.repository.publish.publication)

A backup has all requested stores: if one cannot be copied, nothing is published, and all reasons are reported at
once. If nothing has changed since the newest snapshot, no new one is published.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from statecore.jobs.backup.changed_files import refuse_changed
from statecore.jobs.backup.changelog_check import check_changelogs
from statecore.jobs.backup.files import hashed_files, upload_files
from statecore.jobs.backup.link import link_stores
from statecore.jobs.backup.newest_snapshot import (
    GLOBAL_TASKS,
    furthest_global_stores,
    is_unchanged,
    read_newest,
    refuse_older,
    verify_files,
    without_known_global_stores,
)
from statecore.jobs.backup.report import (
    BackupOutcome,
    BackupReport,
    backup_report,
    planned_stores,
    published_stores,
)
from statecore.jobs.backup.request import BackupRequest
from statecore.jobs.backup.task_manifests import is_whole, publication_of, task_manifests_of
from statecore.jobs.context import JobContext
from statecore.jobs.failures import translated_errors
from statecore.jobs.job import Job
from statecore.jobs.job_home import RepositoryHome
from statecore.progress import Progress
from statecore.words import WARNING


def run_backup(request: BackupRequest, progress: Progress | None = None, **opened: Any) -> BackupReport:
    """Publish stores of one application from its state directory; nothing with ``request.plan_only``."""
    with translated_errors(_activity(request.state_dir)):
        return _Backup(JobContext.open(request, progress, **opened)).run()


class _Backup(Job):
    """One attempt of a backup. It freezes no plan: a retry starts over, and finds what was published."""

    def __init__(self, context: JobContext[BackupRequest]) -> None:
        self.request, self.directory = context.request, context.existing_directory()
        self.repository = context.repository
        doing = _activity(self.request.state_dir)
        super().__init__(context, RepositoryHome(self.repository, self.request.request_id), doing)
        self.notes: list[str] = []

    def run(self) -> BackupReport:
        with self.phase("inspect"):
            publication = publication_of(self)
            earlier = publication.earlier()
        if earlier is not None:
            self._warn(
                f"Nothing was read, because the request {self.request.request_id} had published this snapshot. To "
                "back up what is there now, give another --request-id, or none."
            )
            return backup_report(
                self,
                BackupOutcome.EARLIER,
                snapshot=earlier.snapshot,
                identity=earlier.identity,
                notes=self.notes,
            )
        if not self.request.plan_only:
            self.repository.check_writable()
        with ExitStack() as until_done:
            with self.phase("link"):
                linked = link_stores(self, self.directory, until_done)
                self.notes += linked.notes
            self.faults.reach("backup.after-links")
            with self.phase("check"):
                logs = check_changelogs(self, linked.copies)
                publication.check_cluster(logs.cluster_id)
            newest = read_newest(self.repository, linked.tasks)
            copies = without_known_global_stores(self.repository, linked.copies, logs.ends, linked.listed, newest)
            if kept := sorted({copy.key[1] for copy in linked.copies} - {copy.key[1] for copy in copies}):
                self.notes.append(f"Global stores stay as in the newest snapshot, which is as far: {', '.join(kept)}.")
                self.say(self.notes[-1])
            if self.request.plan_only:
                stores = planned_stores(copies, logs, linked.listed, newest)
                return backup_report(self, BackupOutcome.PLANNED, linked, stores=stores, notes=self.notes)
            with self.phase("hash"):
                files = hashed_files(copies, self.progress)
            self.faults.reach("backup.after-hashes")
            with self.phase("compare"):
                refuse_changed(self.repository, copies, files, newest)
                verified = verify_files(self.repository, copies, files, newest)
                if verified.lost_files:
                    self._warn(
                        f"{len(verified.lost_files)} files of the newest snapshot are damaged or missing in "
                        f"{self.repository.url}; they are uploaded again. Check the object store."
                    )
            with self.phase("upload"):
                to_put = {of: its for of, its in files.items() if of not in verified.reused}
                uploaded = upload_files(self.repository, to_put, verified.known, self.progress)
            self.faults.reach("backup.after-files")
            databases = {**verified.reused, **uploaded.databases}
            manifests, whole = task_manifests_of(self.spec, copies, databases, logs), is_whole(self.spec, copies, logs)
            if self.request.offline:
                refuse_older(manifests, newest)
            has_all = is_unchanged(manifests, newest, whole=whole) and not verified.have_moved(
                uploaded.databases.values()
            )
            if newest.manifest is not None and has_all:
                outcome, snapshot, identity = (
                    BackupOutcome.UNCHANGED,
                    newest.manifest.snapshot,
                    newest.manifest.identity,
                )
            else:
                with self.phase("publish"):
                    published = publication.publish(
                        manifests, drops_other_tasks=whole, rebase=furthest_global_stores, rebased_tasks=GLOBAL_TASKS
                    )
                if published is not None:
                    for warning in published.warnings:
                        self._warn(warning)
                    outcome, snapshot, identity = BackupOutcome.PUBLISHED, published.snapshot, published.identity
                else:  # there were global stores alone, and another instance has published them meanwhile
                    entry = self.repository.head().snapshots[0]
                    outcome, snapshot, identity = BackupOutcome.UNCHANGED, entry.snapshot, entry.identity
            return backup_report(
                self,
                outcome,
                linked,
                snapshot=snapshot,
                identity=identity,
                stores=published_stores(copies, logs, databases, uploaded.new.keys()),
                put_bytes=sum(uploaded.new.values()),
                notes=self.notes,
            )

    def _warn(self, note: str) -> None:
        self.notes.append(WARNING + note)
        self.say(WARNING + note)


def _activity(state_dir: str) -> str:
    return f"{state_dir} was backed up"
