"""Offsets of a store in a promotion: of the standby copy, and of the stopped application.

Under exactly-once Kafka Streams deletes a whole task if one of its stores was not closed, or has no offset
(:mod:`statecore.statedir.exactly_once_wipe`).

A database whose MANIFEST lost its end still opens, with the newest offset but without some of its rows, and Kafka
Streams does not notice. So the MANIFESTs of both sides are checked.
"""

from __future__ import annotations

import os
from pathlib import Path

from statecore.errors import Corrupted, Invalid, Reason
from statecore.formats.kinds import StoreKind
from statecore.formats.offsets import OFFSET_UNKNOWN
from statecore.formats.releases import CHECKPOINT_FILE
from statecore.formats.topic_partition import TopicPartition
from statecore.spec.model import StoreSpec, segmentation_of
from statecore.statedir.database_state import DatabaseState
from statecore.statedir.exactly_once_wipe import NO_DATABASE, StoreAtStart, why_wiped
from statecore.statedir.stopped_store_offsets import read_stopped_store_offsets
from statecore.statedir.store_on_disk import read_store
from statecore.statedir.store_places import StorePlace
from statecore.statedir.task_layout import why_partially_deleted
from statecore.stores.legacy_offsets import read_offsets


def closed_at(task: str, place: StorePlace, store: StoreSpec, changelog: TopicPartition) -> int:
    """The offset at which a store of a standby copy was closed; -4 if it has none."""
    if (link := _link_in(place.path)) is not None:
        raise Invalid(
            f"{link} in the standby copy of {task} is a link to {os.path.realpath(link)}: the application would use "
            "the target.",
            code="symlink-in-store",
            action="Replace the link by a copy of its target, or by a mount, then run this again.",
            task=task,
            store=place.store,
            path=str(link),
            target=os.path.realpath(link),
        )
    states = _states(task, place, store)
    if place.segmented and (strays := _strays(place)):
        raise Corrupted(
            f"The standby copy of {place.store} in {task} contains {', '.join(strays)}, which is no segment of it.",
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
                f"The standby copy of {place.store} in {task} has offsets of {', '.join(sorted(map(str, others)))}, "
                f"and its changelog is {changelog}.",
                code="changelog-mismatch",
                action="Use the spec that the standby copy was made with, or let the standby rebuild the copy.",
                task=task,
                store=place.store,
                expected=str(changelog),
                found=sorted(map(str, others)),
            )
        if not state.closed_cleanly:
            raise Invalid(
                f"The standby copy of {place.store} in {task} was not closed: statecore standby was killed.",
                code="standby-store-not-closed",
                action="Run statecore standby --once to update and close it, then run this again.",
                task=task,
                store=place.store,
            )
        offsets.add(state.offsets.get(changelog, OFFSET_UNKNOWN))
    if len(offsets) > 1:
        raise Corrupted(
            f"The segments of the standby copy of {place.store} in {task} have different offsets of {changelog}: "
            f"{', '.join(map(str, sorted(offsets)))}.",
            code="segment-offsets-differ",
            action="Run statecore standby --once to update and close it, then run this again.",
            task=task,
            store=place.store,
            topic=changelog.topic,
            partition=changelog.partition,
            offsets=sorted(offsets),
        )
    return next(iter(offsets), OFFSET_UNKNOWN)


def damage(place: StorePlace, store: StoreSpec) -> Reason | None:
    """Reason if a store of the application lacks rows that its offset covers; ``None`` otherwise."""
    if why_partially_deleted(place, segmentation_of(store)):
        return Reason(f"{place.store} there is partially deleted", "store-incomplete", store=place.store)
    if read_store(place, manifests=True).damage is not None:
        return Reason(f"{place.store} there is damaged", "store-damaged", store=place.store)
    return None


def live_offset(place: StorePlace, store: StoreSpec, changelog: TopicPartition) -> int:
    """The offset the application would use; -4 if it has none, or if rows of the store are missing."""
    if not place.databases or damage(place, store):  # a file may still have its offset
        return OFFSET_UNKNOWN
    try:
        found = read_stopped_store_offsets(place, (changelog.topic,), store.kind)
        return found.offsets.get(changelog, OFFSET_UNKNOWN)
    except Corrupted:
        return OFFSET_UNKNOWN


def why_wiped_there(place: StorePlace, kind: StoreKind, changelog: TopicPartition | None) -> Reason | None:
    """Why Kafka Streams would wipe a store's task, or not answer with its rows; transactional stores count too."""
    found = read_store(place).databases
    store = StoreAtStart(
        [database.state for database in found],
        changelog,
        place.partition,
        kind,
        segmented=place.segmented,
        logged=changelog is not None,
        own_file=_readable_offsets(place.checkpoint_file),
        task_file=_readable_offsets(place.checkpoint_file.parent / CHECKPOINT_FILE),
    )
    if not all(database.opens for database in found):
        why: Reason | None = Reason("cannot be read", "store-damaged")
    elif not found and store.logged:
        why = NO_DATABASE
    else:
        why = why_wiped(store)
    return None if why is None else Reason(f"{place.store} there {why}", why.code, store=place.store)


def _states(task: str, place: StorePlace, store: StoreSpec) -> list[DatabaseState]:
    """States of the databases of a standby copy."""
    try:
        if why := why_partially_deleted(place, segmentation_of(store)):
            raise Corrupted(why, code="store-incomplete", action="")
        return [database.state for database in read_store(place, manifests=True).checked().databases]
    except Corrupted as error:
        raise error.restated(
            f"The standby copy of {place.store} in {task} is damaged: {error.what}",
            action=f"Move {place.path} away, let statecore standby --once rebuild it, and run this again.",
            task=task,
            store=place.store,
        ) from error


def _link_in(store: Path) -> Path | None:
    """The first symbolic link in a store's directory, or the directory itself if it is one."""
    return next((path for path in (store, *sorted(store.rglob("*"))) if path.is_symlink()), None)


def _strays(place: StorePlace) -> list[str]:
    """Files among the segments of a store that would stop Kafka Streams at startup."""
    segments = {segment.path.name for segment in place.segments if segment.start is not None}
    named = {name for name in segments if name.startswith(f"{place.store}.")}
    return sorted({path.name for path in place.path.iterdir()} - named)


def _readable_offsets(file: Path) -> dict[TopicPartition, int]:
    """The offsets in a file; empty if it is missing or damaged."""
    try:
        return read_offsets(file)
    except Corrupted:
        return {}
