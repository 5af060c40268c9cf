"""Files beside the stores with a known meaning to Kafka Streams, and files that nobody is known to have written."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from statecore.errors import Corrupted, StatecoreError
from statecore.formats.kinds import StoreKind
from statecore.formats.releases import CHECKPOINT_FILE, PLAIN_PARENT, POSITION_SUFFIX
from statecore.formats.topic_partition import TopicPartition
from statecore.spec.model import StoreSpec
from statecore.statedir.state_directory import WORK_DIRECTORY, StateDirectory
from statecore.stores.legacy_offsets import read_offsets
from statecore.stores.rocksdb.directory import CONFIG_FILE
from statecore.stores.rocksdb.manifest_guard import LOST_DIRECTORY, RECORD_FILE
from statecore.system_errors import RUN_AS_APPLICATION, system_error


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


def type_of(path: Path) -> str:
    """What a path is: a file, a directory, a link to nothing or a named pipe, with its article; empty if missing."""
    try:
        mode = path.stat().st_mode
    except OSError:  # ELOOP, too
        return "a link to nothing" if os.path.islink(path) else ""  # noqa: PTH114  # a name that is too long is no link
    types = {stat.S_IFREG: "a file", stat.S_IFDIR: "a directory", stat.S_IFIFO: "a named pipe"}
    return types.get(stat.S_IFMT(mode), "a device or socket")


def not_a_file(path: Path) -> str:
    """:func:`type_of` a path where a file is expected or may be created; empty if that is possible."""
    found = type_of(path)
    if found == "a link to nothing" and Path(os.path.realpath(path)).parent.is_dir():
        return ""  # the file is created where the link points
    return "" if found == "a file" else found


class OffsetFileContent(NamedTuple):
    """Contents of an offset file.

    Attributes:
        offsets: by partition, -4 included; empty if there is no file or it is unreadable.
        exists: whether the file exists.
        unreadable: why it cannot be read, without its name; empty if it can.
        damaged: whether it is unreadable because its bytes are wrong, or because it is no file.
        is_file: whether it is a file, or missing.
        last_offsets: those of an unreadable file that Kafka Streams reads all the same, because a partition that is
            named twice is all that is wrong with it: the last line wins. ``None`` for other files.
    """

    offsets: dict[TopicPartition, int]
    exists: bool = True
    unreadable: str = ""
    damaged: bool = False
    is_file: bool = True
    last_offsets: dict[TopicPartition, int] | None = None


def read_offset_file(file: Path) -> OffsetFileContent:
    """Read a ``.checkpoint``, ``.checkpoint_<store>`` or ``.position`` file."""
    try:
        return OffsetFileContent(read_offsets(file), exists=os.path.lexists(file))
    except StatecoreError as error:
        is_file = not_a_file(file) == ""
        damaged = isinstance(error, Corrupted) or not is_file
        last = None
        if isinstance(error, Corrupted):
            with suppress(StatecoreError):
                last = read_offsets(file, last_wins=True)
        why = error.context["why"]
        return OffsetFileContent({}, unreadable=why, damaged=damaged, is_file=is_file, last_offsets=last)


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


def is_task_file(name: str) -> bool:
    """Whether a name is one of the files that Kafka Streams writes beside the stores of a task."""
    return name.startswith(CHECKPOINT_FILE) or name.endswith((POSITION_SUFFIX, f"{POSITION_SUFFIX}.tmp", ".lock"))


def unlogged_files(task_directory: Path, declared: Collection[StoreSpec]) -> list[str]:
    """Files of a task that belong to no database and to no declared custom store with a changelog, sorted.

    They may be the rows of a store of the application's own class, which exist nowhere else. Raises ``Invalid``.
    """
    custom = {store.name: store for store in declared if store.kind is StoreKind.CUSTOM}
    found = []

    def unreadable(error: OSError) -> None:
        if isinstance(error, FileNotFoundError):  # it was deleted meanwhile
            return
        raise system_error(error, f"{error.filename} cannot be read", action=RUN_AS_APPLICATION) from error

    for folder, _, names in os.walk(task_directory, onerror=unreadable):
        for name in names:
            parts = (*Path(folder).relative_to(task_directory).parts, name)
            if _is_of_a_database(parts) or (len(parts) == 1 and is_task_file(name)):
                continue
            owner = _custom_owner(parts, custom)
            if owner is None or not custom[owner].is_logged:
                found.append("/".join(parts))
    return sorted(found)


def _is_of_a_database(parts: tuple[str, ...]) -> bool:
    """Whether a file is RocksDB's or ours, in ``rocksdb/<store>``, in ``<store>/<segment>`` or in ``lost`` there."""
    in_database = len(parts) == 3 or (len(parts) == 4 and parts[2] == LOST_DIRECTORY)
    return in_database and is_database_file(parts[-1])


def _custom_owner(parts: tuple[str, ...], stores: Collection[str]) -> str | None:
    """The store that a file is named after: in ``<store>`` or ``rocksdb/<store>``, or ``<store>.<anything>``."""
    if len(parts) > 1:
        directory = parts[1] if parts[0] == PLAIN_PARENT and len(parts) > 2 else parts[0]
        return directory if directory in stores else None
    matching = (store for store in stores if parts[0] == store or parts[0].startswith(f"{store}."))
    return max(matching, key=len, default=None)
