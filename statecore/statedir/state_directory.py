"""Layout and lock of an application's state directory.

What Kafka Streams 4.3 and later keeps there (``StateDirectory``, ``RocksDBStore.openDB``, ``AbstractSegments``)::

    <state.dir>/
      <application id>/
        .lock                                 empty; fcntl lock, held while the application or a job of ours runs
        kafka-streams-process-metadata        {"processId": ...}; written by the application if missing
        <subtopology>_<partition>/            a task
          rocksdb/<store>/                    key-value, timestamped, headers, versioned, list
          <store>/<store>.<segment start ms>/ windows, sessions
          .checkpoint, .checkpoint_<store>    offsets outside the databases (older versions; some stores)
          <store>.position                    left over from older versions
        global/                               global stores, in the same two layouts
        .statecore/                           ours: staging, plans, journal. Kafka Streams ignores it, and on the same
                                              file system a move is a rename
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from statecore.errors import Capacity, Fenced, Invalid, StatecoreError
from statecore.filesystem import READ_ONLY_ACTION, is_read_only, is_virtual_file_system, sync_file
from statecore.formats.kinds import StoreKind
from statecore.formats.releases import GLOBAL, LOCK_FILE, PLAIN_PARENT, PROCESS_FILE
from statecore.formats.task_id import TaskId
from statecore.statedir.application_lock import ApplicationLock, remove_empty
from statecore.statedir.file_ownership import INITIAL_MODE, FileOwnership, decide_ownership, is_incomplete, this_process
from statecore.statedir.open_stores import holder_without_lock, refuse_lost_lock
from statecore.statedir.task_layout import StoreDirectory, directories_in, stores_in
from statecore.statedir.work_directory import PLANS, STANDBY, STANDBY_LOGS
from statecore.stores.lock_holder import Holder, lock_holder
from statecore.system_errors import system_error

WORK_DIRECTORY = ".statecore"

_LOCK_ATTEMPTS = 20

_NAMED_TOPOLOGY = re.compile(r"__[a-zA-Z0-9._-]+__")


def store_directory(store: str, kind: StoreKind) -> str:
    """A store's directory relative to its task's: ``rocksdb/<store>``, or ``<store>`` if it has segments."""
    return store if kind.is_segmented else f"{PLAIN_PARENT}/{store}"


class StateDirectory:
    """The directory of one application on this machine. Creates nothing before :meth:`lock`.

    Args:
        state_dir: Kafka Streams' ``state.dir``.
        application_id: its ``application.id``.
        owner: ``user[:group]`` of placed files; ``None`` copies the owner of the existing directory.
    """

    def __init__(self, state_dir: Path, application_id: str, owner: str | None = None) -> None:
        self.state_dir = Path(state_dir)
        self.application_id = application_id
        self._owner = owner
        self._lock: ApplicationLock | None = None

    @property
    def path(self) -> Path:
        """``<state.dir>/<application id>``."""
        return self.state_dir / self.application_id

    @property
    def work_path(self) -> Path:
        """The work directory for staging, plans and the journal: ``<application>/.statecore``."""
        return self.path / WORK_DIRECTORY

    def task_path(self, task: str) -> Path:
        """The directory of a task (``0_1``) or of ``global``. Raises ``ValueError`` for any other name."""
        TaskId.parse(task)
        return self.path / task

    @property
    def global_path(self) -> Path:
        """The directory of the global stores: ``<application>/global``."""
        return self.path / GLOBAL

    def store_path(self, task: str, store: str, kind: StoreKind) -> Path:
        """The directory of a store of a task."""
        return self.task_path(task) / store_directory(store, kind)

    def stores(self, task: str) -> list[StoreDirectory]:
        """The stores with a directory in a task, or in ``global``; none if the task has no directory."""
        return stores_in(self.task_path(task))

    def task_directories(self) -> list[str]:
        """The tasks with a directory, in numeric order, without ``global``. Raises ``Invalid`` for named topologies."""
        found: list[str] = []
        for path in directories_in(self.path):
            if _is_task(path.name):
                found.append(path.name)
            elif _NAMED_TOPOLOGY.fullmatch(path.name) and any(_is_task(task.name) for task in directories_in(path)):
                raise Invalid(
                    f"{path} has tasks of a named topology.",
                    code="named-topology-unsupported",
                    action="Leave this directory to Kafka Streams; nothing was changed.",
                    path=str(path),
                )
        return sorted(found, key=lambda task: TaskId.parse(task).order)

    def every_task(self) -> list[str]:
        """The tasks with a directory, as :meth:`task_directories`, and ``global`` if it exists."""
        return [*self.task_directories(), *([GLOBAL] if self.global_path.is_dir() else [])]

    def was_followed(self, task: str) -> bool:
        """Whether ``statecore standby`` has followed the changelogs of a task here."""
        return (self.work_path / STANDBY / task / STANDBY_LOGS).is_file()

    def in_use_by(self) -> Holder | None:
        """The holder of the lock, or an application that runs without it. Raises ``Invalid`` without read access."""
        return lock_holder(self.path / LOCK_FILE) or holder_without_lock(self.path / LOCK_FILE, self._every_task_path())

    def _every_task_path(self) -> Iterator[Path]:
        return map(self.task_path, self.every_task())

    def lock(self) -> ApplicationLock:
        """Take the application's lock, as a context manager or until ``release``; creates the directory if missing.

        As a context manager it deletes again, if the block fails, what was created for it and is empty.

        Raises:
            Fenced: the application or another job holds it; or the application has lost it, and still runs.
            Invalid: the state directory cannot be used (not a directory, no permission, files cannot be given to their
                owner).
        """
        for _ in range(_LOCK_ATTEMPTS):
            # A job that was refused deletes the directory that it created while this one creates its own.
            try:
                return self._take_lock()
            except FileNotFoundError as error:
                last = error
        if Path(last.filename or self.path).parent.is_dir():  # a file system such as /proc, without mkdir
            raise _unusable(self.path, last) from last
        raise Fenced(
            f"Other jobs keep deleting the state directory {self.path}.",
            code="state-directory-contended",
            action="Find out which jobs are refused there at the same time, then run this again.",
            state_dir=str(self.path),
        )

    def _take_lock(self) -> ApplicationLock:
        self.check_usable()
        ownership = self.ownership
        made: list[Path] = []
        try:
            for path in (self.state_dir, self.path, self.work_path):
                if path.is_dir() and is_incomplete(path, this_process()):
                    ownership.apply(path)
            _make(self.path, ownership, made)
            lock = ApplicationLock(self, made)
        except BaseException as error:
            remove_empty(made)
            if isinstance(error, OSError) and not isinstance(error, FileNotFoundError):
                raise _unusable(Path(error.filename or self.path), error) from error
            raise
        try:
            refuse_lost_lock(self.path / LOCK_FILE, self._every_task_path())
            _make(self.work_path, ownership, made)
        except BaseException as error:
            lock.withdraw()
            lock.release()
            if isinstance(error, OSError) and not isinstance(error, FileNotFoundError):
                raise _unusable(Path(error.filename or self.path), error) from error
            raise
        self._lock = lock
        return lock

    @property
    def ownership(self) -> FileOwnership:
        """Owner and modes of placed files. Raises ``Invalid`` if the owner is unknown, or cannot be given files."""
        return decide_ownership(self.state_dir, self.path, self._owner, this_process())

    def owner_note(self) -> str:
        """The owner of placed files, or why this user cannot place any, for a person."""
        try:
            return f"Placed files will belong to {self.ownership}."
        except Invalid as error:
            return f"This user cannot place files: {error}"

    def use_note(self, holder: Holder) -> str:
        """A note that a job could not get the lock now."""
        code = "application-running-without-lock" if holder.lost else "state-directory-in-use"
        return f"{self.path} is in use by {holder}: the job would be refused now [{code}]."

    def apply_ownership(self) -> None:
        """Give the application's directory and its files to the owner of placed files. Raises ``Fenced``."""
        self.check_locked()
        if self.ownership.by_group:
            return
        files = (self.path / LOCK_FILE, self.path / PROCESS_FILE, *self.work_path.glob(f"{PLANS}/*"))
        for path in (self.path.resolve(), *files, self.work_path / PLANS, self.work_path):
            if path.exists() and (path.stat().st_uid != self.ownership.uid or self._owner is not None):
                self.ownership.apply(path)

    def check_locked(self) -> None:
        """Raise ``Fenced`` unless this object still holds the lock."""
        if self._lock is None:
            raise Fenced(
                f"The state directory {self.path} was to be changed without holding its lock.",
                code="lock-not-held",
                action="Take StateDirectory.lock() around the whole job.",
                state_dir=str(self.path),
            )
        self._lock.check()

    def check_usable(self) -> None:
        """Raise ``Invalid`` for a path that cannot be a state directory. Changes nothing."""
        for path in (self.state_dir, self.path):
            try:
                is_directory = path.is_dir()
                exists = is_directory or os.path.lexists(path)
            except OSError as error:
                raise _unusable(path, error) from error
            if exists and not is_directory:
                raise Invalid(
                    f"The state directory {path} is not a directory.",
                    code="state-directory-invalid",
                    action="Give Kafka Streams' own state.dir, the directory above the one named like the application.",
                    state_dir=str(path),
                )
        if self.is_application_given():
            raise application_directory_given(self.state_dir)
        existing = _nearest_existing(self.path)
        if existing != self.path.absolute() and is_virtual_file_system(existing):
            raise Invalid(
                f"{existing} is a kernel file system, in which no directory can be created.",
                code="state-directory-invalid",
                action="Give a state.dir on a disk.",
                state_dir=str(self.state_dir),
                path=str(existing),
            )
        if is_read_only(existing):
            raise _read_only(existing)
        if not os.access(existing, os.R_OK | os.W_OK | os.X_OK):
            raise Invalid(
                f"This user (uid {os.geteuid()}) may not read and write {existing}.",
                code="permission-denied",
                action="Run as the user that the application runs as.",
                state_dir=str(self.state_dir),
                path=str(existing),
            )
        _ = self.ownership  # raises if files cannot be given to the owner

    def is_application_given(self) -> bool:
        """Whether the application's own directory was given as ``state.dir``."""
        return self.state_dir.name == self.application_id and not self.path.exists() and has_tasks(self.state_dir)

    def ensure_free_space(self, needed: int) -> None:
        """Raise ``Capacity`` if the file system has less than ``needed`` bytes free for this user."""
        ensure_free_space(self.path, needed)


