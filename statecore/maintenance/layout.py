"""Where the stores of a state directory lie: which tasks there are, which stores they have, which segments those have.

Only names are read here; what is in the databases is for :mod:`statecore.maintenance.recognise` and ``inspect``.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from statecore.errors import Invalid, NotFound
from statecore.placement.application_lock import LOCK_FILE
from statecore.placement.database_state import is_database
from statecore.placement.state_directory import StateDirectory

GLOBAL = "global"
"""The directory of the global stores, which takes the place of a task's."""

_PROCESS_FILE = "kafka-streams-process-metadata"


@dataclass(frozen=True)
class Segment:
    """One segment of a store.

    Attributes:
        path: its database.
        start: the time in ms its interval begins with, from its name; ``None`` when the name is none of a segment.
    """

    path: Path
    start: int | None


@dataclass(frozen=True)
class StorePlace:
    """One store of one task, by its directory.

    Attributes:
        task: the task's directory relative to the application's: ``0_1``, ``__north__/0_1``, or ``global``.
        store: its name.
        path: its directory.
        segmented: whether it lies where stores with segments lie.
    """

    task: str
    store: str
    path: Path
    segmented: bool

    @property
    def subtopology(self) -> int:
        """The number of its subtopology; -1 for a global store."""
        return -1 if self.task == GLOBAL else int(self.task.rpartition("/")[2].partition("_")[0])

    @property
    def partition(self) -> int | None:
        """The partition of its task; ``None`` for a global store, which holds all of them."""
        return None if self.task == GLOBAL else int(self.task.rpartition("_")[2])

    @property
    def topology(self) -> str | None:
        """The named topology its task belongs to, or ``None``."""
        named = self.task.rpartition("/")[0]
        return named[2:-2] if named else None

    @property
    def segments(self) -> list[Segment]:
        """Its segments in order of time; empty for a store that is one database."""
        if not self.segmented or not self.path.is_dir():
            return []
        found = [Segment(path, segment_start(path.name, self.store)) for path in _directories(self.path)]
        found = [segment for segment in found if _is_database(segment.path)]
        return sorted(found, key=lambda segment: (segment.start is None, segment.start or 0, segment.path.name))

    @property
    def databases(self) -> list[Path]:
        """Its databases: its segments in order of time, or its own directory."""
        if self.segmented:
            return [segment.path for segment in self.segments]
        return [self.path] if _is_database(self.path) else []


def segment_start(name: str, store: str) -> int | None:
    """The time in ms in the name of a segment's directory, also in the forms of older versions; ``None`` otherwise.

    ``clicks.1795251600000`` now; ``clicks:1795251600000`` and ``clicks-202611201400`` (UTC) before.
    """
    if not name.startswith(store):
        return None
    separator, text = name[len(store) : len(store) + 1], name[len(store) + 1 :]
    if not text.isascii() or not text.isdigit():
        return None
    if separator in (".", ":"):
        return int(text)
    if separator == "-" and len(text) == 12:
        try:
            return int(datetime.strptime(text, "%Y%m%d%H%M").replace(tzinfo=UTC).timestamp() * 1000)
        except ValueError:
            return None
    return None


def store_places(directory: StateDirectory) -> list[StorePlace]:
    """Every store of every task, tasks in numeric order, the global stores last."""
    places: list[StorePlace] = []
    for task in [*directory.task_directories(), GLOBAL]:
        path = directory.path / task
        places += [StorePlace(task, found.name, found, segmented=False) for found in _directories(path / "rocksdb")]
        places += [
            StorePlace(task, found.name, found, segmented=True)
            for found in _directories(path)
            if found.name != "rocksdb"
        ]
    return places


def applications(state_dir: Path) -> list[str]:
    """The application ids that have a directory below a ``state.dir``."""
    return [path.name for path in _directories(state_dir) if _is_application(state_dir, path)]


def no_application(state_dir: Path) -> NotFound:
    """The error for a ``state.dir`` below which nothing is an application's directory, or that does not exist."""
    what = f"{state_dir} has no directory of an application." if state_dir.exists() else _missing(state_dir)
    return NotFound(
        what,
        action="Name the application's state.dir: the directory above the one called like the application.",
        state_dir=str(state_dir),
    )


def _missing(state_dir: Path) -> str:
    return f"There is no directory {state_dir}."


def application_directory(state_dir: Path, application_id: str) -> StateDirectory:
    """The directory of an application that is there.

    Raises:
        NotFound: it is not; what there is instead is named.
        Invalid: the state directory is no directory, or may not be read.
    """
    if not state_dir.exists():
        raise NotFound(_missing(state_dir), action="Name the application's state.dir.", state_dir=str(state_dir))
    directory = StateDirectory(state_dir, application_id)
    if directory.path.is_dir():
        return directory
    known = applications(state_dir)
    raise NotFound(
        f"{state_dir} has no application {application_id}{named_instead(application_id, known)}",
        action="Name the state.dir itself (the directory above the one called like the application), and its "
        "application id.",
        state_dir=str(state_dir),
        application_id=application_id,
    )


def named_instead(wanted: str, known: Iterable[str]) -> str:
    """How a message goes on about a name that does not exist: the nearest one, and all there are."""
    names = sorted(set(known))
    if not names:
        return ", nor any other."
    near = difflib.get_close_matches(wanted, names, n=1)
    hint = f"; did you mean {near[0]}?" if near else "."
    return f"{hint} There are: {', '.join(names)}."


def _is_application(state_dir: Path, path: Path) -> bool:
    if (path / LOCK_FILE).exists() or (path / _PROCESS_FILE).exists() or (path / GLOBAL).is_dir():
        return True
    return bool(StateDirectory(state_dir, path.name).task_directories())


def _is_database(path: Path) -> bool:
    try:
        return is_database(path)
    except OSError as error:
        raise _unreadable(path, error) from error


def _directories(path: Path) -> list[Path]:
    try:
        return sorted(entry for entry in path.iterdir() if entry.is_dir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: OSError) -> Invalid:
    return Invalid(
        f"{path} cannot be read: {error.strerror}.",
        action="Run as the user that the application runs as.",
        path=str(path),
    )
