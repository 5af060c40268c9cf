"""The base of a new copy: a snapshot of its task, where a repository has one, so that only the rest is followed.

A base is fetched into a state directory of its own below the work directory, by the job that fetches for people too
(`fetch.py`), on a thread of its own, one at a time: the other tasks are followed meanwhile, and nothing that is open is
touched. When all of it is there, the task's directory takes its place by one rename. A fetch that is cut short goes on
where it was, in this process or in the next.

What the snapshot knows of the changelogs (topic ids, leader epochs, when they were read) is written beside the task, so
that the task is judged by it like any other copy.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Event

from statecore.changelog.soundness import ParentEnd
from statecore.errors import NotFound, Retryable, StatecoreError
from statecore.faults import NO_FAULTS, FaultPoints
from statecore.filesystem import discard_tree, make_directories, sync_file, write_durably
from statecore.jobs.fetch import run_fetch
from statecore.jobs.fetch_report import FetchReport
from statecore.jobs.fetch_request import FetchRequest
from statecore.placement.state_directory import StateDirectory
from statecore.placement.work_directory import STANDBY
from statecore.progress import NullProgress
from statecore.repository.shelf import Shelf
from statecore.runtime.followed_logs import FollowedLogs
from statecore.runtime.offset_sums import is_empty_task
from statecore.spec.model import ApplicationSpec
from statecore.spec.writer import spec_to_json

_BASE = "base"


class Bases:
    """The bases of one process's tasks; for one thread.

    Args:
        spec: the application; snapshots are held against its stores, and against the topics of its brokers.
        directory: where the copies lie, locked.
        repository: where the snapshots are.
        say: told what an operator should read at once, from either thread.
        faults: where tests let the process die.
    """

    def __init__(
        self,
        spec: ApplicationSpec,
        directory: StateDirectory,
        repository: str,
        say: Callable[[str], None],
        *,
        faults: FaultPoints = NO_FAULTS,
    ) -> None:
        self._spec = spec
        self._directory, self._repository, self._say, self._faults = directory, repository, say, faults
        self._stop = Event()
        self._worker = ThreadPoolExecutor(1, "base")
        self._coming: dict[str, Future[FetchReport | None]] = {}
        self._without: set[str] = set()
        """Tasks that have no base, and are read from the start of their changelogs."""

    def is_coming(self, task: str) -> bool:
        """Whether a task has to wait for its base, which is fetched from now on.

        Returns:
            ``False`` where the task has a directory already, where its base has just been put there, and where there is
            none.

        Raises:
            Retryable: the repository could not be reached; asked again, it is tried again.
            Invalid, Capacity: the base could not be put in its place.
        """
        if task in self._without or not is_empty_task(self._directory.task_path(task)):
            return False
        coming = self._coming.get(task)
        if coming is None:
            self._coming[task] = self._worker.submit(self._fetch, task)
            return True
        if not coming.done():
            return True
        del self._coming[task]
        try:
            report = coming.result()
        except Retryable:
            raise
        except StatecoreError as error:
            self._say(f"Task {task} has no base, and is read from the start of its changelogs: {error}")
            report = None
        if report is None or not self._put(task):
            self._without.add(task)
            return False
        self._say(
            f"Task {task} begins with snapshot {report.snapshot} of {report.repository}, "
            f"{report.downloaded_bytes:,} bytes."
        )
        return False

    def find(self, task: str) -> str | None:
        """The newest snapshot, where it has a task.

        Raises:
            Retryable, Corrupted: the repository could not be read.
        """
        shelf = Shelf.at(self._repository, self._directory.application_id)
        head = shelf.read_head()
        newest = None if head is None else head.head.newest
        if newest is None:
            return None
        parts = shelf.manifest(newest).value.parts
        return newest.snapshot if any(part.task == task for part in parts) else None

    def close(self) -> None:
        """Stop fetching; what came so far is there for the next process."""
        self._stop.set()
        self._worker.shutdown(cancel_futures=True)

    def _work(self, task: str) -> Path:
        return self._directory.work_path / STANDBY / task

    def _beside(self, task: str) -> StateDirectory:
        return StateDirectory(self._work(task) / _BASE, self._directory.application_id)

    def _fetch(self, task: str) -> FetchReport | None:
        beside = self._beside(task)
        make_directories(beside.path.parent)
        declared = self._work(task) / "stores.json"
        write_durably(declared, spec_to_json(self._spec).encode())
        request = FetchRequest(
            repository=self._repository,
            application_id=self._directory.application_id,
            state_dir=str(beside.path.parent),
            tasks=(task,),
            spec_path=str(declared),
            processes=1,
        )
        try:
            report = run_fetch(request, _UntilStopped(self._stop), faults=self._faults)
        except NotFound as error:
            self._say(f"Task {task} is read from the start of its changelogs, because there is no snapshot: {error}")
            return None
        self._remember(task, report)
        return report

    def _remember(self, task: str, report: FetchReport) -> None:
        """Write what the snapshot knows of the changelogs, before the task is where somebody opens it."""
        shelf = Shelf.at(self._repository, self._directory.application_id)
        entry = next(one for one in shelf.head().snapshots if one.snapshot == report.snapshot)
        manifest = shelf.manifest(entry).value
        (reference,) = (part for part in manifest.parts if part.task == task)
        logs = FollowedLogs(self._work(task) / "logs.json")
        for store in shelf.parts([reference])[task].part.stores:
            for end in store.changelogs:
                logs.reached(ParentEnd(end.topic_partition, end.topic_id, end.end, end.leader_epoch, reference.cut_ms))
        logs.write()

    def _put(self, task: str) -> bool:
        beside = self._beside(task)
        fetched, place = beside.task_path(task), self._directory.task_path(task)
        if is_empty_task(fetched):
            return False
        self._faults.reach("base.before-rename")
        discard_tree(place)  # nothing but files of offsets and locks
        make_directories(place.parent)
        fetched.rename(place)
        sync_file(place.parent)
        self._faults.reach("base.after-rename")
        discard_tree(beside.path.parent)
        return True


class _UntilStopped(NullProgress):
    """Ends a fetch between two of its steps, when the process is told to stop."""

    def __init__(self, stop: Event) -> None:
        self._stop = stop

    def phase(self, name: str, total: int | None = None, unit: str = "") -> None:
        """See `Progress`."""
        super().phase(name, total, unit)
        self._check()

    def advance(self, amount: int = 1) -> None:
        """See `Progress`."""
        super().advance(amount)
        self._check()

    def _check(self) -> None:
        if self._stop.is_set():
            raise Retryable("The fetch was stopped.", action="It goes on where it was.")
