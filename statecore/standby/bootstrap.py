"""Base snapshots of new standby tasks: fetched from a repository, so that only the tail is read from the changelogs.

A base is fetched into a separate state directory below the work directory, by the fetch job (`statecore.jobs.fetch`),
on a thread of its own, one at a time; meanwhile the other tasks are followed and no open database is touched. A
complete base replaces the task's directory by one rename. An interrupted fetch is resumed, by this process or the
next::

    .statecore/standby/<task>/base/state/      the fetch's state directory
                                   logs.json   the snapshot's record of the changelogs; written last, so it marks the
                                               base as complete
                                   stores.json the spec that the fetch validates the snapshot against

The snapshot's record of the changelogs (topic ids, leader epochs, read times) is stored beside the task, so that
the task is validated like any other copy.

A base left by a process that was stopped or killed stays for a day, because the next one is likely to be assigned the
same tasks (:func:`sweep_bases`).
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
from statecore.objectstore.base import DEFAULT_RETRIES, RetryPolicy
from statecore.progress import NullProgress
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.object_store import object_store_of
from statecore.spec.model import ApplicationSpec
from statecore.spec.writer import spec_to_json
from statecore.statedir.state_directory import StateDirectory
from statecore.statedir.work_directory import STANDBY, STANDBY_LOGS
from statecore.tasks.offset_sums import is_empty_task
from statecore.tasks.standby_log_state import StandbyLogStates

RETENTION_MS = 86_400_000  # How long an unused base is kept after its process ended: a day, like the files of any fetch
CHECK_SECONDS = 5.0  # How long a start waits for the repository at most
_SLICE = 0.1
_BASE = "base"


def sweep_bases(directory: StateDirectory, now_ms: int, *, faults: FaultPoints = NO_FAULTS) -> None:
    """Delete bases of earlier processes: those of tasks that have a directory, and others after a day."""
    directory.check_locked()
    below = directory.work_path / STANDBY
    for base in below.glob(f"*/{_BASE}"):
        task = base.parent.name
        if TaskId.match(task) is None:
            continue
        if not is_empty_task(directory.task_path(task)) or now_ms - _written_ms(base) > RETENTION_MS:
            _discard(base, faults)


def _discard(base: Path, faults: FaultPoints = NO_FAULTS) -> None:
    """Delete a base; the file that marks it as complete first, because a partial one must not be used."""
    remove_durably(base / STANDBY_LOGS)
    faults.reach("base.during-discard")
    discard_tree(base)


def _written_ms(base: Path) -> float:
    """Newest modification time in a base, in ms since the epoch."""
    times = [base.stat().st_mtime]
    for path, directories, files in os.walk(base):
        times += [os.lstat(os.path.join(path, name)).st_mtime for name in (*directories, *files)]  # noqa: PTH118
    return 1000 * max(times)


@dataclass(frozen=True)
class _PendingFetch:
    """A base that is being fetched."""

    stop: Event  # set to end the fetch
    fetched: Future[str]  # description of the base; raises ``NotFound`` if there is none


class _NoRepositoryError(Exception):
    """Wraps an error of opening the repository, which does not say whether it has a snapshot."""

    def __init__(self, why: StatecoreError) -> None:
        super().__init__(str(why))
        self.why = why


class BaseDownloads:
    """The base snapshots of one process's tasks; for one thread."""

    def __init__(
        self,
        spec: ApplicationSpec,
        directory: StateDirectory,
        repository: str,
        say: Callable[[str], None],
        *,
        patience: RetryPolicy = DEFAULT_RETRIES,
        faults: FaultPoints = NO_FAULTS,
        open_repository: Callable[[str, str, RetryPolicy], ApplicationRepository] = ApplicationRepository.open,
        fetch: Callable[..., FetchReport] = run_fetch,
    ) -> None:
        object_store_of(repository)
        self._open_repository, self._run_fetch = open_repository, fetch
        self._spec, self._patience = spec, patience
        self._directory, self._repository, self._say, self._faults = directory, repository, say, faults
        self._worker = ThreadPoolExecutor(1, "base")
        self._pending: dict[str, _PendingFetch] = {}
        self._without_base: set[str] = set()  # Tasks without a base; they are read from the start of their changelogs
        self._reported_none = False

    def check_repository(self, stop: Event, seconds: float = CHECK_SECONDS) -> None:
        """Check at the start whether the repository exists; one that does not answer may come back.

        A process with copies starts with them: it needs the repository only for a task without one.
        """
        check = self._worker.submit(lambda: self._open().read_head())
        until = time.monotonic() + seconds
        while not check.done() and not stop.is_set() and time.monotonic() < until:
            wait([check], _SLICE)
        if not check.done():
            if not stop.is_set():
                self._say(
                    f"The repository {self._repository} has not answered within {seconds:g} s; tasks that have no copy "
                    "here wait for it."
                )
            return
        try:
            check.result()
        except StatecoreError as error:
            if not isinstance(error, Retryable) and (isinstance(error, NotFound) or not self._has_copies()):
                self.close()
                raise
            self._say(f"{error} Tasks that have no copy here wait for it.")

    def _has_copies(self) -> bool:
        tasks = self._directory.task_directories()
        return not all(is_empty_task(self._directory.task_path(task)) for task in tasks)

    def _open(self) -> ApplicationRepository:
        return self._open_repository(self._repository, self._directory.application_id, self._patience)

    def prepare(self, task: str) -> bool:
        """Fetch a task's base, or move the fetched one into place; returns whether the task may be opened now.

        Raises:
            Retryable, Capacity: the fetch failed; the next call starts another one.
        """
        if task in self._without_base:
            return True
        if not is_empty_task(self._directory.task_path(task)):
            self.cancel_fetch(task)  # a directory was created meanwhile; that one is followed
            return True
        pending = self._pending.get(task)
        if pending is None:
            stop = Event()
            self._pending[task] = _PendingFetch(stop, self._worker.submit(self._fetch, task, stop))
            return False
        if not pending.fetched.done():
            return False
        del self._pending[task]
        try:
            base = pending.fetched.result()
        except (Retryable, Capacity):
            raise
        except _NoRepositoryError as error:
            raise error.why from error
        except NotFound as error:
            self._report_none(error)
            self._without_base.add(task)
        except StatecoreError as error:
            self._say(f"Task {task} has no base snapshot and is read from the start of its changelogs: {error}")
            self._without_base.add(task)
        else:
            self._reported_none = False
            if self._put(task):
                self._say(f"Task {task} starts from {base}.")
        self._worker.submit(_discard, self._base(task), self._faults)
        return True

    def cancel_fetch(self, task: str) -> None:
        """Cancel the fetch of a task's base and delete its files. Returns at once: the fetch ends between two steps."""
        self._without_base.discard(task)  # when the task is added again, there may be a snapshot
        pending = self._pending.pop(task, None)
        if pending is not None:
            pending.stop.set()
            pending.fetched.cancel()
        if pending is not None or self._base(task).exists():
            self._worker.submit(_discard, self._base(task), self._faults)  # after the fetch, on the same thread

    def find_snapshot(self, task: str) -> str | None:
        """The id of the newest snapshot if it has a task."""
        repository = self._open()
        head = repository.read_head()
        newest = None if head is None else head.head.newest
        if newest is None:
            return None
        references = repository.manifest(newest).value.task_manifests
        return newest.snapshot if any(reference.task == task for reference in references) else None

    def close(self) -> None:
        """Stop fetching; partial fetches stay for the next process."""
        for pending in self._pending.values():
            pending.stop.set()
        self._worker.shutdown(cancel_futures=True)

    def _work(self, task: str) -> Path:
        return self._directory.work_path / STANDBY / task

    def _base(self, task: str) -> Path:
        return self._work(task) / _BASE

    def _fetch_directory(self, task: str) -> StateDirectory:
        return StateDirectory(self._base(task) / "state", self._directory.application_id)

    def _fetch(self, task: str, stop: Event) -> str:
        base, fetch_directory = self._base(task), self._fetch_directory(task)
        if (base / STANDBY_LOGS).exists() and not is_empty_task(fetch_directory.task_path(task)):
            return f"a snapshot of {self._repository} that an earlier process has fetched"
        try:
            repository = self._open()
        except (NotFound, Invalid) as error:
            raise _NoRepositoryError(error) from error
        repository.head()
        make_directories(fetch_directory.path.parent)
        remove_durably(base / STANDBY_LOGS)
        declared = base / "stores.json"
        write_durably(declared, spec_to_json(self._spec).encode())
        request = FetchRequest(
            repository=self._repository,
            application_id=self._directory.application_id,
            state_dir=str(fetch_directory.path.parent),
            tasks=(task,),
            spec_path=str(declared),
            processes=1,
            replace=True,  # an existing task without logs.json: its snapshot is unknown
        )
        report = self._run_fetch(request, _UntilStopped(stop), faults=self._faults, shared_repository=repository)
        self._write_logs(task, report, repository)
        return f"snapshot {report.snapshot} of {report.repository}, {report.downloaded_bytes:,} bytes"

    def _report_none(self, error: NotFound) -> None:
        """Report once for all tasks that there is no snapshot."""
        if not self._reported_none:
            self._say(f"New copies are read from the start of their changelogs, because there is no snapshot: {error}")
        self._reported_none = True

    def _write_logs(self, task: str, report: FetchReport, repository: ApplicationRepository) -> None:
        """Write the snapshot's record of the changelogs."""
        entry = repository.head().entry(report.snapshot)
        if entry is None:
            raise Retryable(
                f"The head of {repository.url} no longer lists the snapshot {report.snapshot}.",
                code="snapshot-deleted",
                action="A newer one is fetched.",
                task=task,
                snapshot=report.snapshot,
            )
        manifest = repository.manifest(entry).value
        (reference,) = (reference for reference in manifest.task_manifests if reference.task == task)
        logs = StandbyLogStates(self._base(task) / STANDBY_LOGS)
        for store in repository.task_manifests([reference])[task].manifest.stores:
            for end in store.changelogs:
                logs.record_end(base_end(end, store.read_at_ms, store.delete_retention_ms))
        logs.write()

    def _put(self, task: str) -> bool:
        """Move a base to the task's directory; returns whether there was none."""
        path = self._directory.task_path(task)
        write_durably(
            self._work(task) / STANDBY_LOGS, (self._base(task) / STANDBY_LOGS).read_bytes()
        )  # before the task is opened
        self._faults.reach("base.before-rename")
        make_directories(path.parent)
        try:
            _make_room(path)
            self._fetch_directory(task).task_path(task).rename(path)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            remove_durably(self._work(task) / STANDBY_LOGS)
            self._say(f"Task {task} got a directory meanwhile, and does not start from a snapshot.")
            return False
        sync_file(path.parent)
        self._faults.reach("base.after-rename")
        return True


def _make_room(path: Path) -> None:
    """Empty a task directory without state, so that a rename may replace it; one that got state meanwhile stays."""
    if path.is_dir() and is_empty_task(path):
        for one in path.iterdir():
            if one.name.startswith(CHECKPOINT_FILE) or one.name.endswith(".lock"):
                one.unlink()


class _UntilStopped(NullProgress):
    """Progress that ends a fetch between two steps when the process is stopped."""

    def __init__(self, stop: Event) -> None:
        self._stop = stop

    def phase(self, name: str, total: int | None = None, unit: str = "") -> None:
        super().phase(name, total, unit)
        self._check()

    def advance(self, amount: int = 1) -> None:
        super().advance(amount)
        self._check()

    def _check(self) -> None:
        if self._stop.is_set():
            raise Retryable("The fetch was stopped.", code="fetch-stopped", action="The next run resumes it.")