def has_tasks(directory: Path) -> bool:
    """Whether a directory directly contains directories of tasks or of global stores."""
    return any(TaskId.match(path.name) is not None for path in directories_in(directory))


def application_directory_given(given: Path) -> Invalid:
    """The error for an application's own directory given as ``state.dir``."""
    given = given.absolute()
    return Invalid(
        f"{given} is the directory of an application, with its tasks, and not its state.dir: Kafka Streams looks for "
        f"it in {given.parent}.",
        code="application-directory-given",
        action=f"Give the directory above it: {given.parent}",
        state_dir=str(given),
        expected=str(given.parent),
    )


def ensure_free_space(path: Path, needed: int) -> None:
    """Raise ``Capacity`` if the file system of ``path``, which need not exist, has less than ``needed`` bytes free."""
    where, free = free_space(path)
    if free < needed:
        raise Capacity(
            f"{where} has {_in_words(free)} free, and about {_in_words(needed)} are needed.",
            code="no-space",
            action="Free disk space there, or restore fewer stores or partitions at a time.",
            path=str(path),
            free=free,
            needed=needed,
        )


def free_space(path: Path) -> tuple[Path, int]:
    """The nearest existing directory above ``path``, and the bytes that this user may still write there."""
    where = _nearest_existing(path)
    system = os.statvfs(where)
    return where, system.f_bavail * system.f_frsize


