"""Validates the two directories of a promotion: that they are separate, and which one is the standby copy.

The standby and the application must never use the same database. So a directory that is the same as the other one, or
lies inside it, is refused, also through a link, a mount or ``..``. A single task that leads into the other directory is
refused alone.

``statecore standby`` leaves a record of the tasks it follows (:mod:`statecore.tasks.standby_log_state`). If only the
application's directory has one, the two were swapped.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from statecore.errors import Fenced, Invalid, NotFound, StatecoreError
from statecore.filesystem import file_id
from statecore.statedir.state_directory import StateDirectory, application_directory_given
from statecore.statedir.store_places import StorePlace, application_directory, applications
from statecore.statedir.work_directory import STANDBY, STANDBY_LOGS

_APART = "Use separate state directories for the copy and the application, neither of them inside the other."


def copy_at(standby_dir: Path, application_id: str) -> StateDirectory:
    try:
        return application_directory(standby_dir, application_id)
    except NotFound as error:
        raise error.restated(
            error.what,
            action="Name the state directory of statecore standby with --standby-dir: the parent of the directory "
            "named like the application.",
        ) from error
    except Invalid as error:
        raise error.restated(error.what, action=f"For --standby-dir: {error.action}") from error


@contextmanager
def closed(standby: StateDirectory) -> Iterator[None]:
    """Lock the standby copy during the promotion."""
    try:
        lock = standby.lock()
    except Fenced as error:
        raise error.restated(
            error.what,
            action="Stop statecore standby, which closes the copy, or wait for the other job; then run this again.",
        ) from error
    with lock:
        yield


def state_dir_in_doubt(live: StateDirectory) -> str:
    """A warning if the state directory looks wrong; empty otherwise."""
    if live.path.exists():
        return ""
    given = live.state_dir.absolute()
    if given.name != live.application_id:
        return "" if given.exists() else f"There is no directory {given} yet: the promotion creates it."
    known: list[str] = []
    with suppress(StatecoreError):  # if it cannot be read, the name may still be right
        known = applications(given.parent)
    if given.name in known:
        raise application_directory_given(given)
    return (
        f"{given} is named like the application, whose directory in it would be {live.path}. If it is the "
        f"application's directory itself, give its parent with --state-dir: {given.parent}."
    )


def refuse_one_directory(standby: StateDirectory, live: StateDirectory) -> None:
    """Refuse identical or nested directories. Raises ``Invalid``."""
    if _same(standby.path, live.path):
        raise Invalid(
            f"{standby.path} is the directory of the application itself, not a separate copy.",
            code="directories-identical",
            action="Name the state directory of statecore standby with --standby-dir, and the application's with "
            "--state-dir.",
            state_dir=str(live.state_dir),
        )
    for inner, outer in ((standby, live), (live, standby)):
        if any(_same(parent, outer.path) for parent in inner.path.resolve().parents):
            raise Invalid(
                f"{inner.path} is inside {outer.path}: Kafka Streams or the standby would delete it with that.",
                code="directories-nested",
                action=_APART,
                state_dir=str(live.state_dir),
            )


def refuse_swapped(standby: StateDirectory, live: StateDirectory) -> None:
    """Refuse directories of which only the application's was used by a standby. Raises ``Invalid``."""
    if _was_followed(live) and not _was_followed(standby):
        raise Invalid(
            f"{live.path} was used by statecore standby, and {standby.path} was not: the two are swapped.",
            code="directories-swapped",
            action="Name the state directory of statecore standby with --standby-dir, and the application's with "
            "--state-dir. If the application was started on an earlier copy, delete "
            f"{live.work_path / STANDBY} first.",
            state_dir=str(live.state_dir),
        )


def refuse_shared(
    task: str,
    standby: StateDirectory,
    live: StateDirectory,
    places: Collection[StorePlace],
    live_places: Collection[StorePlace],
) -> None:
    """Refuse a task that leads into the other directory through a link or a mount. Raises ``Invalid``."""
    ours, theirs = [*_paths_of(task, standby, places)], [*_paths_of(task, live, live_places)]
    for paths, other in ((ours, live), (theirs, standby)):
        root = other.path.resolve()
        for path in paths:
            if (real := path.resolve()).is_relative_to(root):
                raise _shared(task, f"{path} is {real}", other)
    seen = {file_id(path.stat()): path for path in theirs}
    for path in ours:
        if same := seen.get(file_id(path.stat())):
            raise _shared(task, f"{path} is {same}", live)


def _paths_of(task: str, directory: StateDirectory, places: Collection[StorePlace]) -> Iterator[Path]:
    """Existing directories of a task: its own, and those of its stores and databases."""
    if (own := directory.task_path(task)).is_dir():
        yield own
    for place in places:
        yield from dict.fromkeys((place.path, *place.databases))


def _shared(task: str, what: str, other: StateDirectory) -> Invalid:
    return Invalid(
        f"{what}, in {other.path}: the application and the standby of {task} would use the same database.",
        code="task-directory-shared",
        action="Remove the link or the mount, run statecore standby --once to update the copy, then run this again.",
        task=task,
    )


def _was_followed(directory: StateDirectory) -> bool:
    return next((directory.work_path / STANDBY).rglob(STANDBY_LOGS), None) is not None


def _same(first: Path, second: Path) -> bool:
    return first.exists() and second.exists() and first.samefile(second)
