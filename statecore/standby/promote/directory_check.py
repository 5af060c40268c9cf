"""The two directories of a hand-over: that they are two, and which of them is the copy.

Whoever follows the copy and the application itself must never work in one database. So a directory that is the other
one, or lies inside it, is refused, by whatever name it is called: a link, a mount or ``..``. A task that leads into the
other directory is refused alone.

``statecore standby`` leaves a record of what it follows (:mod:`statecore.tasks.standby_log_state`). Where only the
directory that was given for the application's has one, the two were given the wrong way round.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from statecore.errors import Fenced, Invalid, NotFound, StatecoreError
from statecore.statedir.state_directory import StateDirectory, application_directory_given
from statecore.statedir.store_places import StorePlace, application_directory, applications
from statecore.statedir.work_directory import STANDBY

_APART = "Give the copy and the application a state directory each, neither of them inside the other."


def copy_at(warm_dir: Path, application_id: str) -> StateDirectory:
    """The directory of a warm copy.

    Raises:
        NotFound: it is not there.
        Invalid: it is no directory, or may not be read.
    """
    try:
        return application_directory(warm_dir, application_id)
    except NotFound as error:
        raise error.restated(
            error.what,
            action="Name with --from the state directory that statecore standby has kept, which is the one above the "
            "one called like the application.",
        ) from error
    except Invalid as error:
        raise error.restated(error.what, action=f"Of --from: {error.action}") from error


@contextmanager
def closed(warm: StateDirectory) -> Iterator[None]:
    """Around the hand-over: nobody follows the copy meanwhile.

    Raises:
        Fenced: somebody does.
    """
    try:
        lock = warm.lock()
    except Fenced as error:
        raise error.restated(
            error.what,
            action="Stop statecore standby, which closes the copy, or wait for the other job; then run this again.",
        ) from error
    with lock:
        yield


def state_dir_in_doubt(live: StateDirectory) -> str:
    """What makes one doubt that a state.dir is one, in words; empty where nothing does.

    Raises:
        Invalid: it is the application's directory, below which nobody looks for another.
    """
    if live.path.exists():
        return ""
    given = live.state_dir.absolute()
    if given.name != live.application_id:
        return "" if given.exists() else f"There is no directory {given} yet: a hand-over makes it."
    known: list[str] = []
    with suppress(StatecoreError):  # who may not look there may be right all the same
        known = applications(given.parent)
    if given.name in known:
        raise application_directory_given(given)
    return (
        f"{given} is called like the application, whose directory in it becomes {live.path}. If it is the "
        f"application's directory itself, name the one above it with --state-dir: {given.parent}."
    )


def refuse_one_directory(warm: StateDirectory, live: StateDirectory) -> None:
    """Refuse a directory that is the other one, or lies inside it. Raises ``Invalid``."""
    if _same(warm.path, live.path):
        raise Invalid(
            f"{warm.path} is the directory of the application itself, and no copy beside it.",
            code="directories-identical",
            action="Name the state directory of statecore standby with --from, and the application's with --state-dir.",
            state_dir=str(live.state_dir),
        )
    for inner, outer in ((warm, live), (live, warm)):
        if any(_same(parent, outer.path) for parent in inner.path.resolve().parents):
            raise Invalid(
                f"{inner.path} lies inside {outer.path}: Kafka Streams or the standby would delete it with that.",
                code="directories-nested",
                action=_APART,
                state_dir=str(live.state_dir),
            )


def refuse_swapped(warm: StateDirectory, live: StateDirectory) -> None:
    """Refuse directories of which only the application's was kept by a standby. Raises ``Invalid``."""
    if _was_followed(live) and not _was_followed(warm):
        raise Invalid(
            f"{live.path} was kept by statecore standby, and {warm.path} was not: the two were given the wrong way "
            "round.",
            code="directories-swapped",
            action="Name the state directory of statecore standby with --from, and the application's with "
            "--state-dir. Where the application was started with an earlier copy, delete "
            f"{live.work_path / STANDBY} first.",
            state_dir=str(live.state_dir),
        )


def refuse_shared(
    task: str,
    warm: StateDirectory,
    live: StateDirectory,
    places: Collection[StorePlace],
    live_places: Collection[StorePlace],
) -> None:
    """Refuse a task of which a part is in the other directory, through a link or a mount. Raises ``Invalid``."""
    ours, theirs = [*_parts(task, warm, places)], [*_parts(task, live, live_places)]
    for parts, other in ((ours, live), (theirs, warm)):
        root = other.path.resolve()
        for part in parts:
            if (real := part.resolve()).is_relative_to(root):
                raise _shared(task, f"{part} is {real}", other)
    seen = {(found.st_dev, found.st_ino): part for part in theirs for found in [part.stat()]}
    for part in ours:
        found = part.stat()
        if there := seen.get((found.st_dev, found.st_ino)):
            raise _shared(task, f"{part} is {there}", live)


def _parts(task: str, directory: StateDirectory, places: Collection[StorePlace]) -> Iterator[Path]:
    """The directories of a task that are there: its own, and those of its stores and databases."""
    if (own := directory.task_path(task)).is_dir():
        yield own
    for place in places:
        yield from dict.fromkeys((place.path, *place.databases))


def _shared(task: str, what: str, other: StateDirectory) -> Invalid:
    return Invalid(
        f"{what}, in {other.path}: the application and who follows the copy of {task} would work in one database.",
        code="task-directory-shared",
        action="Take the link or the mount away, let statecore standby --once follow the copy, then run this again.",
        task=task,
    )


def _was_followed(directory: StateDirectory) -> bool:
    return next((directory.work_path / STANDBY).rglob("logs.json"), None) is not None


def _same(first: Path, second: Path) -> bool:
    return first.exists() and second.exists() and first.samefile(second)
