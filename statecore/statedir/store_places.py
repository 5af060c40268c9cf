"""Finds applications, tasks and stores below a ``state.dir``, by the names of directories.

The databases are read in :mod:`statecore.discover.kind_detection` and ``inspect``.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from statecore.errors import Invalid, NotFound, StatecoreError
from statecore.formats.kinds import StoreKind
from statecore.formats.releases import GLOBAL, LOCK_FILE, PROCESS_FILE
from statecore.formats.task_id import TaskId
from statecore.spec.model import (
    NO_CHANGELOG,
    UNKNOWN_CHANGELOG,
    ApplicationSpec,
    ProcessingGuarantee,
    StoreSpec,
    default_changelog,
)
from statecore.statedir.known_files import foreign_files
from statecore.statedir.state_directory import StateDirectory, application_directory_given, has_tasks
from statecore.statedir.task_layout import StoreDirectory, directories_in, unreadable
from statecore.stores.rocksdb.directory import has_database
from statecore.system_errors import RUN_AS_APPLICATION


@dataclass(frozen=True)
class StorePlace(StoreDirectory):
    """A store of a task.

    Attributes:
        task: the task's directory relative to the application's: ``0_1``, or ``global``.
    """

    task: str

    @property
    def subtopology(self) -> int:
        """The number of its subtopology; -1 for a global store."""
        return TaskId.parse(self.task).subtopology

    @property
    def partition(self) -> int | None:
        """The partition of its task; ``None`` for a global store, which has all of them."""
        return TaskId.parse(self.task).partition


def store_places(directory: StateDirectory) -> list[StorePlace]:
    """Every store of every task, tasks in numeric order, the global stores last."""
    return [
        StorePlace(found.store, found.path, found.segmented, task)
        for task in [*directory.task_directories(), GLOBAL]
        for found in directory.stores(task)
    ]


def split_ignored(
    places: Sequence[StorePlace], spec: ApplicationSpec | None
) -> tuple[list[StorePlace], list[StorePlace]]:
    """The places of stores, and those where Kafka Streams looks for no store of their name.

    A store has one place: ``rocksdb/<store>``, or ``<store>`` if its kind has segments. Without a declared kind one
    is known: a database in ``<store>`` itself, which has no segments, beside one in ``rocksdb/<store>``.
    """
    by_name: dict[tuple[str, str], list[StorePlace]] = {}
    for place in places:
        by_name.setdefault((place.task, place.store), []).append(place)
    ignored = {one.path for named in by_name.values() for one in _ignored(named, spec)}
    return [one for one in places if one.path not in ignored], [one for one in places if one.path in ignored]


def _ignored(named: Sequence[StorePlace], spec: ApplicationSpec | None) -> list[StorePlace]:
    """The ignored places of one store of one task. One with other files may be of a class of the application's own."""
    declared = declared_at(spec, named[0].task, named[0].store)
    if declared is not None and declared.kind.can_be_built:
        others = [one for one in named if one.segmented is not declared.kind.is_segmented]
        if not declared.is_logged and not any(one.databases for one in named if one not in others):
            return []  # its rows are nowhere else, so the declared kind is the more likely mistake
        return [one for one in others if one.databases or has_database(one.path) or not foreign_files(one.path)]
    if declared is not None and declared.kind is not StoreKind.UNKNOWN:
        return []
    is_plain = any(one.databases for one in named if not one.segmented)
    return [one for one in named if one.segmented and is_plain and has_database(one.path)]


def applications(state_dir: Path) -> list[str]:
    """The application ids with a directory below a ``state.dir``; see also :func:`unreadable_directories`."""
    return [path.name for path in directories_in(state_dir) if _is_application(state_dir, path)]


def unreadable_directories(state_dir: Path) -> list[Path]:
    """Directories below a ``state.dir`` that this user may not read, such as ``lost+found``."""
    return [path for path in directories_in(state_dir) if _is_application(state_dir, path) is None]


def no_application_error(state_dir: Path) -> StatecoreError:
    """The error for a ``state.dir`` without any application's directory that can be read, or that does not exist."""
    if has_tasks(state_dir):
        return application_directory_given(state_dir)
    if skipped := [path.name for path in unreadable_directories(state_dir)]:
        return Invalid(
            f"In {state_dir} this user (uid {os.geteuid()}) may not read {', '.join(skipped)}, and there is no "
            "directory of an application beside it.",
            code="permission-denied",
            action=RUN_AS_APPLICATION,
            state_dir=str(state_dir),
        )
    what = "has no directory of an application" if state_dir.is_dir() else "is not a directory"
    return NotFound(
        f"{state_dir} {what}." if state_dir.exists() else _missing(state_dir),
        code="state-dir-not-found",
        action="Name the application's state.dir: the directory above the one named like the application.",
        state_dir=str(state_dir),
    )


