"""The kinds of an application's stores, as their names and databases show them over all tasks."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from statecore.discover.kind_detection import KindDetection, detect_kind
from statecore.discover.kind_evidence import BUILT, conclude, evidence_of_name, listed, openable_kinds
from statecore.errors import StatecoreError
from statecore.formats.kinds import StoreKind
from statecore.spec.model import ApplicationSpec
from statecore.statedir.store_places import StorePlace, declared_at


@dataclass(frozen=True)
class KindOnDisk:
    """The kind of a store over all its tasks.

    Attributes:
        possible_kinds: possible kinds, if the kind is unknown.
        mismatch: why it is not of the declared kind, by task.
        unopenable: why no store class could open it, by task.
        miskeyed: rows of a grace buffer seen with the keys of a restore by Kafka Streams, by task.
        is_upgraded_at_start: whether all its databases are of an older format than that of the declared kind.
    """

    kind: StoreKind
    possible_kinds: str
    mismatch: Mapping[str, str] = field(default_factory=dict)
    unopenable: Mapping[str, str] = field(default_factory=dict)
    miskeyed: Mapping[str, int] = field(default_factory=dict)
    is_upgraded_at_start: bool = False


def kinds_on_disk(every: list[StorePlace], requested: set[str], spec: ApplicationSpec | None) -> dict[str, KindOnDisk]:
    """The kinds of the requested stores, by name."""
    kinds = {}
    for store in requested:
        named = [place for place in every if place.store == store]
        declared = declared_at(spec, named[0].task, store)
        segmented = named[0].segmented
        if declared is not None and declared.kind.can_be_built:
            segmented = declared.kind.is_segmented
        places = [place for place in named if place.segmented == segmented] or named
        if declared is not None and declared.kind is StoreKind.CUSTOM:
            kinds[store] = KindOnDisk(declared.kind, "")
            continue
        kind, left = StoreKind.UNKNOWN, BUILT
        mismatch: dict[str, str] = {}
        upgraded = False
        seen, strange = _detect_kind(places)
        if seen is not None:
            kind, left, *_ = conclude([*seen.evidence, *evidence_of_name(store, ())])
        if declared is not None and declared.kind.can_be_built:
            if seen is not None and declared.kind not in left:
                upgraded = bool(left & openable_kinds(declared.kind))
                mismatch = _mismatches(places, declared.kind)
                if not upgraded and not mismatch:
                    mismatch = dict.fromkeys((place.task for place in places), _mismatch(declared.kind, left))
            mismatch |= _of_another_layout(named, places, declared.kind)
            kind = declared.kind
        alternatives = "" if kind is not StoreKind.UNKNOWN or len(left) > 4 else listed(left)
        miskeyed = _miskeyed(places) if kind is StoreKind.GRACE_BUFFER and not mismatch else {}
        kinds[store] = KindOnDisk(kind, alternatives, mismatch, strange, miskeyed, upgraded)
    return kinds


def _miskeyed(places: list[StorePlace]) -> dict[str, int]:
    """Tasks in which a grace buffer has rows with the keys of a restore by Kafka Streams, with their number."""
    found = {}
    for place in places:
        with contextlib.suppress(StatecoreError):
            found[place.task] = detect_kind([place]).miskeyed
    return found


def _of_another_layout(named: list[StorePlace], places: list[StorePlace], declared: StoreKind) -> dict[str, str]:
    """Tasks in which a store is only where Kafka Streams looks for no store of the declared kind."""
    right = {place.task for place in places}
    return {
        place.task: f"the spec says {declared}, but it is in {place.name}, where Kafka Streams opens no such store"
        for place in named
        if place.task not in right
    }


def _mismatches(places: list[StorePlace], declared: StoreKind) -> dict[str, str]:
    """Tasks in which a store by itself contradicts its declaration; empty if only all tasks together do."""
    found = {}
    for place in places:
        with contextlib.suppress(StatecoreError):
            seen = detect_kind([place])
            _, left, *_ = conclude([*seen.evidence, *evidence_of_name(place.store, ())])
            if not seen.unopenable and not left & openable_kinds(declared):
                found[place.task] = _mismatch(declared, left)
    return found


def _mismatch(declared: StoreKind, left: frozenset[StoreKind]) -> str:
    return f"the spec says {declared}, but what is on disk is {listed(left)}"


def _detect_kind(places: list[StorePlace]) -> tuple[KindDetection | None, dict[str, str]]:
    """The kind of a store over all its tasks, and the tasks in which it has no possible kind.

    If the tasks contradict each other, or one is damaged, each is inspected by itself: a damaged one tells nothing, and
    one with impossible families does not incriminate the others.
    """
    with contextlib.suppress(StatecoreError):  # reported by the inspection of the database
        together = detect_kind(places)
        if not together.unopenable:
            return together, {}
        if len(places) == 1:
            return None, {places[0].task: together.unopenable}
    found, strange, text = [], {}, ""
    for place in places if len(places) > 1 else ():
        with contextlib.suppress(StatecoreError):
            alone = detect_kind([place])
            if alone.unopenable:
                strange[place.task] = alone.unopenable
            else:
                found.append(place)
    with contextlib.suppress(StatecoreError):
        if found:
            together = detect_kind(found)
            if not together.unopenable:
                return together, strange
            text = together.unopenable
    return None, strange | {place.task: text for place in found}
