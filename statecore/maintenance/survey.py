"""What a state directory says of its stores: which there are, where, and of which kind. Only read, never changed.

The column families tell some kinds for certain, because each store class opens exactly its own:

================================================  =============================================
in the task directory                             kind
================================================  =============================================
``rocksdb/<store>``: keyValueWithTimestamp        timestamped-key-value
``rocksdb/<store>``: ...AndHeaders                headers-key-value
``rocksdb/<store>``: default and offsets only     key-value; versioned and list stores look the same
``<store>/<store>.<ms>``: keyValueWithTimestamp   timestamped-window
``<store>/<store>.<ms>``: ...AndHeaders           headers-window
``<store>/<store>.<ms>``: anything else           cannot be told
================================================  =============================================
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from statecore.errors import Corrupted
from statecore.formats.kinds import DEFAULT_COLUMN_FAMILY, OFFSETS_COLUMN_FAMILY, StoreKind
from statecore.runtime.database_state import databases_of, read_database_state
from statecore.runtime.state_directory import StateDirectory

_KEY_VALUE_FAMILIES = {
    "keyValueWithTimestamp": StoreKind.TIMESTAMPED_KEY_VALUE,
    "keyValueWithTimestampAndHeaders": StoreKind.HEADERS_KEY_VALUE,
}
_WINDOW_FAMILIES = {
    "keyValueWithTimestamp": StoreKind.TIMESTAMPED_WINDOW,
    "keyValueWithTimestampAndHeaders": StoreKind.HEADERS_WINDOW,
}
_SIDE_FAMILIES = {DEFAULT_COLUMN_FAMILY, OFFSETS_COLUMN_FAMILY}


@dataclass(frozen=True)
class FoundStore:
    """A store that has a directory.

    Attributes:
        name: its name.
        subtopology: of its tasks; -1 below ``global``.
        topology: the named topology, or ``None``.
        kind: what the column families say; ``?`` where they do not.
        topics: the topics its ``offsets`` families name.
        segmented: whether its rows lie in segments.
        trouble: why it could not be looked at; empty when it could.
    """

    name: str
    subtopology: int
    topology: str | None
    kind: StoreKind
    topics: frozenset[str]
    segmented: bool
    trouble: str = ""


def survey(directory: StateDirectory) -> list[FoundStore]:
    """Every store of every task directory, once; the global ones too. Empty when there is no directory."""
    found: dict[tuple[str | None, str], FoundStore] = {}
    for task in directory.task_directories():
        topology, _, name = task.rpartition("/")
        subtopology = int(name.partition("_")[0])
        for store in _stores_of(directory.path / task, subtopology, topology.strip("_") or None):
            _remember(found, store)
    for store in _stores_of(directory.path / "global", -1, None):
        _remember(found, store)
    return list(found.values())


def _remember(found: dict[tuple[str | None, str], FoundStore], store: FoundStore) -> None:
    """The first task that could tell the kind speaks for all."""
    known = found.get((store.topology, store.name))
    if known is None or (known.kind is StoreKind.UNKNOWN and store.kind is not StoreKind.UNKNOWN):
        found[store.topology, store.name] = store


def _stores_of(task: Path, subtopology: int, topology: str | None) -> list[FoundStore]:
    places = [(path, False) for path in _directories(task / "rocksdb")]
    places += [(path, True) for path in _directories(task) if path.name != "rocksdb"]
    return [_look(path, segmented, subtopology, topology) for path, segmented in places]


def _directories(path: Path) -> list[Path]:
    return sorted(entry for entry in path.iterdir() if entry.is_dir()) if path.is_dir() else []


def _look(path: Path, segmented: bool, subtopology: int, topology: str | None) -> FoundStore:
    families: set[str] = set()
    topics: set[str] = set()
    trouble = ""
    for database in databases_of(path)[-1:]:  # of a segmented store the newest segment speaks for all
        try:
            state = read_database_state(database)
        except Corrupted as error:
            trouble = error.what
            continue
        families |= set(state.column_families)
        topics |= {partition.topic for partition in state.offsets}
    kind = _kind(families, segmented)
    return FoundStore(path.name, subtopology, topology, kind, frozenset(topics), segmented, trouble)


def _kind(families: set[str], segmented: bool) -> StoreKind:
    data = families - _SIDE_FAMILIES
    known = _WINDOW_FAMILIES if segmented else _KEY_VALUE_FAMILIES
    kinds = {known.get(family, StoreKind.UNKNOWN) for family in data}
    if StoreKind.HEADERS_KEY_VALUE in kinds or StoreKind.HEADERS_WINDOW in kinds:
        kinds -= {
            StoreKind.TIMESTAMPED_KEY_VALUE,
            StoreKind.TIMESTAMPED_WINDOW,
        }  # the older family of an upgraded store
    if len(kinds) == 1:
        return kinds.pop()
    if not data and OFFSETS_COLUMN_FAMILY in families and not segmented:
        return StoreKind.KEY_VALUE
    return StoreKind.UNKNOWN
