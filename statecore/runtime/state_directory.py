"""An application's state directory: where things are in it, and who may change it.

What Kafka Streams 4.3.1 keeps there (``StateDirectory``, ``RocksDBStore.openDB``, ``AbstractSegments``)::

    <state.dir>/
      <application id>/
        .lock                                 empty; fcntl lock, held while the application lives, or while we do
        kafka-streams-process-metadata        {"processId": ...}; the application writes it when it is missing
        <subtopology>_<partition>/            a task
          rocksdb/<store>/                    key-value, timestamped, headers, versioned, list
          <store>/<store>.<segment start ms>/ windows, sessions
          .checkpoint, .checkpoint_<store>    offsets outside the databases (older versions; some stores)
          <store>.position                    left over from older versions
        __<topology>__/<subtopology>_<partition>/   the same for named topologies
        global/                               global stores, in the same two shapes
        .statecore/                           ours: staging, plans, journal. Kafka Streams looks only at names of the
                                              forms above, and being on the same file system makes moving a rename

The lock is the one Java's ``FileChannel.tryLock`` takes: a POSIX record lock over the whole file. Such a lock belongs
to the process, not to the file descriptor: **closing any other descriptor of that file in this process drops it**, and
taking it twice in one process succeeds. Hence the registry here, and :meth:`ApplicationLock.check` before each step
that cannot be taken back.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

from statecore.errors import Capacity, Fenced, Invalid
from statecore.formats.kinds import StoreKind
from statecore.runtime.contents import PLAIN_PARENT, StoreDirectory, stores_in
from statecore.runtime.files import give_to_owner, make_directories
from statecore.stores.files import DIRECTORY_MODE, FILE_MODE, MOUNT_FOR_WRITING, is_read_only, sync_file

LOCK_FILE = ".lock"
WORK_DIRECTORY = ".statecore"

GLOBAL_TASK = "global"
"""What stands for a task with the global stores, which every instance of an application has: their directory."""

_TASK = re.compile(r"(?:__[a-zA-Z0-9._-]+__/)?[0-9]+_[0-9]+")
_NAMED_TOPOLOGY = re.compile(r"__[a-zA-Z0-9._-]+__")
_held: set[tuple[int, int]] = set()
_held_guard = threading.Lock()


def task_directory(subtopology: int, partition: int, topology: str | None = None) -> str:
    """A task's directory relative to the application's: ``0_1``, or ``__north__/0_1`` in a named topology."""
    task = f"{subtopology}_{partition}"
    return f"__{topology}__/{task}" if topology else task


def partition_of(task: str) -> int | None:
    """The partition of a task (``0_1`` → 1); ``None`` for ``global``, whose stores hold all partitions."""
    return None if task == GLOBAL_TASK else int(task.rpartition("_")[2])


def store_directory(store: str, kind: StoreKind) -> str:
    """A store's directory relative to its task's: ``rocksdb/<store>``, or ``<store>`` where it has segments."""
    return store if kind.is_segmented else f"{PLAIN_PARENT}/{store}"


class StateDirectory:
    """The directory of one application on this machine. Makes nothing before :meth:`lock`.

    Args:
        state_dir: Kafka Streams' ``state.dir``.
        application_id: its ``application.id``.
    """

    def __init__(self, state_dir: Path, application_id: str) -> None:
        self.state_dir = Path(state_dir)
        self.application_id = application_id
        self._lock: ApplicationLock | None = None

    @property
    def path(self) -> Path:
        """``<state.dir>/<application id>``."""
        return self.state_dir / self.application_id

    @property
    def work_path(self) -> Path:
        """Where staging, plans and the journal lie: ``<application>/.statecore``."""
        return self.path / WORK_DIRECTORY

    def task_path(self, task: str) -> Path:
        """The directory of a task (``0_1``), or of ``global``. Raises ``ValueError`` for anything else."""
        if task != GLOBAL_TASK and not _TASK.fullmatch(task):
            raise ValueError(f"{task!r} is not a task such as 0_1")
        return self.path / task

    @property
    def global_path(self) -> Path:
        """Where the global stores are: ``<application>/global``."""
        return self.path / GLOBAL_TASK

    def store_path(self, task: str, store: str, kind: StoreKind) -> Path:
        """The directory of a store of a task."""
        return self.task_path(task) / store_directory(store, kind)

    def stores(self, task: str) -> list[StoreDirectory]:
        """The stores that have a directory in a task's, or in ``global``; none when the task has no directory."""
        return stores_in(self.task_path(task))

    def task_directories(self) -> list[str]:
        """The tasks that have a directory, those of named topologies included, in numeric order; not ``global``."""
        found: list[str] = []
        for entry in _entries(self.path):
            if _TASK.fullmatch(entry.name):
                found.append(entry.name)
            elif _NAMED_TOPOLOGY.fullmatch(entry.name):
                found += [
                    f"{entry.name}/{task.name}" for task in _entries(Path(entry.path)) if _TASK.fullmatch(task.name)
                ]
        return sorted(found, key=_task_order)

    def lock(self) -> ApplicationLock:
        """Take the application's lock, as a context manager or until ``release``; makes the directory when absent.

        Raises:
            Fenced: the application, or another job, holds it.
            Invalid: the state directory cannot be used (not a directory, no rights).
        """
        self.check_usable()
        try:
            self.state_dir.mkdir(parents=True, exist_ok=True)
            if not self.path.exists():
                self.path.mkdir(mode=DIRECTORY_MODE)
                self.path.chmod(DIRECTORY_MODE)  # whatever the umask
                give_to_owner(self.path)
                sync_file(self.state_dir)
            lock = ApplicationLock(self)
            make_directories(self.work_path)
        except OSError as error:
            raise _unusable(Path(error.filename or self.path), error) from error
        self._lock = lock
        return lock

    def check_locked(self) -> None:
        """Make sure that this object still holds the lock. Raises ``Fenced`` when it does not."""
        if self._lock is None:
            raise Fenced(
                f"The state directory {self.path} was to be changed without its lock.",
                action="Take StateDirectory.lock() around the whole job.",
                state_dir=str(self.path),
            )
        self._lock.check()

    @property
    def owner(self) -> tuple[int, int] | None:
        """``(uid, gid)`` that files made here must be given, or ``None`` when they are right anyway.

        Only root has to care: what it makes in a directory of somebody else belongs to that somebody, or the
        application could not open its own stores.
        """
        status = _nearest_existing(self.path).stat()
        return (status.st_uid, status.st_gid) if os.geteuid() == 0 and status.st_uid != 0 else None

    def check_usable(self) -> None:
        """Refuse a state directory that cannot be one. Changes nothing. Raises ``Invalid``."""
        for path in (self.state_dir, self.path):
            try:
                is_directory = path.is_dir()
                exists = is_directory or os.path.lexists(path)
            except OSError as error:
                raise _unusable(path, error) from error
            if exists and not is_directory:
                raise Invalid(
                    f"The state directory {path} is not a directory.",
                    action="Give Kafka Streams' own state.dir, the directory above the one named like the application.",
                    state_dir=str(path),
                )
        existing = _nearest_existing(self.path)
        if is_read_only(existing):
            raise _read_only(existing)
        if not os.access(existing, os.R_OK | os.W_OK | os.X_OK):
            raise Invalid(
                f"This user (uid {os.geteuid()}) may not read and write {existing}.",
                action="Run as the user that the application runs as.",
                state_dir=str(self.state_dir),
            )

        if self.path.is_dir() and os.geteuid() not in (0, self.path.stat().st_uid):
            raise Invalid(
                f"{self.path} belongs to uid {self.path.stat().st_uid}, and this runs as uid {os.geteuid()}: the "
                "application could not write the stores that are put there.",
                action="Run as the user that the application runs as, or as root.",
                state_dir=str(self.state_dir),
            )

    def ensure_room(self, needed: int) -> None:
        """Refuse when the file system has less than ``needed`` bytes left for this user. Raises ``Capacity``."""
        ensure_room(self.path, needed)


