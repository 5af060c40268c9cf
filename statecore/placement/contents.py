"""What lies in a task's directory, or in ``global/``: its stores, whatever their shape, and the files beside them.

The shape of a store's directory says whether it has segments; which kind of store it is, it does not say::

    rocksdb/<store>/                 plain: the directory is the database
    <store>/<store>.<start ms>/      segmented: a database for each interval of time, or none yet
    .checkpoint_<store>              its offsets, where the store does not keep them itself
    <store>.position                 left over from versions up to 4.2
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from statecore.formats.checkpoint import CHECKPOINT_FILE, POSITION_SUFFIX, store_checkpoint_file
from statecore.placement.database_state import databases_of

PLAIN_PARENT = "rocksdb"
"""In a task's directory: where the stores without segments are."""


@dataclass(frozen=True)
class StoreDirectory:
    """One store's directory.

    Attributes:
        store: the store's name.
        name: the directory, relative to the task's: ``rocksdb/<store>`` or ``<store>``.
        path: the directory.
        segmented: whether it is of the shape that holds segments.
        databases: its databases, segments in order of time; none where Kafka Streams has not made one yet.
        checkpoint: ``.checkpoint_<store>``, if there is one.
    """

    store: str
    name: str
    path: Path
    segmented: bool
    databases: tuple[Path, ...]
    checkpoint: Path | None


def stores_in(task_directory: Path) -> list[StoreDirectory]:
    """The stores of a task (or of ``global/``), plain ones first, by name; none when there is no such directory."""
    found = []
    for parent, segmented in ((task_directory / PLAIN_PARENT, False), (task_directory, True)):
        names = sorted(entry.name for entry in os.scandir(parent) if entry.is_dir()) if parent.is_dir() else []
        for name in names:
            if segmented and name == PLAIN_PARENT:
                continue
            checkpoint = task_directory / store_checkpoint_file(name)
            found.append(
                StoreDirectory(
                    name,
                    name if segmented else f"{PLAIN_PARENT}/{name}",
                    parent / name,
                    segmented,
                    tuple(databases_of(parent / name)),
                    checkpoint if checkpoint.is_file() else None,
                )
            )
    return found


def names_in(task_directory: Path) -> list[str]:
    """Everything in a task's directory by name, the stores without segments as ``rocksdb/<store>``; sorted."""
    names = [entry.name for entry in os.scandir(task_directory) if entry.name != PLAIN_PARENT]
    if (task_directory / PLAIN_PARENT).is_dir():
        names += [f"{PLAIN_PARENT}/{entry.name}" for entry in os.scandir(task_directory / PLAIN_PARENT)]
    return sorted(names)


def store_of(task_directory: Path, name: str) -> str:
    """The store that a directory, or a file beside the stores, belongs to; the name itself where it is no such file."""
    if (task_directory / name).is_dir():
        return name.removeprefix(f"{PLAIN_PARENT}/")
    if name.startswith(f"{CHECKPOINT_FILE}_"):
        return name.removeprefix(f"{CHECKPOINT_FILE}_").removesuffix(".tmp")
    return name.removesuffix(POSITION_SUFFIX)
