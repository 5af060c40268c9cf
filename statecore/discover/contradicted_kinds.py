"""Finds declared stores whose directory contradicts their kind, before anything is placed beside them.

Kafka Streams with the wrong kind fails at its start, answers without the store's rows, or, under exactly-once, wipes
the whole task. Evidence:

- layout and column families of its databases, and some of their rows (:mod:`statecore.discover.kind_detection`);
- ``.checkpoint_<store>``, where Kafka Streams keeps offsets only of grace buffers and of persistent stores of the
  application's own classes;
- files other than RocksDB's, which only such a class creates;
- anything of a store that is declared in memory.

Damaged or unreadable databases are no evidence: restores repair them.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from statecore.discover.kind_detection import KindDetection, detect_kind
from statecore.discover.kind_evidence import BY_FAMILIES, listed, openable_kinds, possible_kinds
from statecore.errors import Invalid, Reason, StatecoreError
from statecore.formats.checkpoint import store_checkpoint_file
from statecore.formats.kinds import StoreKind
from statecore.formats.offsets import STATUS_CLOSED
from statecore.spec.model import ApplicationSpec, StoreSpec
from statecore.statedir.known_files import is_database_file
from statecore.statedir.state_directory import StateDirectory
from statecore.statedir.store_on_disk import read_database
from statecore.statedir.store_places import StorePlace
from statecore.stores.legacy_offsets import read_offsets
from statecore.words import shortened_list

_SHOWN = 20


@dataclass(frozen=True)
class Contradiction:
    """A store that contradicts its declaration.

    Attributes:
        why: the evidence, as the end of "the spec says X, but"; code ``own-class`` where it is of the application's
            own class.
    """

    store: str
    declared: StoreKind
    tasks: tuple[str, ...]
    why: Reason

    @property
    def is_of_another_class(self) -> bool:
        """Whether statecore does not build one of both kinds, so that a rebuild by the spec would replace the store."""
        return self.declared in (StoreKind.CUSTOM, StoreKind.IN_MEMORY) or self.why.code == "own-class"

    def __str__(self) -> str:
        """One sentence without its full stop."""
        return f"store {self.store} in {shortened_list(self.tasks, 5)}: the spec says {self.declared}, but {self.why}"


def contradiction_error(
    directory: StateDirectory,
    spec: ApplicationSpec,
    tasks: Collection[str],
    except_stores: Collection[tuple[str, str]] = (),
    *,
    by_rows: bool = True,
) -> Invalid | None:
    """The error for tasks with stores that contradict the spec; ``None`` if there are none."""
    found = find_contradictions(directory, spec, tasks, except_stores, by_rows=by_rows)
    if not found:
        return None
    lines = [str(one) for one in found[:_SHOWN]]
    more = [f"... and {len(found) - _SHOWN} more"] if len(found) > _SHOWN else []
    return Invalid(
        f"{spec.source} contradicts {directory.path}:\n  " + "\n  ".join([*lines, *more]) + "\n",
        code="kind-mismatch",
        action="Correct the kind in the spec, as the application declares the store. If the spec is right, and the "
        "directory is a leftover, move it out of the task's directory, or let statecore repair rebuild it. "
        "Nothing was changed.",
        stores=sorted({one.store for one in found}),
        problems=[str(one) for one in found],
    )


def find_contradictions(
    directory: StateDirectory,
    spec: ApplicationSpec,
    tasks: Collection[str],
    except_stores: Collection[tuple[str, str]] = (),
    *,
    by_rows: bool = True,
    by_content: bool = True,
) -> list[Contradiction]:
    """The stores of some tasks that contradict the spec; without ``by_content`` no database is read."""
    by_task = {task: _places(directory, task) for task in sorted(tasks) if directory.task_path(task).is_dir()}
    found: list[Contradiction] = []
    for store in (*spec.stores, *spec.global_stores):
        if store.kind is StoreKind.UNKNOWN:
            continue
        reasons: dict[Reason, list[str]] = {}
        right: list[StorePlace] = []
        for task, places in by_task.items():
            if store not in spec.stores_of(task) or (task, store.name) in except_stores:
                continue
            of_store = [place for place in places if place.store == store.name]
            why = _why_not(store, directory.task_path(task), of_store)
            if why is not None:
                reasons.setdefault(why, []).append(task)
            elif store.kind.can_be_built:
                right += [one for one in of_store if one.segmented is store.kind.is_segmented and one.databases]
        for place, content in _by_content(store, right, by_rows) if by_content else ():
            reasons.setdefault(Reason(content, "other-kind"), []).append(place.task)
        found += [Contradiction(store.name, store.kind, tuple(its), why) for why, its in reasons.items()]
    return found


def _places(directory: StateDirectory, task: str) -> list[StorePlace]:
    return [StorePlace(one.store, one.path, one.segmented, task) for one in directory.stores(task)]


def _own_class(evidence: str) -> Reason:
    return Reason(f"{evidence}, as of a store of the application's own class (kind custom)", "own-class")


def _why_not(store: StoreSpec, task: Path, places: Sequence[StorePlace]) -> Reason | None:
    """Why a store cannot be of its declared kind, by names and places of files; ``None`` if it can."""
    file = store_checkpoint_file(store.name)
    outside = _own_class(f"Kafka Streams keeps its offset in {file}") if _has_offset(task / file) else None
    filled = [place for place in places if place.databases]
    if store.kind is StoreKind.CUSTOM:
        return _why_not_custom(filled, outside)
    if store.kind is StoreKind.IN_MEMORY:
        return _why_not_in_memory(store, task, places, filled, outside)
    return _why_not_rocksdb(store, places, filled, outside)


def _why_not_custom(filled: Sequence[StorePlace], outside: Reason | None) -> Reason | None:
    # A class that wraps a store of Kafka Streams has its offset in both places, or in one if it was not closed.
    inside = "" if outside else _with_offset_inside(filled, closed=True)
    if not inside:
        return None
    return Reason(f"{inside} is a database in which Kafka Streams itself keeps the store's offset", "other-kind")


def _why_not_in_memory(
    store: StoreSpec, task: Path, places: Sequence[StorePlace], filled: Sequence[StorePlace], outside: Reason | None
) -> Reason | None:
    if filled:
        return Reason(f"{filled[0].name} is a database", "other-kind")
    if outside is not None:
        return outside
    files = _foreign_files(places) or ([store.name] if (task / store.name).is_file() else [])
    return _own_class(f"its directory contains {shortened_list(files, 3)}") if files else None


def _why_not_rocksdb(
    store: StoreSpec, places: Sequence[StorePlace], filled: Sequence[StorePlace], outside: Reason | None
) -> Reason | None:
    if outside is not None and store.kind.manages_offsets and not _with_offset_inside(filled):
        return outside
    if not filled:
        foreign = _foreign_files(places)
        contents = f"its directory contains {shortened_list(foreign, 3)} and no RocksDB database"
        return _own_class(contents) if foreign else None
    if all(place.segmented is not store.kind.is_segmented for place in filled):
        shape = "a directory of segments" if filled[0].segmented else "one database"
        return Reason(f"{filled[0].name} is {shape}, unlike stores of that kind", "other-kind")
    return None


def _has_offset(file: Path) -> bool:
    """Whether ``.checkpoint_<store>`` has a known offset."""
    try:
        offsets = read_offsets(file)
    except StatecoreError:
        return False
    return any(offset >= 0 for offset in offsets.values())


def _with_offset_inside(places: Iterable[StorePlace], *, closed: bool = False) -> str:
    """The first directory with a database that has an offset, and was closed if required; or empty."""
    for place in places:
        for database in place.databases:
            with suppress(StatecoreError):
                state = read_database(database).opened()
                if state.offsets and (state.status == STATUS_CLOSED or not closed):
                    return place.name
    return ""


def _foreign_files(places: Iterable[StorePlace]) -> list[str]:
    return [name for place in places for name in _foreign_in(place.path)]


def _foreign_in(path: Path) -> list[str]:
    """Non-hidden files other than RocksDB's below a store's directory; none if there was a database, now damaged."""
    names = {name for _, _, files in os.walk(path) for name in files if not name.startswith(".")}
    if any(name.endswith(".sst") or name.startswith("MANIFEST-") for name in names):
        return []
    return sorted(name for name in names if not is_database_file(name))


def _by_content(store: StoreSpec, places: Sequence[StorePlace], by_rows: bool) -> list[tuple[StorePlace, str]]:
    """Databases of other kinds by their families and rows, each with its possible kinds."""
    if not places:
        return []
    seen = _detect_or_none(places)
    together = _is_another(store, seen, by_rows)
    if len(places) == 1:
        return [(places[0], together)] if together else []
    if not together and seen is not None and not seen.unopenable:
        return []
    alone = [(place, why) for place in places if (why := _is_another(store, _detect_or_none([place]), by_rows))]
    return alone or [(place, together) for place in places if together]


def _detect_or_none(places: Sequence[StorePlace]) -> KindDetection | None:
    """Evidence in the databases of a store; ``None`` if one cannot be read."""
    with suppress(StatecoreError):
        return detect_kind(places)
    return None


def _is_another(store: StoreSpec, seen: KindDetection | None, by_rows: bool) -> str:
    """The possible kinds of databases, if the declared one is not among them; else empty."""
    if seen is None or seen.unopenable:
        return ""
    left = possible_kinds([one for one in seen.evidence if by_rows or one.observation == BY_FAMILIES])
    return "" if openable_kinds(store.kind) & (left | seen.uncertain_kinds) else f"what is on disk is {listed(left)}"
