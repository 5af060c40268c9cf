"""Where the stores of applications lie: which applications and tasks there are, and which stores those have.

Only names are read here; what is in the databases is for :mod:`statecore.maintenance.recognise` and ``inspect``.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from statecore.errors import Invalid, NotFound
from statecore.formats.releases import GLOBAL, LOCK_FILE, PROCESS_FILE
from statecore.placement.contents import StoreDirectory, directories_in
from statecore.placement.state_directory import StateDirectory, partition_of
from statecore.spec.model import ApplicationSpec, StoreSpec


@dataclass(frozen=True)
class StorePlace(StoreDirectory):
    """One store of one task, by its directory.

    Attributes:
        task: the task's directory relative to the application's: ``0_1``, ``__north__/0_1``, or ``global``.
    """

    task: str

    @property
    def subtopology(self) -> int:
        """The number of its subtopology; -1 for a global store."""
        return -1 if self.task == GLOBAL else int(self.task.rpartition("/")[2].partition("_")[0])

    @property
    def partition(self) -> int | None:
        """The partition of its task; ``None`` for a global store, which holds all of them."""
        return partition_of(self.task)

    @property
    def topology(self) -> str | None:
        """The named topology its task belongs to, or ``None``."""
        named = self.task.rpartition("/")[0]
        return named[2:-2] if named else None


def store_places(directory: StateDirectory) -> list[StorePlace]:
    """Every store of every task, tasks in numeric order, the global stores last."""
    return [
        StorePlace(found.store, found.path, found.segmented, task)
        for task in [*directory.task_directories(), GLOBAL]
        for found in directory.stores(task)
    ]


def applications(state_dir: Path) -> list[str]:
    """The application ids that have a directory below a ``state.dir``."""
    return [path.name for path in directories_in(state_dir) if _is_application(state_dir, path)]


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


def check_application(spec: ApplicationSpec | None, application_id: str) -> None:
    """Refuse a spec of another application. Raises ``Invalid``."""
    if spec is not None and spec.application_id != application_id:
        raise Invalid(
            f"{spec.source} is the spec of {spec.application_id}, not of {application_id}.",
            action="Name the spec of this application.",
            application_id=application_id,
        )


def declared_at(spec: ApplicationSpec | None, place: StorePlace) -> StoreSpec | None:
    """What is declared of a store, global ones apart from those of tasks; ``None`` where nothing is."""
    if spec is None:
        return None
    if place.task == GLOBAL:
        return next((one for one in spec.global_stores if one.name == place.store), None)
    return next((one for one in spec.stores if (one.topology, one.name) == (place.topology, place.store)), None)


def named_instead(wanted: str, known: Iterable[str]) -> str:
    """How a message goes on about a name that does not exist: the nearest one, and all there are."""
    names = sorted(set(known))
    if not names:
        return ", nor any other."
    near = difflib.get_close_matches(wanted, names, n=1)
    hint = f"; did you mean {near[0]}?" if near else "."
    return f"{hint} There are: {', '.join(names)}."


def _is_application(state_dir: Path, path: Path) -> bool:
    if (path / LOCK_FILE).exists() or (path / PROCESS_FILE).exists() or (path / GLOBAL).is_dir():
        return True
    return bool(StateDirectory(state_dir, path.name).task_directories())
