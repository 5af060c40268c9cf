"""Files beside the stores that decide something, or did: each with what it means to Kafka Streams 4.3.1."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from statecore.errors import Corrupted
from statecore.formats.checkpoint import CHECKPOINT_FILE, POSITION_SUFFIX, decode_checkpoint, store_checkpoint_file
from statecore.formats.topic_partition import TopicPartition
from statecore.maintenance.layout import StorePlace
from statecore.runtime.state_directory import WORK_DIRECTORY, StateDirectory


@dataclass(frozen=True)
class Leftover:
    """One file.

    Attributes:
        task: where it lies: a task, ``global``, or ``""`` for the application's own directory.
        name: its name.
        meaning: what it is and does.
    """

    task: str
    name: str
    meaning: str


def leftovers(directory: StateDirectory, tasks: Iterable[str]) -> list[Leftover]:
    """What lies in the application's directory and in these tasks' beside the stores."""
    found = []
    if (directory.path / WORK_DIRECTORY).is_dir():
        found.append(Leftover("", WORK_DIRECTORY, "plans, reports and staging of restores; Kafka Streams ignores it"))
    for task in sorted(tasks):
        path = directory.path / task
        names = sorted(file.name for file in path.iterdir() if file.is_file()) if path.is_dir() else []
        found += [Leftover(task, name, meaning) for name in names if (meaning := _meaning(path / name))]
    return found


def store_checkpoint(place: StorePlace) -> tuple[dict[TopicPartition, int], str]:
    """The offsets in a store's ``.checkpoint_<store>``, and why they cannot be read; both empty without the file."""
    file = place.path.parent / store_checkpoint_file(place.store)
    if not place.segmented:
        file = place.path.parent.parent / store_checkpoint_file(place.store)
    try:
        return decode_checkpoint(file.read_bytes(), file.name), ""
    except FileNotFoundError:
        return {}, ""
    except (Corrupted, OSError) as error:
        return {}, f"{file.name} cannot be read: {error}"


def _meaning(file: Path) -> str:
    name = file.name
    if name == CHECKPOINT_FILE:
        return f"{_entries(file)}; at the next start they overrule the offsets in the stores, then the file is deleted"
    if name.startswith(f"{CHECKPOINT_FILE}_"):
        return f"{_entries(file)} of a store that does not manage its own"
    if name.endswith(POSITION_SUFFIX):
        return "left by 4.2 or older; merged into the store's position at every start"
    if name.endswith(".lock"):
        return "a task's lock of older versions; without meaning now"
    return ""


def _entries(file: Path) -> str:
    try:
        offsets = decode_checkpoint(file.read_bytes(), file.name)
    except FileNotFoundError:
        return "offsets"  # gone meanwhile
    except (Corrupted, OSError) as error:
        return f"cannot be read ({error})"
    return "offsets " + ", ".join(f"{partition} = {offset}" for partition, offset in sorted(offsets.items()))