def _nearest_existing(path: Path) -> Path:
    path = path.absolute()
    while not path.exists() and path != path.parent:
        path = path.parent
    return path


def _is_task(name: str) -> bool:
    return name != GLOBAL and TaskId.match(name) is not None


def _read_only(path: Path) -> Invalid:
    return Invalid(
        f"{path} is on a file system that is mounted read-only.",
        code="read-only-file-system",
        action=READ_ONLY_ACTION,
        state_dir=str(path),
    )


def _make(path: Path, ownership: FileOwnership, made: list[Path]) -> None:
    """Create a directory and its missing parents, with their owner; ``made`` lists those created even on failure."""
    if path.is_dir():
        return
    if path.parent != path:
        _make(path.parent, ownership, made)
    try:
        path.mkdir(mode=INITIAL_MODE)
    except FileExistsError:
        return
    made.append(path)
    try:
        ownership.apply(path)
        usable = os.access(path, os.R_OK | os.W_OK | os.X_OK)
    except OSError as error:
        raise _cannot_give(path, ownership, error.strerror or str(error)) from error
    if not usable:
        raise _cannot_give(path, ownership, "this process could not write there any more (CAP_DAC_OVERRIDE)")
    sync_file(path.parent)


def _cannot_give(path: Path, ownership: FileOwnership, why: str) -> Invalid:
    return Invalid(
        f"{path} should belong to {ownership}, and the system does not let this process (uid {os.geteuid()}) give it "
        f"away: {why}.",
        code="chown-not-permitted",
        action="Run as the user that the application runs as; or as root with CAP_CHOWN and CAP_DAC_OVERRIDE, on a "
        "file system that supports owners (not NFS with root_squash).",
        state_dir=str(path),
        owner=str(ownership),
    )


def _unusable(path: Path, error: OSError) -> StatecoreError:
    return system_error(
        error,
        f"The state directory {path} cannot be used",
        action="Check the path, and run as the user that the application runs as.",
        state_dir=str(path),
    )


def _in_words(count: int) -> str:
    return f"{count / (1 << 20):,.0f} MiB" if count >= 10 << 20 else f"{count / (1 << 10):,.0f} KiB"