def _missing(state_dir: Path) -> str:
    return f"There is no directory {state_dir}."


def application_directory(state_dir: Path, application_id: str) -> StateDirectory:
    """The directory of an existing application."""
    directory = StateDirectory(state_dir, application_id)
    try:
        if not state_dir.exists():
            raise NotFound(
                _missing(state_dir),
                code="state-dir-not-found",
                action="Name the application's state.dir.",
                state_dir=str(state_dir),
            )
        if directory.path.is_dir():
            return directory
        if directory.is_application_given():
            raise application_directory_given(state_dir)
    except PermissionError as error:
        raise unreadable(state_dir, error) from error
    known = applications(state_dir)
    raise NotFound(
        f"{state_dir} has no application {application_id}{suggest_names(application_id, known)}",
        code="application-not-found",
        action="Name the state.dir itself (the directory above the one named like the application), and its "
        "application id.",
        state_dir=str(state_dir),
        application_id=application_id,
    )


def check_application(spec: ApplicationSpec | None, application_id: str) -> None:
    """Raise ``Invalid`` for a spec of another application."""
    if spec is not None and spec.application_id != application_id:
        raise Invalid(
            f"{spec.source} is the spec of {spec.application_id}, not of {application_id}.",
            code="spec-application-mismatch",
            action="Name the spec of this application.",
            application_id=application_id,
            found=spec.application_id,
        )


def guarantee_of(spec: ApplicationSpec | None, given: ProcessingGuarantee | None) -> ProcessingGuarantee | None:
    """The declared guarantee, else the given one, else ``None``. Raises ``Invalid`` if both differ."""
    if spec is None:
        return given
    if given not in (None, spec.processing_guarantee):
        raise Invalid(
            f"{spec.source} says {spec.processing_guarantee}, and {given} was given as the application's guarantee.",
            code="guarantee-mismatch",
            action="Leave --processing-guarantee out, or correct the spec.",
            application_id=spec.application_id,
            expected=str(spec.processing_guarantee),
            found=str(given),
        )
    return spec.processing_guarantee


def declared_at(spec: ApplicationSpec | None, task: str, store: str) -> StoreSpec | None:
    """The declaration of a store of a task, or of a global store; ``None`` if it is not declared."""
    declared = () if spec is None else spec.global_stores if task == GLOBAL else spec.stores
    return next((one for one in declared if one.name == store), None)


def changelog_at(application_id: str, task: str, store: str, declared: StoreSpec | None) -> str:
    """The topic that a store of a task is rebuilt from, declared or Kafka Streams' own; empty without one."""
    if declared is not None and declared.changelog != UNKNOWN_CHANGELOG:
        return "" if declared.changelog == NO_CHANGELOG else declared.changelog
    return "" if task == GLOBAL else default_changelog(application_id, store)


def suggest_names(wanted: str, known: Iterable[str]) -> str:
    """End of a message about a name that does not exist: the closest existing name, and all names."""
    names = sorted(set(known))
    if not names:
        return ", nor any other."
    near = difflib.get_close_matches(wanted, names, n=1)
    hint = f"; did you mean {near[0]}?" if near else "."
    return f"{hint} There are: {', '.join(names)}."


def _is_application(state_dir: Path, path: Path) -> bool | None:
    """Whether a directory is an application's; ``None`` if this user may not read it."""
    try:
        if (path / LOCK_FILE).exists() or (path / PROCESS_FILE).exists() or (path / GLOBAL).is_dir():
            return True
        return bool(StateDirectory(state_dir, path.name).task_directories())
    except (PermissionError, Invalid):
        return None


_SUFFIX = "-changelog"


def changelog_owner(topic: str, application_id: str, stores: Iterable[str]) -> tuple[str, str] | None:
    """Application id and store of a changelog that belongs to another application; ``None`` if it does not.

    Kafka Streams names it ``<application.id>-<store>-changelog`` (``ProcessorStateManager.storeChangelogTopic``). The
    longest matching store name wins: ``orders-v2-day-changelog`` belongs to ``orders`` only if that has a store
    ``v2-day``, else to ``orders-v2``.
    """
    for store in sorted(stores, key=len, reverse=True):
        owner = topic.removesuffix(f"-{store}{_SUFFIX}")
        if owner not in ("", topic):
            return None if owner == application_id else (owner, store)
    return None
