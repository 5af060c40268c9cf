"""The staging directory of a plan: results that are there whole or not at all, found again by a retry.

::

    <staging>/<plan id>/driver                                  made by the driver: who does not see it shares no disk
    <staging>/<plan id>/failed                                  made by a task that no retry can help: others stop, too
    <staging>/<plan id>/runs/<task>/<store>/<p>.<start>-<end>/  run-00000.sst ... result.json
    <staging>/<plan id>/images/<task>/<store>/                  database/ ... result.json
    <staging>/<plan id>/progress/<task>.<store>.<p>.<start>     offsets done so far, for the driver to add up
    <staging>/<plan id>/attempts/<random>/                      what is not complete yet, or no longer good

An attempt works in a directory of its own and publishes it by one rename, ``result.json`` inside it, durable. So what
exists under a final name is a finished result, unless a power loss or a failing disk had its way with it: a retry
looks before it takes, and what is not whole is moved away and made anew. Nothing is ever deleted under its final name:
the driver may be moving it at that moment.
"""

from __future__ import annotations

import errno
import hashlib
import json
import shutil
import socket
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from statecore.errors import Invalid, Retryable
from statecore.jobs.frozen_plan import IMAGES
from statecore.placement.trees import make_directories, write_durably

if TYPE_CHECKING:
    from statecore.placement.state_directory import StateDirectory

RESULT = "result.json"
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


def load(final: Path) -> Mapping[str, Any] | None:
    """What was published under a name; ``None`` when nothing was, or the record is torn."""
    try:
        document = json.loads((final / RESULT).read_bytes())
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    return document if isinstance(document, dict) and document else None


def publish(attempt: Path, final: Path, document: Mapping[str, Any]) -> bool:
    """Give a finished attempt its final name.

    Returns:
        Whether it was done; ``False`` when something stands there already: another attempt was first.
    """
    write_durably(attempt / RESULT, json.dumps(document).encode())
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
    return Path(staging_dir) / directory.application_id / hashlib.sha256(owner.encode()).hexdigest()[:12]
