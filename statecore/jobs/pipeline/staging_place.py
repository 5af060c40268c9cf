"""Where stage one (ranges → runs) keeps what it makes: a place that travels in each task.

A task that reads a range is a client of blobs (:mod:`statecore.objectstore`) and of nothing else: its runs, the result
that names them, the mark by which it knows that it sees what the driver sees, the mark by which it learns that another
task has failed, and the word of how far it has come are blobs of one place. So executors need no file system in common
for stage one. (Stage two makes databases, which lie where they are used: see ``statecore/jobs/pipeline/staging.py``.)

::

    driver                   made by the driver: whoever does not find it looks at another place
    failed                   made by a task that no retry can help: the others stop, too
    progress/<range>.<n>     a worker has come so far: n offsets of the batch that begins with this range
    files/..., runs/...      see statecore/jobs/pipeline/staging.py

A place is a frozen value that can be pickled. :class:`DirectoryPlace` is the one for workers that share a directory;
an object store is another subclass, which says how its blobs are reached.
"""

from __future__ import annotations

import shutil
import socket
import tempfile
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import ClassVar

from statecore.changelog.model import OffsetRange
from statecore.errors import Invalid, NotFound, Retryable, StatecoreError
from statecore.jobs.pipeline import staging
from statecore.objectstore.base import Blobs
from statecore.objectstore.directory import DirectoryBlobs

_DRIVER = "driver"
_FAILED = "failed"
_PROGRESS = "progress"


class StagingPlace(ABC):
    """A place for the blobs of one plan, and for the files of who makes them.

    What the words between tasks and driver cost: every :attr:`interval` seconds each batch of ranges that is being read
    takes three requests (``put`` and ``delete`` of its progress, ``head`` of the failure mark) and the driver one
    ``list`` of as many names as batches were begun. A range adds two when it begins: ``head`` of each mark.
    """

    interval: ClassVar[float] = 10.0
    """Seconds between two words of one range, and between two looks of the driver at all of them."""

    keeps_runs: ClassVar[bool] = True
    """Whether runs are kept here, too, where they are published into a repository: images are built of them."""

    remedy: ClassVar[str] = "Make sure that every executor reaches the same staging as the driver, under the same name."
    """What to do where a worker does not find what the driver has put."""

    @abstractmethod
    def blobs(self) -> Blobs:
        """The blobs of the plan, as this process reaches them."""

    @abstractmethod
    def __str__(self) -> str:
        """The place as messages name it; no secret is in it."""

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """A directory of this machine for one attempt, gone at its end; a task's files are made there and then put.

        It lies in the system's directory for temporary files (``TMPDIR``). A worker that is killed leaves it there.
        """
        with tempfile.TemporaryDirectory(prefix="statecore-staging-", ignore_cleanup_errors=True) as made:
            yield Path(made)

    def prepare(self) -> None:
        """Make the place ready for the tasks of a new try: what the last one told is gone. For the driver alone."""
        blobs = self.blobs()
        self._forget_progress(blobs)
        blobs.delete(_FAILED)
        blobs.put_if_absent(_DRIVER, b"")

    def check_seen(self) -> None:
        """Make sure that this process finds here what the driver has put.

        Raises:
            Invalid: it does not.
        """
        if not _is_there(self.blobs(), _DRIVER):
            raise Invalid(
                f"The worker on {socket.gethostname()} does not find in {self} what the driver has put there.",
                code="staging-not-shared",
                action=self.remedy,
                staging=str(self),
            )

    def announce_failure(self) -> None:
        """Tell the other tasks of the job that it has failed for good."""
        with suppress(StatecoreError):  # they only work on in vain
            blobs = self.blobs()
            if _is_there(blobs, _DRIVER):  # else nobody would find it
                blobs.put_if_absent(_FAILED, b"")

    def check_failure(self) -> None:
        """Stop where another task has failed for good: hours of reading would be for nothing.

        Raises:
            Retryable: one has; the driver shows the error of that one.
        """
        failed = False
        with suppress(Retryable):  # who cannot look goes on
            failed = _is_there(self.blobs(), _FAILED)
        if failed:
            raise Retryable(
                "Another task of the job has failed, so this one stopped.",
                code="other-task-failed",
                action="See the error of the other task.",
            )

    def tell(self, reading: str, offsets: int, before: int | None) -> None:
        """Say how far the reading of a range has come. What it said before is of no use any more.

        Args:
            reading: a name of the range, with no dot in it.
            offsets: done so far.
            before: what was told last; ``None`` at first.
        """
        blobs = self.blobs()
        blobs.put_if_absent(f"{_PROGRESS}/{reading}.{offsets}", b"")
        if before not in (None, offsets):
            blobs.delete(f"{_PROGRESS}/{reading}.{before}")

    def told(self) -> int:
        """Offsets done so far, over all ranges."""
        furthest: dict[str, int] = {}
        for blob in self.blobs().list(f"{_PROGRESS}/"):
            reading, _, offsets = blob.name.rpartition(".")
            furthest[reading] = max(furthest.get(reading, 0), int(offsets))
        return sum(furthest.values())

    def _forget_progress(self, blobs: Blobs) -> None:
        for blob in list(blobs.list(f"{_PROGRESS}/")):
            blobs.delete(blob.name)


