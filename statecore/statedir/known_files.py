"""Files beside the stores with a known meaning to Kafka Streams, and files that nobody is known to have written."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from statecore.errors import Corrupted, StatecoreError
from statecore.formats.releases import CHECKPOINT_FILE, POSITION_SUFFIX
from statecore.formats.topic_partition import TopicPartition
from statecore.statedir.state_directory import WORK_DIRECTORY, StateDirectory
from statecore.stores.legacy_offsets import read_offsets
from statecore.stores.rocksdb.directory import CONFIG_FILE
from statecore.stores.rocksdb.manifest_guard import LOST_DIRECTORY, RECORD_FILE


@dataclass(frozen=True)
class KnownFile:
    """A file beside the stores.

    Attributes:
        task: its directory: a task, ``global``, or ``""`` for the application's own directory.
        damaged: whether its offsets cannot be read.
    """

    task: str
    name: str
    meaning: str
    damaged: bool = False


def known_files(directory: StateDirectory, tasks: Iterable[str]) -> list[KnownFile]:
    """Offset files and other known files in the application's directory and in the directories of these tasks."""
    found = []
    if (directory.path / WORK_DIRECTORY).is_dir():
        found.append(KnownFile("", WORK_DIRECTORY, "plans, reports and staging of restores; Kafka Streams ignores it"))
    for task in sorted(tasks):
        path = directory.path / task
        names = sorted(file.name for file in path.iterdir() if file.is_file()) if path.is_dir() else []
        for name in names:
            meaning, damaged = _meaning(path / name)
            if meaning:
                found.append(KnownFile(task, name, meaning, damaged))
    return found


class OffsetFileContent(NamedTuple):
    """Contents of an offset file.

    Attributes:
        offsets: by partition, -4 included; empty if there is no file or it is unreadable.
        exists: whether the file exists.
        unreadable: why it cannot be read, without its name; empty if it can.
        damaged: whether it is unreadable because its bytes are wrong.
    """

    offsets: dict[TopicPartition, int]
    exists: bool = True
    unreadable: str = ""
    damaged: bool = False


def read_offset_file(file: Path) -> OffsetFileContent:
    """Read a ``.checkpoint``, ``.checkpoint_<store>`` or ``.position`` file."""
    try:
        return OffsetFileContent(read_offsets(file), exists=os.path.lexists(file))
    except StatecoreError as error:
        why = error.what.removeprefix(f"{file} cannot be read: ").rstrip(".")
        return OffsetFileContent({}, unreadable=why, damaged=isinstance(error, Corrupted))


def _meaning(file: Path) -> tuple[str, bool]:
    """What a file is (empty if it has no meaning), and whether its offsets are damaged."""
    name = file.name
    if name == CHECKPOINT_FILE:
        found, damaged = _entries(file)
        return f"{found}; at the next start they overrule the offsets in the stores, then the file is deleted", damaged
    if name.startswith(f"{CHECKPOINT_FILE}_"):
        found, damaged = _entries(file)
        return f"{found} of a store that does not manage its own", damaged
    if name.endswith(POSITION_SUFFIX):
        return "left by 4.2 or older; merged into the store's position at every start", False
    if name.endswith(".lock"):
        return "a task's lock of older versions; no longer used", False
    return "", False


def _entries(file: Path) -> tuple[str, bool]:
    read = read_offset_file(file)
    if not read.exists:
        return "offsets", False  # deleted meanwhile
    if read.unreadable:
        return f"cannot be read ({read.unreadable})", read.damaged
    return "offsets " + ", ".join(
        f"{partition} = {offset}" for partition, offset in sorted(read.offsets.items())
    ), False


_OF_ROCKSDB = re.compile(
    r"CURRENT|IDENTITY|LOCK|LOG(\.old\.\d+)?|(MANIFEST|OPTIONS)-\d+|\d+\.(sst|log|blob|dbtmp)|OPTIONS-\d+\.dbtmp"
)
_OURS = frozenset({RECORD_FILE, f"{RECORD_FILE}.tmp", LOST_DIRECTORY, CONFIG_FILE})


def foreign_files(path: Path) -> tuple[str, ...]:
    """Names in a directory that neither RocksDB nor this library creates."""
    try:
        names = sorted(entry.name for entry in path.iterdir())
    except OSError:
        return ()
    return tuple(name for name in names if not is_database_file(name))


def is_database_file(name: str) -> bool:
    """Whether a name is one of RocksDB's or of this library's files."""
    return name in _OURS or _OF_ROCKSDB.fullmatch(name) is not None
