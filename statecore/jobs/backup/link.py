"""Links a consistent state of all stores: under the application's lock, or beside the running application."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

from statecore.errors import Fenced, NotFound, Reason
from statecore.formats.releases import CHECKPOINT_FILE, CURRENT, GLOBAL, LOCK_FILE
from statecore.jobs.backup.copies import Copier, StoreCopy
from statecore.jobs.backup.files import Files, listed_files
from statecore.jobs.backup.stores import Problems, Refuse, select_stores_on_disk
from statecore.jobs.job import Job
from statecore.statedir.checkpoint_overlay import overriding
from statecore.statedir.link_scratch import scratch
from statecore.statedir.open_stores import refuse_open_stores
from statecore.statedir.state_directory import StateDirectory
from statecore.stores.lock_holder import lock_holder
from statecore.stores.rocksdb.directory_lock import writer_of


class LinkedStores(NamedTuple):
    """Copies of the stores to publish.

    Attributes:
        tasks: requested tasks, or all existing ones.
        listed: files of each store, if only a plan was requested; its copies are deleted already.
    """

    tasks: Sequence[str]
    copies: Sequence[StoreCopy]
    listed: Files
    notes: Sequence[str]
    running: bool


def link_stores(job: Job, directory: StateDirectory, until_done: ExitStack) -> LinkedStores:
    """Link a consistent state of all stores, then release the lock; ``until_done`` deletes the scratch directory."""
    plan_only, problems = job.context.request.plan_only, Problems()
    with _locked(job, directory, until_done) as running:
        job.faults.reach("backup.after-lock")
        selection = select_stores_on_disk(directory, job.spec, job.context.request, problems.add)
        notes = list(selection.notes)
        if not running:
            for task in selection.tasks:
                refuse_open_stores(directory.task_path(task))
        problems.check()  # before anything is linked
        where = until_done.enter_context(scratch(directory))
        job.progress.phase("link", len(selection.stores), "stores")
        copier = Copier(where, job.spec, running=running, refuse=problems.add, note=notes.append)
        copies = []
        for store in selection.stores:
            copy = copier.copy(store)
            if copy is not None:
                copies.append(copy)
            job.progress.advance()
        _check_files(directory, selection.tasks, copies, problems.add)
        listed = {copy.key: listed_files(copy) for copy in copies} if plan_only else {}
        job.progress.done()
    problems.check()
    if not copies:
        raise NotFound(
            f"{directory.path} has no store to publish.",
            code="nothing-to-publish",
            action="Check the request and the spec.",
            state_dir=str(directory.state_dir),
        )
    for note in notes:
        job.say(f"note: {note}")
    if not running and not plan_only:
        job.say("All files are linked: the application may be started.")
    return LinkedStores(selection.tasks, copies, listed, notes, running)


@contextmanager
def _locked(job: Job, directory: StateDirectory, until_done: ExitStack) -> Iterator[bool]:
    """Hold the application's lock, or work beside the application that holds it; yields whether it is running."""
    try:
        lock = directory.lock()
    except Fenced:
        if not _application_runs(directory):
            raise
        job.say(f"The application is running in {directory.path}: its flushed state is copied.")
        yield True
        return
    with lock:
        yield False
        if job.context.request.plan_only:
            until_done.close()
            lock.withdraw()


def _application_runs(directory: StateDirectory) -> bool:
    """Whether the lock holder is the application; other jobs have no store open."""
    holder = lock_holder(directory.path / LOCK_FILE)
    if holder is None or holder.process == os.getpid():
        return False
    writers = (
        writer_of(database)
        for task in [*directory.task_directories(), GLOBAL]
        for store in directory.stores(task)
        for database in store.databases
    )
    return any(writer is not None and writer.process == holder.process for writer in writers)


def _check_files(directory: StateDirectory, tasks: Sequence[str], copies: Sequence[StoreCopy], refuse: Refuse) -> None:
    """Refuse stores whose offsets differ from ``.checkpoint``, which overrides them at the next start."""
    for task in tasks:
        path = directory.task_path(task)
        for copy in copies:
            if copy.selected.task != task:
                continue
            for partition, other in sorted(overriding(path, copy.offsets, ()).items()):
                what = (
                    f"{copy.selected.name} has offset {copy.offsets[partition]} of {partition}, and "
                    f"{path / CHECKPOINT_FILE} has {other}, which the application uses at its next start. Start it on "
                    f"{CURRENT.name} once and close it, or delete the file if it is a leftover."
                )
                refuse(Reason(what, "checkpoint-file-mismatch", task=task, store=copy.selected.spec.name))