def ensure_room(path: Path, needed: int) -> None:
    """Refuse when the file system of ``path``, which need not exist, has less than ``needed`` bytes for this user.

    Raises:
        Capacity: with how much there is and how much is needed.
    """
    where = _nearest_existing(path)
    system = os.statvfs(where)
    free = system.f_bavail * system.f_frsize
    if free < needed:
        raise Capacity(
            f"{where} has {_mebibytes(free)} free, and about {_mebibytes(needed)} are needed.",
            action="Make room there, or restore fewer stores or partitions at a time.",
            path=str(path),
            free=free,
            needed=needed,
        )


def _nearest_existing(path: Path) -> Path:
    path = path.absolute()
    while not path.exists() and path != path.parent:
        path = path.parent
    return path


class ApplicationLock:
    """The lock of an application's directory, held from construction until :meth:`release`.

    Raises:
        Fenced: somebody else holds it, in this process or another.
    """

    def __init__(self, directory: StateDirectory) -> None:
        self._directory = directory
        self._file = directory.path / LOCK_FILE
        # A second descriptor of a file this process has locked must not even be opened: closing it drops the lock.
        with contextlib.suppress(FileNotFoundError), _held_guard:
            if _identity(self._file.stat()) in _held:
                raise self._fenced("this process")
        self._descriptor = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        self._identity = _identity(os.fstat(self._descriptor))
        with _held_guard:
            try:
                fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                os.close(self._descriptor)
                if error.errno in (errno.EACCES, errno.EAGAIN):
                    raise self._fenced("another process") from None
                raise
            _held.add(self._identity)
        self._released = False
        give_to_owner(self._file)

    def check(self) -> None:
        """Make sure that the lock is still held and still means something, before a step that cannot be taken back.

        Raises:
            Fenced: it was released, lost, or the directory was replaced below us.
        """
        try:
            same = not self._released and _identity(self._file.stat()) == self._identity
            if same:
                fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # a no-op while it is ours
        except OSError:
            same = False
        if not same:
            raise Fenced(
                f"The lock of {self._directory.path} was lost.",
                action="Find out who deleted or took the state directory, then run this again.",
                state_dir=str(self._directory.path),
            )

    def release(self) -> None:
        """Give the lock back. The file stays: deleting it would let two processes lock two files of one name."""
        if not self._released:
            self._released = True
            with _held_guard:
                _held.discard(self._identity)
                os.close(self._descriptor)

    def __enter__(self) -> ApplicationLock:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def _fenced(self, who: str) -> Fenced:
        return Fenced(
            f"The state directory {self._directory.path} is in use: {who} holds its lock.",
            action=f"Stop the application {self._directory.application_id} on this machine (or the job that is at work "
            "there), then run this again.",
            state_dir=str(self._directory.path),
            application_id=self._directory.application_id,
        )


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _entries(path: Path) -> Iterator[os.DirEntry[str]]:
    """The directories in a directory; none when it does not exist."""
    try:
        with os.scandir(path) as entries:
            yield from (entry for entry in entries if entry.is_dir())
    except FileNotFoundError:
        return


def _task_order(task: str) -> tuple[str, int, int]:
    topology, _, name = task.rpartition("/")
    subtopology, _, partition = name.partition("_")
    return topology, int(subtopology), int(partition)


def _read_only(path: Path) -> Invalid:
    return Invalid(
        f"{path} lies on a file system that is mounted read-only.",
        action=MOUNT_FOR_WRITING,
        state_dir=str(path),
    )


def _unusable(path: Path, error: OSError) -> Invalid:
    if error.errno == errno.EROFS:
        return _read_only(path)
    return Invalid(
        f"The state directory {path} cannot be used: {error.strerror}.",
        action="Check the path, and run as the user that the application runs as.",
        state_dir=str(path),
    )


def _mebibytes(count: int) -> str:
    return f"{count / (1 << 20):,.0f} MiB"
