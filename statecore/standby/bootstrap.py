"""The base of a new copy: a snapshot of its task, where a repository has one, so that only the rest is followed.

A base is fetched into a state directory of its own below the work directory, by the job that fetches for people too
(`fetch.py`), on a thread of its own, one at a time: the other tasks are followed meanwhile, and nothing that is open is
touched. When all of it is there, the task's directory takes its place by one rename. A fetch that is cut short goes on
where it was, in this process or in the next::

    .statecore/standby/<task>/base/state/      the fetch's state directory
                                   logs.json   what the snapshot knows of the changelogs; it is written last, so it is
                                               the mark that the base is whole
                                   stores.json what the fetch holds the snapshot against

What the snapshot knows of the changelogs (topic ids, leader epochs, when they were read) is put beside the task, so
that the task is judged by it like any other copy.

A base that nobody waits for any more is deleted: it counts for nothing when tasks are given out, so it does not bring
its task back to this process, and what this process follows may need the room. What a process left when it was stopped
or killed stays for a day, because the next one is likely to be given the same tasks (:func:`sweep_bases`).
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from threading import Event

from statecore.errors import Capacity, Invalid, NotFound, Retryable, StatecoreError
from statecore.faults import NO_FAULTS, FaultPoints
from statecore.filesystem import discard_tree, make_directories, remove_durably, sync_file, write_durably
from statecore.formats.releases import CHECKPOINT_FILE
from statecore.formats.task_id import TaskId
from statecore.jobs.bases.base import base_end
from statecore.jobs.fetch.report import FetchReport
from statecore.jobs.fetch.request import FetchRequest
from statecore.jobs.fetch.run import run_fetch
from statecore.objectstore.base import PATIENT, Patience
from statecore.progress import NullProgress
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.repository import place_of
from statecore.spec.model import ApplicationSpec
from statecore.spec.writer import spec_to_json
from statecore.statedir.state_directory import StateDirectory
from statecore.statedir.work_directory import STANDBY
from statecore.tasks.offset_sums import is_empty_task
from statecore.tasks.standby_log_state import StandbyLogStates

KEPT_MS = 86_400_000
"""How long a base that is not whole, or not in its place, is kept from one process to the next: a day, as the files of
any fetch are."""

LOOK_SECONDS = 5.0
"""How long a start waits at most for the repository to say that it is there."""

_SLICE = 0.1
_BASE, _LOGS = "base", "logs.json"


def sweep_bases(
    directory: StateDirectory, now_ms: int, keep_ms: int = KEPT_MS, *, faults: FaultPoints = NO_FAULTS
) -> None:
    """Delete what earlier processes left of bases: of tasks that have a directory, and of others after a while.

    Args:
        directory: the application's, locked; nobody fetches a base in it.
        now_ms: the time.
        keep_ms: how long a base stays that nobody has gone on with.
        faults: where tests let the process die.

    Raises:
        Fenced: the lock is not held.
    """
    directory.check_locked()
    below = directory.work_path / STANDBY
    for base in (*below.glob(f"*/{_BASE}"), *below.glob(f"__*__/*/{_BASE}")):
        task = base.parent.relative_to(below).as_posix()
        if TaskId.match(task) is None:
            continue
        if not is_empty_task(directory.task_path(task)) or now_ms - _written_ms(base) > keep_ms:
            _discard(base, faults)


def _discard(base: Path, faults: FaultPoints = NO_FAULTS) -> None:
    """Delete a base; first what says that it is whole, because whoever finds a part of it would believe that."""
    remove_durably(base / _LOGS)
    faults.reach("base.during-discard")
    discard_tree(base)


def _written_ms(base: Path) -> float:
    """When something in a base was written last, in ms since the epoch."""
    times = [base.stat().st_mtime]
    for path, directories, files in os.walk(base):
        times += [os.lstat(os.path.join(path, name)).st_mtime for name in (*directories, *files)]  # noqa: PTH118
    return 1000 * max(times)


@dataclass(frozen=True)
class _Coming:
    """A base on its way.

    Attributes:
        stop: set to end the fetch.
        fetched: what it is, in words; ``None`` where there is none.
    """

    stop: Event
    fetched: Future[str | None]


class _NoRepositoryError(Exception):
    """Around why the repository cannot be looked into, which says nothing of whether it has a snapshot."""

    def __init__(self, why: StatecoreError) -> None:
        super().__init__(str(why))
        self.why = why


class Bases:
    """The bases of one process's tasks; for one thread.

    Args:
        spec: the application; snapshots are held against its stores, and against the topics of its brokers.
        directory: where the copies lie, locked.
        repository: where the snapshots are.
        say: told what an operator should read at once, from either thread.
        patience: how long the repository's server may let this process wait.
        faults: where tests let the process die.
        open_shelf: opens a repository.
        fetch: fetches a task.

    Raises:
        Invalid: there can be no repository at the URL, or no client for it.
    """

    def __init__(
        self,
        spec: ApplicationSpec,
        directory: StateDirectory,
        repository: str,
        say: Callable[[str], None],
        *,
        patience: Patience = PATIENT,
        faults: FaultPoints = NO_FAULTS,
        open_shelf: Callable[[str, str, Patience], ApplicationRepository] = ApplicationRepository.at,
        fetch: Callable[..., FetchReport] = run_fetch,
    ) -> None:
        place_of(repository)
        self._open_shelf, self._run_fetch = open_shelf, fetch
        self._spec, self._patience = spec, patience
        self._directory, self._repository, self._say, self._faults = directory, repository, say, faults
        self._worker = ThreadPoolExecutor(1, "base")
        self._coming: dict[str, _Coming] = {}
        self._without: set[str] = set()
        """Tasks that have no base, and are read from the start of their changelogs."""
        self._said_none = False

    def look(self, stop: Event, seconds: float = LOOK_SECONDS) -> None:
        """See, before anything is done, whether there is a repository. One that is away may come back.

        A process that has copies starts with them: it does not need the repository before a task without one is there.

        Args:
            stop: set to wait no longer.
            seconds: how long to wait at most.

        Raises:
            NotFound: there is no repository at the URL; this object is closed.
            Invalid, Corrupted: it cannot be used, and there is no copy here; this object is closed.
        """
        looking = self._worker.submit(lambda: self._open().read_head())
        until = time.monotonic() + seconds
        while not looking.done() and not stop.is_set() and time.monotonic() < until:
            wait([looking], _SLICE)
        if not looking.done():
            if not stop.is_set():
                self._say(
                    f"The repository {self._repository} has not answered within {seconds:g} s; tasks that have no copy "
                    "here wait for it."
                )
            return
        try:
            looking.result()
        except StatecoreError as error:
            if not isinstance(error, Retryable) and (isinstance(error, NotFound) or not self._has_copies()):
                self.close()
                raise
            self._say(f"{error} Tasks that have no copy here wait for it.")

    def _has_copies(self) -> bool:
        tasks = self._directory.task_directories()
        return not all(is_empty_task(self._directory.task_path(task)) for task in tasks)

    def _open(self) -> ApplicationRepository:
        return self._open_shelf(self._repository, self._directory.application_id, self._patience)

    def is_coming(self, task: str) -> bool:
        """Whether a task has to wait for its base, which is fetched from now on.

        Returns:
            ``False`` where the task has a directory already, where its base has just been put there, and where there is
            none.

        Raises:
            Retryable, NotFound, Invalid: the repository could not be reached, is not there, or may not be looked into;
                or the base could not be put in its place. Asked again, it is tried again.
            Capacity: there is no room for it, and so none to read the task from the start of its changelogs either;
                what came of it stays, and asked again, it goes on.
        """
        if task in self._without:
            return False
        if not is_empty_task(self._directory.task_path(task)):
            self.give_up(task)  # somebody put a directory there meanwhile, and that is what is followed
            return False
        coming = self._coming.get(task)
        if coming is None:
            stop = Event()
            self._coming[task] = _Coming(stop, self._worker.submit(self._fetch, task, stop))
            return True
        if not coming.fetched.done():
            return True
        del self._coming[task]
        try:
            base = coming.fetched.result()
        except (Retryable, Capacity):
            raise
        except _NoRepositoryError as error:
            raise error.why from error
        except StatecoreError as error:
            self._say(f"Task {task} has no base, and is read from the start of its changelogs: {error}")
            base = None
        if base is None:
            self._without.add(task)
        elif self._put(task):
            self._say(f"Task {task} begins with {base}.")
        self._worker.submit(_discard, self._base(task), self._faults)
        return False

    def give_up(self, task: str) -> None:
        """Fetch the base of a task no longer, and delete what came of it; nothing where there is none.

        Returns at once: the fetch ends between two of its steps.
        """
        self._without.discard(task)  # when it comes back, there may be a snapshot
        coming = self._coming.pop(task, None)
        if coming is not None:
            coming.stop.set()
            coming.fetched.cancel()
        if coming is not None or self._base(task).exists():
            self._worker.submit(_discard, self._base(task), self._faults)  # behind the fetch, by the same thread

    def find(self, task: str) -> str | None:
        """The newest snapshot, where it has a task.

        Raises:
            Retryable, Corrupted: the repository could not be read.
        """
        shelf = self._open()
        head = shelf.read_head()
        newest = None if head is None else head.head.newest
        if newest is None:
            return None
        parts = shelf.manifest(newest).value.parts
        return newest.snapshot if any(part.task == task for part in parts) else None

    def close(self) -> None:
        """Stop fetching; what came so far is there for the next process."""
        for coming in self._coming.values():
            coming.stop.set()
        self._worker.shutdown(cancel_futures=True)

    def _work(self, task: str) -> Path:
        return self._directory.work_path / STANDBY / task

    def _base(self, task: str) -> Path:
        return self._work(task) / _BASE

    def _beside(self, task: str) -> StateDirectory:
        return StateDirectory(self._base(task) / "state", self._directory.application_id)

    def _fetch(self, task: str, stop: Event) -> str | None:
        base, beside = self._base(task), self._beside(task)
        if (base / _LOGS).exists() and not is_empty_task(beside.task_path(task)):
            return f"a snapshot of {self._repository} that an earlier process has fetched"
        try:
            shelf = self._open()
        except (NotFound, Invalid) as error:
            raise _NoRepositoryError(error) from error
        try:
            shelf.head()
        except NotFound as error:
            self._say_none(error)
            return None
        make_directories(beside.path.parent)
        remove_durably(base / _LOGS)
        declared = base / "stores.json"
        write_durably(declared, spec_to_json(self._spec).encode())
        request = FetchRequest(
            repository=self._repository,
            application_id=self._directory.application_id,
            state_dir=str(beside.path.parent),
            tasks=(task,),
            spec_path=str(declared),
            processes=1,
            replace=True,  # a task that is there without its logs: nobody can tell which snapshot it is of
        )
        try:
            report = self._run_fetch(request, _UntilStopped(stop), faults=self._faults, shelf=shelf)
        except NotFound as error:
            self._say_none(error)
            return None
        self._said_none = False
        self._remember(task, report, shelf)
        return f"snapshot {report.snapshot} of {report.repository}, {report.downloaded_bytes:,} bytes"

    def _say_none(self, error: NotFound) -> None:
        """Once for all tasks."""
        if not self._said_none:
            self._say(f"Each new copy is read from the start of its changelogs, because there is no snapshot: {error}")
        self._said_none = True

    def _remember(self, task: str, report: FetchReport, shelf: ApplicationRepository) -> None:
        """Write what the snapshot knows of the changelogs."""
        entry = shelf.head().entry(report.snapshot)
        if entry is None:
            raise Retryable(
                f"The head of {shelf.url} names the snapshot {report.snapshot} no more.",
                code="snapshot-deleted",
                action="A newer one is fetched.",
                task=task,
                snapshot=report.snapshot,
            )
        manifest = shelf.manifest(entry).value
        (reference,) = (part for part in manifest.parts if part.task == task)
        logs = StandbyLogStates(self._base(task) / _LOGS)
        for store in shelf.parts([reference])[task].part.stores:
            for end in store.changelogs:
                logs.reached(base_end(end, store.cut_ms, store.horizon_ms))
        logs.write()

    def _put(self, task: str) -> bool:
        """Put a base in its place; whether nothing was there."""
        place = self._directory.task_path(task)
        write_durably(self._work(task) / _LOGS, (self._base(task) / _LOGS).read_bytes())  # before somebody opens it
        self._faults.reach("base.before-rename")
        make_directories(place.parent)
        try:
            _make_room(place)
            self._beside(task).task_path(task).rename(place)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            remove_durably(self._work(task) / _LOGS)
            self._say(f"Task {task} has a directory meanwhile, and does not begin with a snapshot.")
            return False
        sync_file(place.parent)
        self._faults.reach("base.after-rename")
        return True


def _make_room(place: Path) -> None:
    """Delete what an empty task directory has (:func:`is_empty_task`), so that a rename may replace it."""
    if place.is_dir():
        for one in place.iterdir():
            if one.name.startswith(CHECKPOINT_FILE) or one.name.endswith(".lock"):
                one.unlink()


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
            raise Retryable("The fetch was stopped.", code="fetch-stopped", action="It goes on where it was.")
