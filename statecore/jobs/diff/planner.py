"""Plans a diff: the stores that are compared, with their kinds and offsets, and those that are left out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from statecore.dump.dump import kind_of
from statecore.errors import Invalid, NotFound
from statecore.formats.kinds import StoreKind
from statecore.formats.segments import Segmentation
from statecore.formats.topic_partition import offsets_by_name
from statecore.jobs.bases.base import Key
from statecore.jobs.context import JobContext
from statecore.jobs.diff.compare import DiffSide, DiffTask
from statecore.jobs.diff.reference import Reference
from statecore.jobs.diff.request import DiffRequest
from statecore.spec.model import ApplicationSpec, segmentation_of
from statecore.statedir.state_directory import StateDirectory
from statecore.statedir.stopped_store_offsets import StoppedStoreOffsets, read_stopped_store_offsets
from statecore.statedir.store_places import (
    StorePlace,
    changelog_at,
    declared_at,
    split_ignored,
    store_places,
    suggest_names,
)

_NO_STORE = StoppedStoreOffsets()


class DiffPlanner:
    """Plans one diff; ``note`` receives notes for the operator."""

    def __init__(self, context: JobContext[DiffRequest], note: Callable[[str], None]) -> None:
        self._request, self._application, self._note = context.request, context.application_id, note
        self._spec = context.declared

    def places(self, directory: StateDirectory) -> dict[Key, StorePlace]:
        """The selected stores of a directory."""
        stores, tasks = self._request.stores, self._request.tasks
        return {
            (place.task, place.store): place
            for place in split_ignored(store_places(directory), self._spec)[0]
            if (not stores or place.store in stores) and (not tasks or place.task in tasks)
        }

    def offsets(self, places: Mapping[Key, StorePlace], spec: ApplicationSpec | None) -> dict[Key, StoppedStoreOffsets]:
        """The offsets that the application would use for each store."""
        found = {}
        for key, place in places.items():
            declared = declared_at(spec, *key)
            kind = StoreKind.UNKNOWN if declared is None else declared.kind
            found[key] = read_stopped_store_offsets(place, {changelog_at(self._application, *key, declared)}, kind)
        return found

    def tasks(
        self, here: Mapping[Key, StorePlace], reference: Reference, progress_directory: Path
    ) -> tuple[list[DiffTask], dict[Key, str]]:
        """Stores to compare, and those left out."""
        spec = reference.spec
        there = self.places(reference.directory)
        if reference.scratch is not None:  # it may contain more than was requested
            tasks = {task for task, _ in here} | set(self._request.tasks)
            there = {key: place for key, place in there.items() if key[0] in tasks}
        keys = sorted({*here, *there})
        if reference.only is not None:
            keys = [key for key in keys if key in reference.only]
        left_out = dict(reference.left_out)
        keys = [key for key in keys if key not in left_out]
        self._checkoffsets_by_name(keys, left_out)
        mine, theirs = self.offsets(here, spec), self.offsets(there, spec)
        kinds: dict[str, StoreKind] = {}
        tasks_made = []
        for number, key in enumerate(keys):
            places = [found for found in (here.get(key), there.get(key)) if found is not None]
            name = places[0].store
            if name not in kinds:
                kinds[name] = self._kind(name, [*_of_store(here, name), *_of_store(there, name)], spec)
            tasks_made.append(
                DiffTask(
                    number,
                    *key,
                    kinds[name],
                    _side(here.get(key), mine.get(key, _NO_STORE)),
                    _side(there.get(key), theirs.get(key, _NO_STORE)),
                    self._request.examples,
                    self._segmentation(key, spec) if self._request.ignore_expired else None,
                    str(progress_directory),
                )
            )
        return tasks_made, left_out

    def _checkoffsets_by_name(self, keys: list[Key], left_out: Mapping[Key, str]) -> None:
        """Refuse named stores or tasks that neither side has."""
        known = [*keys, *left_out]
        for what, code, names, at in (
            ("store", "store-not-found", self._request.stores, 1),
            ("task", "task-not-found", self._request.tasks, 0),
        ):
            have = {key[at] for key in known}
            for name in names:
                if name not in have:
                    raise NotFound(
                        f"Neither side has a {what} {name}{suggest_names(name, have)}",
                        code=code,
                        action=f"Name a {what} that exists, or leave --{what} out.",
                        **{what: name},
                    )

    def _kind(self, store: str, places: list[StorePlace], spec: ApplicationSpec | None) -> StoreKind:
        """The kind of a store: declared, detected in its directories, or unknown."""
        declared = declared_at(spec, places[0].task, store)
        if declared is not None and declared.kind.can_be_built:
            return declared.kind
        try:
            return kind_of([place for place in places if place.databases], None, None)
        except (Invalid, IndexError):
            if any(place.databases for place in places):
                self._note(f"The kind of {store} is unknown: raw rows are compared. Give --spec to declare it.")
            return StoreKind.UNKNOWN

    def _segmentation(self, key: Key, spec: ApplicationSpec | None) -> Segmentation | None:
        declared = declared_at(spec, *key)
        return None if declared is None else segmentation_of(declared)


def _of_store(places: Mapping[Key, StorePlace], name: str) -> list[StorePlace]:
    return [place for place in places.values() if place.store == name]


def _side(place: StorePlace | None, found: StoppedStoreOffsets) -> DiffSide:
    return DiffSide(
        "" if place is None else str(place.path.absolute()),
        {segment: str(path.absolute()) for segment, path in found.databases.items()},
        offsets_by_name(found.offsets),
        offsets_by_name(found.position),
        found.file_bytes,
    )
