"""Staging place of stage one (ranges → runs), carried by each task.

A task that reads a range uses blobs (:mod:`statecore.objectstore`) and nothing else: its runs, the result that names
them, the driver's marker, the failure marker and the progress are blobs of one place. So executors need no shared file
system for stage one. (Stage two builds databases in a directory: see ``statecore/jobs/pipeline/staging.py``.)

::

    driver                   put by the driver: a worker that does not find it has another place
    failed                   put by a task that no retry can help: the others stop, too
    progress/<range>.<n>     n offsets are done of the batch that begins with this range
    files/..., runs/...      see statecore/jobs/pipeline/staging.py

A place is a frozen value that can be pickled. :class:`DirectoryPlace` is for workers that share a directory; subclasses
for object stores say how their blobs are reached.
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
    """Place for the blobs of one plan, and for the temporary files of its tasks.

    Cost: every :attr:`interval` seconds each batch that is being read takes three requests (``put`` and ``delete`` of
    its progress, ``head`` of the failure marker), and the driver one ``list`` of as many names as batches were begun. A
    range adds two when it begins: ``head`` of each marker.
    """

    interval: ClassVar[float] = 10.0
    """Seconds between two progress reports of a batch, and between two polls of the driver."""

    keeps_runs: ClassVar[bool] = True
    """Whether published runs are kept here, too: images are built of them."""

    remedy: ClassVar[str] = "Make sure that every executor reaches the same staging as the driver, under the same name."
    """What to do if a worker does not find the driver's marker."""

    @abstractmethod
    def blobs(self) -> Blobs:
        """The blobs of the plan, as this process reaches them."""

    @abstractmethod
    def __str__(self) -> str:
        """The place for messages, without secrets."""

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """A temporary local directory (``TMPDIR``) for the files of one attempt; a killed worker leaves it there."""
        with tempfile.TemporaryDirectory(prefix="statecore-staging-", ignore_cleanup_errors=True) as made:
            yield Path(made)

    def prepare(self) -> None:
        """Prepare the place for a new attempt: clear progress and failure. Only for the driver."""
        blobs = self.blobs()
        self._forget_progress(blobs)
        blobs.delete(_FAILED)
        blobs.put_if_absent(_DRIVER, b"")

    def check_seen(self) -> None:
        """Check that this process finds the driver's marker here. Raises ``Invalid`` if not."""
        if not _is_there(self.blobs(), _DRIVER):
            raise Invalid(
                f"The worker on {socket.gethostname()} does not find the driver's marker in {self}.",
                code="staging-not-shared",
                action=self.remedy,
                staging=str(self),
            )

    def announce_failure(self) -> None:
        """Mark for the other tasks of the job that this one has failed permanently."""
        with suppress(StatecoreError):  # without it they only do work that is wasted
            blobs = self.blobs()
            if _is_there(blobs, _DRIVER):  # else no task would find it
                blobs.put_if_absent(_FAILED, b"")

    def check_failure(self) -> None:
        """Stop if another task has failed permanently, because this one's work would be wasted."""
        failed = False
        with suppress(Retryable):  # go on if the marker cannot be read
            failed = _is_there(self.blobs(), _FAILED)
        if failed:
            raise Retryable(
                "Another task of the job has failed, so this one stopped.",
                code="other-task-failed",
                action="See the error of the other task.",
            )

    def put_progress(self, reading: str, offsets: int, before: int | None) -> None:
        """Report the progress of a batch, replacing the last report."""
        blobs = self.blobs()
        blobs.put_if_absent(f"{_PROGRESS}/{reading}.{offsets}", b"")
        if before not in (None, offsets):
            blobs.delete(f"{_PROGRESS}/{reading}.{before}")

    def offsets_done(self) -> int:
        """Offsets done so far, over all batches."""
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

    Attempts are made in it, so a run becomes a blob by a hard link without copying. Progress is one file per batch,
    which is overwritten: it need not survive a power loss, and a durable blob twice a second would be too costly.

    Attributes:
        directory: ``<staging>/<plan id>``, absolute.
    """

    interval: ClassVar[float] = 0.5
    remedy: ClassVar[str] = "Give a staging directory on a file system that all executors share with the driver."

    directory: str

    def __str__(self) -> str:
        return self.directory

    def blobs(self) -> Blobs:
        return _of_directory(self.directory)

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """It is within the directory."""
        with staging.attempt_directory(Path(self.directory)) as attempt:
            yield attempt

    def prepare(self) -> None:
        """Workers of a dead driver that still write lose their attempt on purpose."""
        shutil.rmtree(Path(self.directory, _PROGRESS), ignore_errors=True)
        staging.clear_attempts(Path(self.directory))
        super().prepare()

    def put_progress(self, reading: str, offsets: int, before: int | None) -> None:  # noqa: ARG002
        final = Path(self.directory, _PROGRESS, reading)
        partial = final.with_name(f".{reading}.{uuid.uuid4().hex}")  # two attempts may read one range
        final.parent.mkdir(exist_ok=True)
        partial.write_text(str(offsets))
        partial.replace(final)

    def offsets_done(self) -> int:
        with suppress(FileNotFoundError):
            files = [file for file in Path(self.directory, _PROGRESS).iterdir() if not file.name.startswith(".")]
            return sum(int(file.read_text() or 0) for file in files)
        return 0


@dataclass(frozen=True)
class TemporaryPlace(DirectoryPlace):
    """A temporary directory of one job, without retries or images.

    So published runs are not kept here, and nothing is synced: for a hundred small store partitions that is most of the
    time of a checkpoint.
    """

    keeps_runs: ClassVar[bool] = False

    def blobs(self) -> Blobs:
        return _of_temporary_directory(self.directory)


class ReadingProgress:
    """Reports the progress of a batch of ranges, and stops it if another task has failed."""

    def __init__(
        self, place: StagingPlace, task: str, store: str, span: OffsetRange, clock: Callable[[], float] = time.monotonic
    ) -> None:
        # A hash, because a name made of these may be too long for a file or a blob.
        self._reading = sha256(staging.range_name(task, store, span).encode()).hexdigest()[:32]
        self._place, self._clock = place, clock
        self._reported: int | None = None
        self._finished = 0
        self._next = 0.0

    def report(self, offsets: int, *, now: bool = False) -> None:
        """Report the offsets done, if the interval is over, and stop if another task has failed permanently."""
        now_seconds = self._clock()
        if now_seconds < self._next and not now:
            return
        self._next = now_seconds + self._place.interval
        self._put_progress(self._finished + offsets)
        self._place.check_failure()

    def finish(self, offsets: int) -> None:
        """Count a finished range; reported with the next one, or at the end."""
        self._finished += offsets

    def close(self) -> None:
        """Report what is done, if anything, whatever the time: the batch has ended."""
        if self._finished:
            self._put_progress(self._finished)

    def _put_progress(self, offsets: int) -> None:
        with suppress(Retryable, OSError):  # progress is not essential
            self._place.put_progress(self._reading, offsets, self._reported)
            self._reported = offsets


@lru_cache(maxsize=4)
def _of_directory(directory: str) -> DirectoryBlobs:
    """Cached blobs of a directory, which remember the directories that are synced already."""
    return DirectoryBlobs(directory)


@lru_cache(maxsize=4)
def _of_temporary_directory(directory: str) -> DirectoryBlobs:
    return DirectoryBlobs(directory, temporary=True)


def _is_there(blobs: Blobs, name: str) -> bool:
    try:
        blobs.head(name)
    except NotFound:
        return False
    return True
