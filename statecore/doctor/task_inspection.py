"""What is beside the stores of a task, and beside the tasks of an application: offset files, and files of others."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from pathlib import Path

from statecore.doctor.inspection import TaskView
from statecore.formats.checkpoint import position_file
from statecore.formats.integers import INT32_MAX
from statecore.formats.releases import CHECKPOINT_FILE, GLOBAL, LOCK_FILE, PLAIN_PARENT, PROCESS_FILE
from statecore.formats.task_id import TaskId
from statecore.spec.model import ApplicationSpec
from statecore.statedir.file_ownership import unusable_files
from statecore.statedir.flush_times import read_flushes
from statecore.statedir.known_files import OffsetFileContent, is_task_file, not_a_file, read_offset_file, type_of
from statecore.statedir.state_directory import WORK_DIRECTORY, StateDirectory, store_directory
from statecore.statedir.store_places import StorePlace, store_places
from statecore.statedir.task_layout import entry_names


def inspect_task(
    directory: StateDirectory,
    task: str,
    places: Sequence[StorePlace],
    every: Sequence[StorePlace],
    spec: ApplicationSpec | None,
) -> TaskView:
    """What is beside the stores of a task.

    Args:
        places: its stores.
        every: the stores of all tasks.
    """
    path = directory.path / task
    prefix = f"{CHECKPOINT_FILE}_"
    files = _files_in(path)
    wrong_types = {
        name: what for name in _expected(task, every, spec) if (what := type_of(path / name)) not in ("", "a directory")
    }
    of_stores = {place.name for place in places}
    stores = {
        name.removeprefix(prefix): read
        for name in entry_names(path)
        if name.startswith(prefix)
        and not name.endswith(".tmp")
        and name not in of_stores
        and (read := read_offset_file(path / name)).exists
    }
    positions = {
        place.store: _IS_A_STORE if name in of_stores else read_offset_file(path / name)
        for place in places
        if os.path.lexists(path / (name := position_file(place.store)))
    }
    foreign = [name for name in files if not is_task_file(name) and name not in wrong_types]
    written_ns = _written_ns(path / CHECKPOINT_FILE)
    late = {
        place.store: read_flushes(place.databases, path, written_ns).late
        for place in places
        if written_ns and task != GLOBAL
    }
    return TaskView(
        task,
        read_offset_file(path / CHECKPOINT_FILE),
        stores,
        positions,
        tuple(foreign),
        _modified_ms(path),
        tuple(unusable_files(directory.path, path)),
        written_ns,
        {store: files for store, files in late.items() if files},
        directory.was_followed(task),
        wrong_types,
        has_content=_has_content(path),
        store_names=tuple(place.store for place in places),
    )


_IS_A_STORE = OffsetFileContent({}, unreadable="it is the directory of another store", is_file=False)


def _written_ns(file: Path) -> int:
    """When a file was written; 0 if it does not exist."""
    try:
        return file.stat().st_mtime_ns
    except OSError:
        return 0


def _modified_ms(path: Path) -> int:
    """When a directory was last changed; now, if it was deleted meanwhile, as abandoned tasks are."""
    try:
        return int(path.stat().st_mtime * 1000)
    except FileNotFoundError:
        return int(time.time() * 1000)


def inspect_beside_tasks(directory: StateDirectory) -> TaskView:
    """What is beside the tasks of an application."""
    known = {LOCK_FILE, PROCESS_FILE, GLOBAL, WORK_DIRECTORY, f"{PROCESS_FILE}.tmp"}
    named = {place.task.partition("/")[0] for place in store_places(directory)}
    foreign, unparsable, wrong_types = [], [], {}
    for entry in sorted(os.scandir(directory.path), key=lambda one: one.name):
        if TaskId.match(entry.name) is not None:
            if not Path(entry.path).is_dir():  # an entry raises for a link to itself
                wrong_types[entry.name] = type_of(Path(entry.path))
        elif _is_unparsable(Path(entry.path)):
            unparsable.append(entry.name)
        elif entry.name not in known | named and not entry.name.startswith("__"):
            foreign.append(entry.name)
    files = [directory.path / name for name in (LOCK_FILE, PROCESS_FILE)]
    wrong_types |= {file.name: what for file in files if (what := not_a_file(file))}
    wrong = [one for file in files if file.exists() for one in unusable_files(directory.path, file)]
    none = read_offset_file(Path(os.devnull) / "none")
    return TaskView(
        "", none, {}, {}, tuple(foreign), 0, tuple(wrong), wrong_types=wrong_types, unparsable=tuple(unparsable)
    )


_LIKE_A_TASK = re.compile(r"([0-9]+)_([0-9]+)")


def _is_unparsable(path: Path) -> bool:
    """Whether Kafka Streams takes a directory for a task's and cannot parse its name; it parses none of empty ones."""
    found = _LIKE_A_TASK.fullmatch(path.name)
    return found is not None and max(map(int, found.groups())) > INT32_MAX and _has_content(path)


def _has_content(path: Path) -> bool:
    """Whether Kafka Streams takes the directory of a task for one that is not empty."""
    return any(not name.startswith(CHECKPOINT_FILE) and not name.endswith(".lock") for name in entry_names(path))


def _files_in(path: Path) -> list[str]:
    try:
        with os.scandir(path) as entries:
            return sorted(entry.name for entry in entries if not Path(entry.path).is_dir())
    except OSError:
        return []


def _expected(task: str, every: Sequence[StorePlace], spec: ApplicationSpec | None) -> list[str]:
    """The directories of stores that a task may have: those of its subtopology, here or declared."""
    subtopology = TaskId.parse(task).subtopology
    names = {PLAIN_PARENT, *(place.name for place in every if place.subtopology == subtopology)}
    for store in () if spec is None else spec.stores_of(task):
        if store.kind.can_be_built:
            names.add(store_directory(store.name, store.kind))
    return sorted(names)
