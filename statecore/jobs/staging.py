"""The staging of a plan: results that are there whole or not at all, found again by a retry.

Runs and what was read are blobs (:mod:`statecore.blobs`); images and what the workers tell each other while they work
are directories and files. Both lie below one directory, which all workers share with the driver::

    <staging>/<plan id>/files/<sha256>                                      a run
    <staging>/<plan id>/runs/<task>/<store>/<p>.<start>-<end>/result.json   what was read of a range: names its runs
    <staging>/<plan id>/images/<task>/<store>/                  database/ ... result.json
    <staging>/<plan id>/driver                                  made by the driver: who does not see it shares no disk
    <staging>/<plan id>/failed                                  made by a task that no retry can help: others stop, too
    <staging>/<plan id>/progress/<task>.<store>.<p>.<start>     offsets done so far, for the driver to add up
    <staging>/<plan id>/attempts/<random>/                      what is not complete yet, or no longer good

The result of a range is put when all its runs are there, durable, so it is the mark that they are complete. An attempt
at an image works in a directory of its own and publishes it by one rename, ``result.json`` inside it. So what exists
under a final name is a finished result, unless a failing disk had its way with it: a retry looks before it takes, and
what is not whole is taken away and made anew. An image is never deleted under its final name: the driver may be moving
it at that moment.
"""

from __future__ import annotations

import errno
import shutil
import socket
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from statecore.blobs.base import Blobs
from statecore.blobs.directory import DirectoryBlobs
from statecore.changelog.model import OffsetRange
from statecore.errors import Corrupted, Invalid, NotFound, Retryable
from statecore.filesystem import file_sha256, make_directories, write_durably
from statecore.images.model import Run, RunFile
from statecore.jobs.frozen_plan import IMAGES, RUNS

if TYPE_CHECKING:
    from statecore.placement.state_directory import StateDirectory

RESULT = "result.json"

DATABASE = "database"
"""Name of the database within the directory of a finished image."""

_FILES = "files"
_PIECE_BYTES = 8 << 20
_MARK = "driver"
_FAILED = "failed"


def prepare(directory: Path) -> None:
    """Make the staging directory of a plan, or clear a dead driver's attempts from it. For the driver, under its lock.

    Workers of the dead driver that still write lose their attempt with this, which is what is wanted.
    """
    shutil.rmtree(directory / "attempts", ignore_errors=True)
    shutil.rmtree(directory / "progress", ignore_errors=True)
    (directory / _FAILED).unlink(missing_ok=True)
    make_directories(directory / "attempts")
    (directory / _MARK).touch()


def blobs_of(directory: Path) -> Blobs:
    """Where the runs of a plan are, and what was read of its ranges."""
    return DirectoryBlobs(directory)


def result_name(task: str, store: str, span: OffsetRange) -> str:
    """The blob that says what was read of a range."""
    return f"{RUNS}/{task}/{store}/{span.partition}.{span.start}-{span.end}/{RESULT}"


def run_name(run: Run) -> str:
    """The blob that is a run."""
    return f"{_FILES}/{run.sha256}"


def keep(blobs: Blobs, file: RunFile) -> None:
    """Put a run that was just made; one that is there and not whole is replaced."""
    name = run_name(file)
    while not blobs.put_if_absent(name, file.path) and not is_whole(blobs, file):
        blobs.delete(name)


def is_whole(blobs: Blobs, run: Run) -> bool:
    """Whether a run is there, byte for byte."""
    name = run_name(run)
    try:
        if blobs.head(name).size != run.file_bytes:
            return False
        path = blobs.local_path(name)
        return (file_sha256(path) if path is not None else sha256(blobs.get(name)).hexdigest()) == run.sha256
    except NotFound:
        return False


def at_hand(blobs: Blobs, run: Run, directory: Path) -> RunFile:
    """A run with a file of this machine: its blob, or a copy of it in ``directory``.

    Raises:
        Corrupted: it is not there any more.
    """
    name = run_name(run)
    try:
        path = blobs.local_path(name)
        if path is None:
            path = directory / run.sha256
            with path.open("wb") as file:
                for start in range(0, run.file_bytes, _PIECE_BYTES):
                    file.write(blobs.get(name, start, start + _PIECE_BYTES))
    except NotFound as error:
        raise Corrupted(
            f"The run {name} is missing.", action="Run the job again: its range is read once more.", run=run.sha256
        ) from error
    return RunFile.of(run, path)


def image_path(directory: Path, task: str, store: str) -> Path:
    """The final name of the image of a store of a task."""
    return directory / IMAGES / task / store


def check_shared(directory: Path) -> None:
    """Make sure that this worker sees what the driver prepared.

    Raises:
        Invalid: it does not.
    """
    if not (directory / _MARK).is_file():
        raise Invalid(
            f"The executor on {socket.gethostname()} does not see the staging directory {directory} that the driver "
            "made.",
            action="Give a staging directory on a file system that all executors share with the driver.",
            directory=str(directory),
        )


def announce_failure(directory: Path) -> None:
    """Tell the other tasks of the job that it has failed for good."""
    with suppress(OSError):  # they only work on in vain
        (directory / _FAILED).touch()


def check_failure(directory: Path) -> None:
    """Stop where another task has failed for good: hours of reading would be for nothing.

    Raises:
        Retryable: one has; the driver shows the error of that one.
    """
    if (directory / _FAILED).exists():
        raise Retryable(
            "Another task of the job has failed, so this one stopped.", action="See the error of the other task."
        )


@contextmanager
def attempt_directory(directory: Path) -> Iterator[Path]:
    """A name that no other attempt has; what is left there in the end is deleted."""
    attempt = directory / "attempts" / uuid.uuid4().hex
    attempt.mkdir()
    try:
        yield attempt
    finally:
        shutil.rmtree(attempt, ignore_errors=True)


def load(final: Path) -> bytes | None:
    """The document that was published with an image; ``None`` when nothing was."""
    try:
        return (final / RESULT).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None


def publish(attempt: Path, final: Path, document: bytes) -> bool:
    """Give a finished attempt its final name.

    Returns:
        Whether it was done; ``False`` when something stands there already: another attempt was first.
    """
    write_durably(attempt / RESULT, document)
    final.parent.mkdir(parents=True, exist_ok=True)
    try:
        attempt.rename(final)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        return False
    return True


def discard(directory: Path, final: Path) -> None:
    """Take away what stands under a final name and is not whole; nothing there is fine."""
    away = directory / "attempts" / uuid.uuid4().hex
    try:
        final.rename(away)
    except FileNotFoundError:
        return
    shutil.rmtree(away, ignore_errors=True)


def staging_base(staging_dir: str | None, directory: StateDirectory) -> Path:
    """Where plans are staged. Elsewhere than in the state directory several hosts may meet, whose locks are not one.

    The same plan for two of them is not unlikely (the application is stopped, its topics do not grow), so each state
    directory of each host has a place of its own there.
    """
    if not staging_dir:
        return directory.work_path
    owner = f"{socket.gethostname()}\n{directory.path.resolve()}"
    return Path(staging_dir) / directory.application_id / sha256(owner.encode()).hexdigest()[:12]
