"""Files beside the stores that decide something, or did: each with what it means to Kafka Streams 4.3.1."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from statecore.errors import Corrupted
from statecore.formats.checkpoint import decode_checkpoint
from statecore.formats.releases import CHECKPOINT_FILE, POSITION_SUFFIX
from statecore.formats.topic_partition import TopicPartition
from statecore.maintenance.findings import Trouble
from statecore.maintenance.layout import StorePlace
from statecore.placement.state_directory import WORK_DIRECTORY, StateDirectory


@dataclass(frozen=True)
class Leftover:
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


def leftovers(directory: StateDirectory, tasks: Iterable[str]) -> list[Leftover]:
    """What lies in the application's directory and in these tasks' beside the stores."""
    found = []
    if (directory.path / WORK_DIRECTORY).is_dir():
        found.append(Leftover("", WORK_DIRECTORY, "plans, reports and staging of restores; Kafka Streams ignores it"))
    for task in sorted(tasks):
        path = directory.path / task
        names = sorted(file.name for file in path.iterdir() if file.is_file()) if path.is_dir() else []
        for name in names:
            meaning, damaged = _meaning(path / name)
            if meaning:
                found.append(Leftover(task, name, meaning, damaged))
    return found


def store_checkpoint(place: StorePlace) -> tuple[dict[TopicPartition, int], Trouble | None]:
    """The offsets in a store's ``.checkpoint_<store>``, none without the file, and why they cannot be read."""
    file = place.checkpoint_file
    try:
        return decode_checkpoint(file.read_bytes(), file.name), None
    except FileNotFoundError:
        return {}, None
    except (Corrupted, OSError) as error:
        return {}, Trouble(f"{file.name} cannot be read: {error}", damage=isinstance(error, Corrupted))


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
    try:
        offsets = decode_checkpoint(file.read_bytes(), file.name)
    except FileNotFoundError:
        return "offsets", False  # gone meanwhile
    except (Corrupted, OSError) as error:
        return f"cannot be read ({error})", isinstance(error, Corrupted)
    return "offsets " + ", ".join(f"{partition} = {offset}" for partition, offset in sorted(offsets.items())), False
