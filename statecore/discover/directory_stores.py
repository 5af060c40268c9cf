"""Finds the stores in a state directory, each over all its tasks. Reads only."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from math import gcd

from statecore.discover.kind_detection import KindDetection, detect_kind
from statecore.errors import NotFound, StatecoreError
from statecore.formats.kinds import WINDOWED_KINDS, StoreKind
from statecore.formats.segments import default_segment_interval
from statecore.statedir.database_state import DatabaseState
from statecore.statedir.known_files import read_offset_file
from statecore.statedir.state_directory import StateDirectory
from statecore.statedir.store_on_disk import read_database
from statecore.statedir.store_places import StorePlace, split_ignored, store_places


@dataclass(frozen=True)
class DirectoryStore:
    """A store with a directory.

    Attributes:
        subtopology: of its tasks; -1 below ``global``.
        topics: topics of its offsets.
        segmented: whether it has segments.
        detection: evidence of its kind.
        starts: start times of its segments in ms.
        error: why it could not be read; empty if it could.
        unlogged: whether all its databases were closed without an offset, as a store without changelog is left.
        transactional: whether a database shows that the application has transactional stores (KIP-892).
    """

    name: str
    subtopology: int
    topics: frozenset[str]
    segmented: bool
    detection: KindDetection
    starts: tuple[int, ...] = ()
    error: str = ""
    unlogged: bool = False
    transactional: bool = False

    def segment_interval(self, kind: StoreKind, retention_ms: int) -> int | None:
        """The segment interval in ms, if the files contradict the one that follows from the retention."""
        if kind.is_versioned and self.detection.intervals is not None:
            shortest, longest = self.detection.intervals
            return None if shortest <= default_segment_interval(kind, retention_ms) <= longest else longest
        if kind not in WINDOWED_KINDS:
            return None
        usual = default_segment_interval(kind, retention_ms)
        if all(start % usual == 0 for start in self.starts):
            return None
        return gcd(*self.starts)


def find_directory_stores(directory: StateDirectory) -> list[DirectoryStore]:
    """Every store, global ones included; empty without a directory."""
    by_name: dict[str, list[StorePlace]] = {}
    for place in split_ignored(store_places(directory), None)[0]:
        by_name.setdefault(place.store, []).append(place)
    return [_found(places) for places in by_name.values()]


def _found(places: list[StorePlace]) -> DirectoryStore:
    # A name belongs to one store: other layouts or subtopologies of it are leftovers of another version.
    places = [place for place in places if (place.segmented, place.subtopology) == _shape(places)]
    first = places[0]
    topics: frozenset[str] = frozenset()
    trouble = ""
    seen = KindDetection(())
    unlogged = transactional = False
    try:
        seen = detect_kind(places)
        outside = [partition.topic for place in places for partition in read_offset_file(place.checkpoint_file).offsets]
        states = [state for place in places for state in _states(place)]
        topics = frozenset([*outside, *(partition.topic for state in states for partition in state.offsets)])
        closed = bool(states) and all(state.keeps_no_offset for state in states)
        unlogged = closed and not outside and first.subtopology >= 0
        transactional = any(state.transactional for state in states)
    except StatecoreError as error:
        trouble = error.what
    starts = {segment.start for place in places for segment in place.segments if segment.start is not None}
    return DirectoryStore(
        first.store,
        first.subtopology,
        topics,
        first.segmented,
        seen,
        tuple(sorted(starts)),
        trouble,
        unlogged,
        transactional,
    )


def _shape(places: list[StorePlace]) -> tuple[bool, int]:
    """Layout and subtopology of the directory with databases, if a name occurs in several."""
    chosen = next((place for place in places if place.databases), places[0])
    return chosen.segmented, chosen.subtopology


def _states(place: StorePlace) -> list[DatabaseState]:
    for path in place.databases[-1:]:  # of a segmented store the newest segment
        with contextlib.suppress(NotFound):  # the segment may have expired meanwhile
            return [read_database(path).opened()]
    return []
