"""Staging of a plan: results that are complete or absent, found again by a retry.

Stage one (ranges → runs) uses blobs only (:mod:`statecore.jobs.pipeline.staging_place`), and needs no shared file
system::

    files/<sha256>                                      a run
    runs/<task>/<store>/<p>.<start>-<end>.json          result of a range: names its runs
    merged/<task>/<store>/<runs>.<n>-<of>.json          result of a slice of a database: names its files

The result of a range is put after all its runs are durable, so it marks them as complete.

Stage two (runs → images) builds databases that are renamed into the application's directory. So images are directories
below ``<staging>/<plan id>``, which all that build them share with the driver, best on the file system of the state
directory::

    images/<task>/<store>/     database/ ... result.json
    attempts/<random>/         incomplete or discarded
    driver                     made by the driver: a worker that does not see it does not share the file system

An attempt at an image works in its own directory and publishes it by one rename, ``result.json`` inside it. So what
exists under a final name is a finished result, unless the disk damaged it: a retry checks it, discards an incomplete
one and rebuilds it. An image is never deleted under its final name: the driver may be moving it at that time.

If runs are kept in a directory, their blobs are in this same one, so that a run is linked into images, not copied.
"""

from __future__ import annotations

import errno
import shutil
import socket
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import TypeVar

from statecore.changelog.model import OffsetRange
from statecore.documents import DocumentType
from statecore.errors import Corrupted, Invalid, NotFound
from statecore.filesystem import file_sha256, make_directories, write_durably
from statecore.images.model import Run, RunFile
from statecore.jobs.planning.frozen_plan import IMAGES, MERGED, RUNS
from statecore.objectstore.base import Blobs
from statecore.repository.download import FILES

T = TypeVar("T")

RESULT = "result.json"

DATABASE = "database"
"""Name of the database within the directory of a finished image."""

_PIECE_BYTES = 8 << 20
_ATTEMPTS = "attempts"
_DRIVER_FILE = "driver"


def prepare(directory: Path) -> None:
    """Create the directory for the images of a plan, with the driver's marker file. Only for the driver."""
    make_directories(directory / _ATTEMPTS)
    (directory / _DRIVER_FILE).touch()


def clear_attempts(directory: Path) -> None:
    """Delete what the workers of a dead driver left. Only for the driver, under its lock."""
    shutil.rmtree(directory / _ATTEMPTS, ignore_errors=True)
    make_directories(directory / _ATTEMPTS)


def range_name(task: str, store: str, span: OffsetRange) -> str:
    return f"{task}/{store}/{span.partition}.{span.start}-{span.end}"


def result_name(task: str, store: str, span: OffsetRange) -> str:
    return f"{RUNS}/{range_name(task, store, span)}.json"


def slice_name(task: str, store: str, inputs: str) -> str:
    return f"{MERGED}/{task}/{store}/{inputs}.json"


def run_name(run: Run) -> str:
    return file_name(run.sha256)


def file_name(sha256: str) -> str:
    return f"{FILES}/{sha256}"


def keep(blobs: Blobs, file: RunFile) -> None:
    """Put a run that was just made; an incomplete one is replaced."""
    name = run_name(file)
    while not blobs.put_if_absent(name, file.path) and not is_whole(blobs, file):
        blobs.delete(name)


def load_result(blobs: Blobs, name: str, document: DocumentType[T]) -> T | None:
    """A result that was put before; a damaged one, or one of another release, is deleted."""
    try:
        return document.decode(blobs.get(name))
    except NotFound:
        return None
    except Invalid:
        blobs.delete(name)
        return None


def put_result(blobs: Blobs, name: str, content: bytes, result: T, finished: Callable[[], T | None]) -> T:
    """Put a result, or return that of another attempt that was first (``finished`` checks it)."""
    while not blobs.put_if_absent(name, content):
        found = finished()
        if found is not None:
            return found
    return result


def forget(blobs: Blobs, results: Iterable[str], hashes: Iterable[str]) -> None:
    """Delete results, then the files that they name: a retry must not find a result without its files."""
    for name in (*results, *map(file_name, hashes)):
        blobs.delete(name)


def is_whole(blobs: Blobs, run: Run) -> bool:
    """Whether a run is complete, byte for byte."""
    name = run_name(run)
    try:
        if blobs.head(name).size != run.file_bytes:
            return False
        path = blobs.local_path(name)
        return (file_sha256(path) if path is not None else _sha256(blobs, run)) == run.sha256
    except NotFound:
        return False


def at_hand(blobs: Blobs, run: Run, directory: Path) -> RunFile:
    """A local file of a run: its blob, or a copy of it in ``directory``. Raises ``Corrupted`` if it is missing."""
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
            action="Run the job again: its range is read again.",
            run=run.sha256,
        ) from error
    return RunFile.of(run, path)


def _sha256(blobs: Blobs, run: Run) -> str:
    digest = sha256()
    for piece in _pieces(blobs, run):
        digest.update(piece)
    return digest.hexdigest()


def _pieces(blobs: Blobs, run: Run) -> Iterator[bytes]:
    """The bytes of a run in pieces, because a run may be as large as memory."""
    for start in range(0, run.file_bytes, _PIECE_BYTES):
        yield blobs.get(run_name(run), start, min(start + _PIECE_BYTES, run.file_bytes))


def image_path(directory: Path, task: str, store: str) -> Path:
    return directory / IMAGES / task / store


def staged_names(*directories: Path) -> tuple[Path, ...]:
    """Directories below the staging directories of this job, except attempts, with further links to files of images."""
    return tuple(directory / below for directory in directories for below in (FILES, IMAGES))


def check_shared(directory: Path) -> None:
    """Check that this worker sees the directory that the driver prepared. Raises ``Invalid`` if not."""
    if not (directory / _DRIVER_FILE).is_file():
        raise Invalid(
            f"The executor on {socket.gethostname()} does not see the staging directory {directory} that the driver "
            "made.",
            code="staging-not-shared",
            action="Give a staging directory on a file system that all executors share with the driver.",
            directory=str(directory),
        )


@contextmanager
def attempt_directory(directory: Path) -> Iterator[Path]:
    """A new directory for one attempt, deleted at the end."""
    attempt = directory / _ATTEMPTS / uuid.uuid4().hex
    attempt.mkdir()
    try:
        yield attempt
    finally:
        shutil.rmtree(attempt, ignore_errors=True)


def load(final: Path) -> bytes | None:
    """The document published with an image; ``None`` if there is none."""
    try:
        return (final / RESULT).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None


def publish(attempt: Path, final: Path, document: bytes) -> bool:
    """Rename a finished attempt to its final name; ``False`` if another attempt was first."""
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
    """Move away and delete an incomplete result; none there is fine."""
    away = directory / _ATTEMPTS / uuid.uuid4().hex
    try:
        final.rename(away)
    except FileNotFoundError:
        return
    shutil.rmtree(away, ignore_errors=True)
