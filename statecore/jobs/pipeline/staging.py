"""The staging of a plan: results that are there whole or not at all, found again by a retry.

Stage one (ranges → runs) knows blobs only (:mod:`statecore.jobs.pipeline.staging_place`), and no file system in
common::

    files/<sha256>                                      a run
    runs/<task>/<store>/<p>.<start>-<end>.json          what was read of a range: names its runs
    merged/<task>/<store>/<runs>.<n>-<of>.json          what was merged of a slice of a database: names its files

The result of a range is put when all its runs are there, durable, so it is the mark that they are complete.

Stage two (runs → images) makes databases, and these are used where they lie: they are renamed into the application's
directory. So images are directories below ``<staging>/<plan id>``, which all who build them share with the driver, best
on the file system of the state directory::

    images/<task>/<store>/     database/ ... result.json
    attempts/<random>/         what is not complete yet, or no longer good
    driver                     made by the driver: who does not see it shares no disk

An attempt at an image works in a directory of its own and publishes it by one rename, ``result.json`` inside it. So
what exists under a final name is a finished result, unless a failing disk had its way with it: a retry looks before it
takes, and what is not whole is taken away and made anew. An image is never deleted under its final name: the driver may
be moving it at that moment.

Where runs are kept in a directory, the blobs lie in this same one, so that a run is linked into images, not copied.
"""

from __future__ import annotations

import errno
import shutil
import socket
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from statecore.changelog.model import OffsetRange
from statecore.errors import Corrupted, Invalid, NotFound
from statecore.filesystem import file_sha256, make_directories, write_durably
from statecore.images.model import Run, RunFile
from statecore.jobs.planning.frozen_plan import IMAGES, MERGED, RUNS
from statecore.objectstore.base import Blobs
from statecore.repository.download import FILES

if TYPE_CHECKING:
    from statecore.statedir.state_directory import StateDirectory

RESULT = "result.json"

DATABASE = "database"
"""Name of the database within the directory of a finished image."""

_PIECE_BYTES = 8 << 20
_ATTEMPTS = "attempts"
_MARK = "driver"


def prepare(directory: Path) -> None:
    """Make the directory for the images of a plan, and leave the mark of the driver in it. For the driver alone."""
    make_directories(directory / _ATTEMPTS)
    (directory / _MARK).touch()


def clear_attempts(directory: Path) -> None:
    """Take away what the attempts of a dead driver's workers left. For the driver, under its lock."""
    shutil.rmtree(directory / _ATTEMPTS, ignore_errors=True)
    make_directories(directory / _ATTEMPTS)


def range_name(task: str, store: str, span: OffsetRange) -> str:
    """The name of a range of a store of a task."""
    return f"{task}/{store}/{span.partition}.{span.start}-{span.end}"


def result_name(task: str, store: str, span: OffsetRange) -> str:
    """The blob that says what was read of a range."""
    return f"{RUNS}/{range_name(task, store, span)}.json"


def slice_name(task: str, store: str, inputs: str) -> str:
    """The blob that says what was made of a slice of a database."""
    return f"{MERGED}/{task}/{store}/{inputs}.json"


def run_name(run: Run) -> str:
    """The blob that is a run."""
    return file_name(run.sha256)


def file_name(sha256: str) -> str:
    """The blob that is the file of this hash."""
    return f"{FILES}/{sha256}"


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
        return (file_sha256(path) if path is not None else _sha256(blobs, run)) == run.sha256
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
                for piece in _pieces(blobs, run):
                    file.write(piece)
    except NotFound as error:
        raise Corrupted(
            f"The run {name} is missing.",
            code="staged-file-missing",
            action="Run the job again: its range is read once more.",
            run=run.sha256,
        ) from error
    return RunFile.of(run, path)


def _sha256(blobs: Blobs, run: Run) -> str:
    digest = sha256()
    for piece in _pieces(blobs, run):
        digest.update(piece)
    return digest.hexdigest()


def _pieces(blobs: Blobs, run: Run) -> Iterator[bytes]:
    """The bytes of a run, which may be as many as a task may hold: a few at a time."""
    for start in range(0, run.file_bytes, _PIECE_BYTES):
        yield blobs.get(run_name(run), start, min(start + _PIECE_BYTES, run.file_bytes))


def image_path(directory: Path, task: str, store: str) -> Path:
    """The final name of the image of a store of a task."""
    return directory / IMAGES / task / store


def staged_names(*directories: Path) -> tuple[Path, ...]:
    """Where files of images have other names that are this job's own, below its staging directories.

    Not where attempts are made: one that was given up may be taking its names away at this moment.
    """
    return tuple(directory / below for directory in directories for below in (FILES, IMAGES))


def check_shared(directory: Path) -> None:
    """Make sure that this worker, which is to build an image, sees the directory that the driver prepared.

    Raises:
        Invalid: it does not.
    """
    if not (directory / _MARK).is_file():
        raise Invalid(
            f"The executor on {socket.gethostname()} does not see the staging directory {directory} that the driver "
            "made.",
            code="staging-not-shared",
            action="Give a staging directory on a file system that all executors share with the driver.",
            directory=str(directory),
        )


@contextmanager
def attempt_directory(directory: Path) -> Iterator[Path]:
    """A name that no other attempt has; what is left there in the end is deleted."""
    attempt = directory / _ATTEMPTS / uuid.uuid4().hex
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
    away = directory / _ATTEMPTS / uuid.uuid4().hex
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
