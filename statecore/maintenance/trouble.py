"""What is wrong with a store on disk, in a sentence each: what was found, and what Kafka Streams will make of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from statecore.errors import Corrupted
from statecore.formats.kinds import StoreKind
from statecore.formats.offsets import OFFSET_UNKNOWN
from statecore.formats.releases import CHECKPOINT_FILE, GLOBAL, LAST_WITHOUT_OFFSETS, OFFSETS_COLUMN_FAMILY
from statecore.maintenance.findings import Trouble
from statecore.maintenance.layout import StorePlace
from statecore.maintenance.leftovers import Leftover
from statecore.maintenance.views import DatabaseView, StoreView
from statecore.spec.model import ApplicationSpec
from statecore.stores.rocksdb_witness import LOST_DIRECTORY

_NAMED = 5


def store_trouble(store: StoreView, *, running: bool, logged: bool = True) -> list[Trouble]:
    """What is wrong with one store of one task.

    Args:
        store: as it was seen.
        running: whether the application holds its lock, so that an open store is what one expects.
        logged: whether it has a changelog; one that has none needs no offset.
    """
    found = [Trouble(one.broken, one.error == Corrupted.__name__) for one in store.databases if one.broken]
    if not store.databases:
        return [*found, Trouble(_without_database(store))] if logged or not store.segmented else found
    whole = [one for one in store.databases if not one.broken]
    # While it runs, a segment may be in the making, and what is written not flushed yet.
    if logged and not running and any(OFFSETS_COLUMN_FAMILY not in one.families for one in whole):
        found.append(
            Trouble(
                f"has no column family offsets: written by Kafka Streams {LAST_WITHOUT_OFFSETS} or older, offsets in "
                f"{CHECKPOINT_FILE}"
            )
        )
    elif logged and whole and not store.offsets and not running:
        found.append(
            Trouble("has no offset: Kafka Streams restores it from the start, and under exactly-once wipes its task")
        )
    if not running:  # what is flushed of a running application may differ by segment
        found += _disagreement(store)
    if store.task == GLOBAL and OFFSET_UNKNOWN in store.offsets.values():
        found.append(Trouble("has the offset -4: a global store with it fails every start", damage=True))
    if store.kind.is_versioned and store.rows and OFFSET_UNKNOWN in store.offsets.values() and not running:
        found.append(
            Trouble(
                "has rows and the offset -4: Kafka Streams replays its changelog over them, which changes them and, "
                "with some histories, fails: restore it",
                damage=True,
            )
        )
    if store.closed is False and not running:
        found.append(
            Trouble(
                "was not closed, its process died: under exactly-once the next start wipes the task, otherwise "
                + ("it restores what came after the last flush" if logged else "what came after the last flush is lost")
            )
        )
    family = store.kind.data_column_family if store.kind.can_be_built else None
    if not running and family and any(family not in one.families for one in whole):
        found.append(Trouble(f"lacks the column family {family}: Kafka Streams would read it as empty"))
    for one in store.databases:
        if one.lost and store.holder is None:  # who has it open takes them away at its close, if they are not missed
            found.append(Trouble(_lost(one)))
    older = sum(one.older_rows for one in whole)
    if older:
        rows = f"{older:,} row{'s' if older > 1 else ''}"
        found.append(Trouble(f"has {rows} in an older format still: the application converts what it touches"))
    return found


def _lost(database: DatabaseView) -> str:
    files = f"{len(database.lost)} SST file" + ("s" if len(database.lost) > 1 else "")
    named = ", ".join(database.lost[:_NAMED]) + (", …" if len(database.lost) > _NAMED else "")
    return (
        f"keeps {files} in {database.name}/{LOST_DIRECTORY} ({named}) that its MANIFEST did not name: hold its rows "
        "against its changelog, restore it if some are missing, then delete them"
    )


def _without_database(store: StoreView) -> str:
    if store.segmented:
        return "has no segment, so nowhere to keep an offset: under exactly-once every start wipes its task"
    return "is a directory without a database"


def _disagreement(store: StoreView) -> list[Trouble]:
    """Segments of one store at different offsets: Kafka Streams goes by the newest, and older ones miss updates."""
    found = []
    for partition in sorted({part for one in store.databases for part in one.offsets}):
        at: dict[int, list[str]] = {}
        for one in store.databases:
            if one.offsets.get(partition, OFFSET_UNKNOWN) != OFFSET_UNKNOWN:
                at.setdefault(one.offsets[partition], []).append(one.name)
        if len(at) > 1:
            said = ", ".join(f"{offset:,} in {_names(names)}" for offset, names in sorted(at.items()))
            found.append(
                Trouble(
                    f"its segments disagree about {partition}: {said}; Kafka Streams goes by the newest segment, so "
                    "the others may miss updates for ever: restore it",
                    damage=True,
                )
            )
    return found


def _names(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


def application_trouble(
    spec: ApplicationSpec | None, places: Sequence[StorePlace], leftovers: Iterable[Leftover]
) -> list[Trouble]:
    """What is wrong beyond single stores; declared stores are compared only with a spec."""
    found = [
        Trouble(
            f"{one.task}/{one.name} {one.meaning.partition(';')[0]}: the application fails at every start"
            if one.damaged
            else f"{one.task}/{one.name} overrules the offsets in that directory's stores at the next start",
            one.damaged,
        )
        for one in leftovers
        if one.name == CHECKPOINT_FILE
    ]
    if spec is None:
        return found
    seen = {(place.topology, place.store) for place in places}
    for store in (*spec.stores, *spec.global_stores):
        if not store.is_logged:
            continue  # Kafka Streams makes it when it starts
        if store.kind is not StoreKind.IN_MEMORY and (store.topology, store.name) not in seen:
            found.append(Trouble(f"{store.name} is declared and has no directory"))
    declared = {(store.topology, store.name) for store in (*spec.stores, *spec.global_stores)}
    found += sorted({Trouble(f"{name} has a directory and is not declared") for topology, name in seen - declared})
    return found