@dataclass(frozen=True)
class DirectoryPlace(StagingPlace):
    """A directory that driver and workers share.

    Attempts are made in it, so a run becomes a blob by a link and none of its bytes is copied. Progress is a file for
    each batch that is written over again: it need not survive a loss of power, and making a blob durable twice a second
    would cost more than what it says.

    Attributes:
        directory: ``<staging>/<plan id>``, absolute.
    """

    interval: ClassVar[float] = 0.5
    remedy: ClassVar[str] = "Give a staging directory on a file system that all executors share with the driver."

    directory: str

    def __str__(self) -> str:
        """See :class:`StagingPlace`."""
        return self.directory

    def blobs(self) -> Blobs:
        """See :class:`StagingPlace`."""
        return _of_directory(self.directory)

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """See :class:`StagingPlace`. It lies within the directory."""
        with staging.attempt_directory(Path(self.directory)) as attempt:
            yield attempt

    def prepare(self) -> None:
        """See :class:`StagingPlace`. Workers of a dead driver that still write lose their attempt, as they should."""
        shutil.rmtree(Path(self.directory, _PROGRESS), ignore_errors=True)
        staging.clear_attempts(Path(self.directory))
        super().prepare()

    def tell(self, reading: str, offsets: int, before: int | None) -> None:  # noqa: ARG002
        """See :class:`StagingPlace`."""
        final = Path(self.directory, _PROGRESS, reading)
        partial = final.with_name(f".{reading}.{uuid.uuid4().hex}")  # two attempts may read one range
        final.parent.mkdir(exist_ok=True)
        partial.write_text(str(offsets))
        partial.replace(final)

    def told(self) -> int:
        """See :class:`StagingPlace`."""
        with suppress(FileNotFoundError):
            files = [file for file in Path(self.directory, _PROGRESS).iterdir() if not file.name.startswith(".")]
            return sum(int(file.read_text() or 0) for file in files)
        return 0


@dataclass(frozen=True)
class PassingPlace(DirectoryPlace):
    """A directory that goes with the job, whatever becomes of it: no retry looks there, and no image is built of it.

    So runs that are published are not kept here, and nothing is forced to the disk: for a hundred small store
    partitions that is most of what a checkpoint would wait for.
    """

    keeps_runs: ClassVar[bool] = False

    def blobs(self) -> Blobs:
        """See :class:`StagingPlace`."""
        return _of_passing_directory(self.directory)


class ReadingProgress:
    """What a worker tells of the ranges of a batch as it reads one after the other, and what it hears of the others.

    Args:
        place: where both are kept.
        task: Kafka Streams' task id of the first range, after which the batch is named.
        store: its store.
        span: that range.
        clock: seconds.
    """

    def __init__(
        self,
        place: StagingPlace,
        task: str,
        store: str,
        span: OffsetRange,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        # A hash, because a name made of these may be longer than a file's or a blob's part may be.
        self._reading = sha256(staging.range_name(task, store, span).encode()).hexdigest()[:32]
        self._place, self._clock = place, clock
        self._told: int | None = None
        self._finished = 0
        self._next = 0.0

    def report(self, offsets: int, *, now: bool = False) -> None:
        """Tell how many offsets are done, when it is time to, and stop where another task has failed for good.

        Args:
            offsets: done so far of the range that is being read.
            now: whether it is told whatever the time is.

        Raises:
            Retryable: another task has failed for good.
        """
        moment = self._clock()
        if moment < self._next and not now:
            return
        self._next = moment + self._place.interval
        self._tell(self._finished + offsets)
        self._place.check_failure()

    def finish(self, offsets: int) -> None:
        """Note that a range of so many offsets is done; it is told with the next one, or at the end."""
        self._finished += offsets

    def close(self) -> None:
        """Tell what is done, if anything is, whatever the time: the batch has ended."""
        if self._finished:
            self._tell(self._finished)

    def _tell(self, offsets: int) -> None:
        with suppress(Retryable, OSError):  # the range is read all the same
            self._place.tell(self._reading, offsets, self._told)
            self._told = offsets


@lru_cache(maxsize=4)
def _of_directory(directory: str) -> DirectoryBlobs:
    """The blobs of a directory, which know which names of directories are on the disk: once forced, not again."""
    return DirectoryBlobs(directory)


@lru_cache(maxsize=4)
def _of_passing_directory(directory: str) -> DirectoryBlobs:
    return DirectoryBlobs(directory, passing=True)


def _is_there(blobs: Blobs, name: str) -> bool:
    try:
        blobs.head(name)
    except NotFound:
        return False
    return True
