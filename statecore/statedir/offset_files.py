"""Files beside the stores that decide something, or did: each with what it means to Kafka Streams 4.3 and later."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from statecore.errors import Corrupted, StatecoreError
from statecore.formats.releases import CHECKPOINT_FILE, POSITION_SUFFIX
from statecore.formats.topic_partition import TopicPartition
from statecore.statedir.state_directory import WORK_DIRECTORY, StateDirectory
from statecore.stores.legacy_offsets import read_offsets


@dataclass(frozen=True)
class OffsetFile:
    """One file.

    Attributes:
        task: where it lies: a task, ``global``, or ``""`` for the application's own directory.
        name: its name.
        meaning: what it is and does.
        damaged: whether it holds offsets that cannot be read.
    """

    task: str
    name: str
    meaning: str
    damaged: bool = False


def leftovers(directory: StateDirectory, tasks: Iterable[str]) -> list[OffsetFile]:
    """What lies in the application's directory and in these tasks' beside the stores."""
    found = []
    if (directory.path / WORK_DIRECTORY).is_dir():
        found.append(OffsetFile("", WORK_DIRECTORY, "plans, reports and staging of restores; Kafka Streams ignores it"))
    for task in sorted(tasks):
        path = directory.path / task
        names = sorted(file.name for file in path.iterdir() if file.is_file()) if path.is_dir() else []
        for name in names:
            meaning, damaged = _meaning(path / name)
            if meaning:
                found.append(OffsetFile(task, name, meaning, damaged))
    return found


class OffsetsRead(NamedTuple):
    """What a file with offsets says.

    Attributes:
        offsets: by partition, -4 among them; empty without a file, and where it cannot be read.
        there: whether there is such a file.
        unreadable: why it cannot be read; empty where it can.
        damaged: whether that is because its bytes are wrong.
    """

    offsets: dict[TopicPartition, int]
    there: bool = True
    unreadable: str = ""
    damaged: bool = False


def offsets_in(file: Path) -> OffsetsRead:
    """The offsets in a ``.checkpoint``, a ``.checkpoint_<store>`` or a ``.position``, or why they cannot be read."""
    try:
        return OffsetsRead(read_offsets(file), there=os.path.lexists(file))
    except StatecoreError as error:
        return OffsetsRead({}, unreadable=error.what, damaged=isinstance(error, Corrupted))


def _meaning(file: Path) -> tuple[str, bool]:
    """What a file is, empty for one without meaning; and whether its offsets are damaged."""
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
        return "a task's lock of older versions; without meaning now", False
    return "", False


def _entries(file: Path) -> tuple[str, bool]:
    read = offsets_in(file)
    if not read.there:
        return "offsets", False  # gone meanwhile
    if read.unreadable:
        return f"cannot be read ({read.unreadable})", read.damaged
    return "offsets " + ", ".join(
        f"{partition} = {offset}" for partition, offset in sorted(read.offsets.items())
    ), False
