"""What counts of a store on either side of a hand-over: of the copy, and of an application that is down.

Under exactly-once Kafka Streams deletes a whole task where one store of it was not closed, cannot be read, or has no
offset. A grace buffer's offset counts in ``.checkpoint_<store>`` alone.

A database whose MANIFEST has lost its end opens, with the offset of the end and without some of its rows, and Kafka
Streams asks no more. So on both sides its witness is asked, too (:mod:`statecore.stores.rocksdb.manifest_guard`).
"""

from __future__ import annotations

import os
from pathlib import Path

from statecore.errors import Corrupted, Invalid, Reason
from statecore.formats.kinds import StoreKind
from statecore.formats.offsets import OFFSET_UNKNOWN
from statecore.formats.releases import CHECKPOINT_FILE
from statecore.formats.topic_partition import TopicPartition
from statecore.spec.model import StoreSpec
from statecore.statedir.database_state import DatabaseState
from statecore.statedir.store_offsets import standing_of
from statecore.statedir.store_on_disk import StoreOnDisk, read_store
from statecore.statedir.store_places import StorePlace
from statecore.stores.legacy_offsets import read_offsets
from statecore.tasks.partial_stores import half_deleted, segmentation_of


def closed_at(task: str, place: StorePlace, store: StoreSpec, changelog: TopicPartition) -> int:
    """The offset at which a store of a warm copy was closed; -4 where it has none.

    Raises:
        Invalid: it was not closed, something in it is a link, or it follows another changelog.
        Corrupted: it cannot be read, has lost a part of its files, its segments do not agree, or something lies among
            them.
    """
    if (link := _link_in(place.path)) is not None:
        raise Invalid(
            f"{link} in the warm copy of {task} is a link to {os.path.realpath(link)}: the application would work with "
            "what lies there.",
            code="symlink-in-store",
            action="Replace the link by what it leads to, or mount the place there, then run this again.",
            task=task,
            store=place.store,
            path=str(link),
            target=os.path.realpath(link),
        )
    states = _states(task, place, store)
    if place.segmented and (strays := _strays(place)):
        raise Corrupted(
            f"The warm copy of {place.store} in {task} holds {', '.join(strays)}, which is no segment of it.",
            code="stray-segment",
            action="Move it away, then run this again.",
            task=task,
            store=place.store,
            found=strays,
        )
    offsets: set[int] = set()
    for state in states:
        if others := state.offsets.keys() - {changelog}:
            raise Invalid(
                f"The warm copy of {place.store} in {task} has offsets of {', '.join(sorted(map(str, others)))}, and "
                f"its changelog is {changelog}.",
                code="changelog-mismatch",
                action="Give the spec that the warm copy was made with, or let the standby make the copy anew.",
                task=task,
                store=place.store,
                expected=str(changelog),
                found=sorted(map(str, others)),
            )
        if not state.closed_cleanly:
            raise Invalid(
                f"The warm copy of {place.store} in {task} was not closed: statecore standby was killed there.",
                code="standby-store-not-closed",
                action="Let statecore standby --once follow it and close it, then run this again.",
                task=task,
                store=place.store,
            )
        offsets.add(state.offsets.get(changelog, OFFSET_UNKNOWN))
    if len(offsets) > 1:
        raise Corrupted(
            f"The segments of the warm copy of {place.store} in {task} say different offsets of {changelog}: "
            f"{', '.join(map(str, sorted(offsets)))}.",
            code="segment-offsets-differ",
            action="Let statecore standby --once follow it and close it, then run this again.",
            task=task,
            store=place.store,
            topic=changelog.topic,
            partition=changelog.partition,
            offsets=sorted(offsets),
        )
    return next(iter(offsets), OFFSET_UNKNOWN)


def damage(place: StorePlace, store: StoreSpec) -> Reason | None:
    """Why a store of the application has not the rows that its offset says; ``None`` where nothing says so."""
    if half_deleted(place, segmentation_of(store)):
        return Reason(f"{place.store} there was deleted in part", "store-incomplete", store=place.store)
    if read_store(place).damage is not None:
        return Reason(f"{place.store} there is damaged", "store-damaged", store=place.store)
    return None


def live_offset(place: StorePlace, store: StoreSpec, changelog: TopicPartition) -> int:
    """What the application would go by; -4 where it knows of none, or where rows of the store are missing."""
    if damage(place, store):
        return OFFSET_UNKNOWN
    try:
        if not store.kind.manages_offsets:
            return _of_files(place).get(changelog, OFFSET_UNKNOWN)
        return standing_of(place, (changelog.topic,)).offsets.get(changelog, OFFSET_UNKNOWN)
    except Corrupted:
        return OFFSET_UNKNOWN


def not_closed(place: StorePlace) -> Reason | None:
    """Why a store would not be opened under exactly-once, whatever its offset; ``None`` where nothing says so."""
    return _not_closed(place, read_store(place))


def _not_closed(place: StorePlace, store: StoreOnDisk) -> Reason | None:
    for database in store.databases:
        if not database.opens:
            return Reason(f"{place.store} there cannot be read", "store-damaged", store=place.store)
        if not database.state.closed_cleanly:
            return Reason(f"{place.store} there was not closed", "store-not-closed", store=place.store)
    return None


def not_sound(place: StorePlace, kind: StoreKind, changelog: TopicPartition) -> Reason | None:
    """Why Kafka Streams would wipe the task of a logged store under exactly-once; ``None`` where nothing says so."""
    store = read_store(place)
    if why := _not_closed(place, store):
        return why
    if not store.databases:
        return Reason(f"{place.store} there has no database", "database-missing", store=place.store)
    try:
        if kind.manages_offsets:
            has_offset = changelog in store.smallest_offsets or changelog in _of_file(place, task=True)
        else:
            has_offset = changelog in _of_files(place)
    except Corrupted:
        has_offset = False
    return None if has_offset else Reason(f"{place.store} there has no offset", "offset-missing", store=place.store)


def _states(task: str, place: StorePlace, store: StoreSpec) -> list[DatabaseState]:
    """What the databases of a warm copy say; one that has lost a part of its files says nothing."""
    try:
        if why := half_deleted(place, segmentation_of(store)):
            raise Corrupted(why, code="store-incomplete", action="")
        return [database.state for database in read_store(place).checked().databases]
    except Corrupted as error:
        raise error.restated(
            f"The warm copy of {place.store} in {task} is damaged: {error.what}",
            action=f"Move {place.path} out of the copy, let statecore standby --once make it anew, and run this again.",
            task=task,
            store=place.store,
        ) from error


def _link_in(store: Path) -> Path | None:
    """The first link in a store's directory, or itself; ``None`` where there is none."""
    return next((path for path in (store, *sorted(store.rglob("*"))) if path.is_symlink()), None)


def _strays(place: StorePlace) -> list[str]:
    """What lies among the segments of a store and would stop Kafka Streams at its start."""
    segments = {segment.path.name for segment in place.segments if segment.start is not None}
    named = {name for name in segments if name.startswith(f"{place.store}.")}
    return sorted({path.name for path in place.path.iterdir()} - named)


def _of_files(place: StorePlace) -> dict[TopicPartition, int]:
    """What counts of a store that keeps no offset in its database: the task's file wins over its own."""
    return {**_of_file(place, task=False), **_of_file(place, task=True)}


def _of_file(place: StorePlace, *, task: bool) -> dict[TopicPartition, int]:
    own = place.checkpoint_file
    file = own.parent / CHECKPOINT_FILE if task else own
    return read_offsets(file)
