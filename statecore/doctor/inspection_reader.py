"""Reads an application's state directory without changing it, even while the application runs.

The result holds facts only; :mod:`statecore.doctor.diagnosis` turns them into findings.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import gcd

from statecore.doctor.database_inspection import InspectionDepth, inspect_database, view_without_current
from statecore.doctor.inspection import StoreView, TaskView
from statecore.doctor.row_check import RowCheck
from statecore.doctor.store_kinds import KindOnDisk, kinds_on_disk
from statecore.doctor.task_inspection import inspect_beside_tasks, inspect_task
from statecore.errors import Invalid, NotFound, StatecoreError
from statecore.filesystem import tree_bytes
from statecore.formats.kinds import WINDOWED_KINDS, StoreKind
from statecore.formats.releases import CHECKPOINT_FILE
from statecore.progress import NullProgress, Progress
from statecore.spec.model import ApplicationSpec, StoreSpec, segment_interval_of
from statecore.statedir.journal import read_journal
from statecore.statedir.known_files import (
    KnownFile,
    foreign_files,
    known_files,
    read_offset_file,
)
from statecore.statedir.open_stores import find_writer
from statecore.statedir.state_directory import StateDirectory
from statecore.statedir.store_on_disk import read_database
from statecore.statedir.store_places import StorePlace, declared_at, split_ignored, store_places, suggest_names
from statecore.statedir.task_layout import (
    Segment,
    directories_in,
    rows_without_current,
    segment_start,
    strays_among_segments,
    unreadable,
)
from statecore.statedir.work_directory import entry_of
from statecore.stores.lock_holder import Holder
from statecore.stores.rocksdb.directory import has_database


@dataclass(frozen=True)
class DirectoryReading:
    """What was read of an application's directory.

    Attributes:
        holder: the process that has it in use, or ``None``.
        is_complete: whether all tasks and stores were inspected.
        places: directories of all stores, inspected or not.
        ignored: directories with the name of a store, in which Kafka Streams looks for none of its kind.
        stores: the inspected stores, by task.
        tasks: files beside the stores, by task; of the application's own directory under ``""``.
        journal: request of an interrupted placement; empty if there is none.
        job_leftovers: leftovers of interrupted jobs in the work directory.
    """

    directory: StateDirectory
    holder: Holder | None
    spec: ApplicationSpec | None
    is_complete: bool
    places: tuple[StorePlace, ...]
    ignored: tuple[StorePlace, ...]
    stores: tuple[StoreView, ...]
    tasks: Mapping[str, TaskView]
    offset_files: tuple[KnownFile, ...]
    journal: str
    job_leftovers: tuple[str, ...]
    read_at_ms: int

    @property
    def whole_tasks(self) -> frozenset[str]:
        """Tasks of which all stores were inspected, also those without a store."""
        every = Counter(place.task for place in self.places)
        read = Counter(store.task for store in self.stores)
        return frozenset(task for task in self.tasks if task and read[task] == every[task])

    @property
    def transactional(self) -> bool:
        """Whether the application has transactional state stores: as declared, else as any database shows."""
        if self.spec is not None:
            return self.spec.transactional_state_stores
        return any(store.transactional for store in self.stores)


def read_inspection(
    directory: StateDirectory,
    *,
    spec: ApplicationSpec | None = None,
    tasks: Sequence[str] = (),
    stores: Sequence[str] = (),
    depth: InspectionDepth = InspectionDepth(),  # noqa: B008  # it is frozen
    progress: Progress | None = None,
    is_locked: bool = False,
) -> DirectoryReading:
    named = store_places(directory)
    check_names("task", tasks, {*directory.every_task(), *(place.task for place in named)}, directory)
    check_names("store", stores, {place.store for place in named}, directory)
    every, ignored = split_ignored(named, spec)

    def is_requested(place: StorePlace) -> bool:
        return (not tasks or place.task in tasks) and (not stores or place.store in stores)

    places = [place for place in every if is_requested(place)]
    holder = None if is_locked else directory.in_use_by()
    kinds = kinds_on_disk(every, {place.store for place in places}, spec)
    progress = progress or NullProgress()
    progress.phase("inspect", sum(tree_bytes(path) for place in places for path in place.databases), "bytes")
    inspected = []
    for place in places:
        kind = kinds[place.store]
        declared = declared_at(spec, place.task, place.store)
        inspected.append(_inspect_store(place, kind, declared, depth, progress, running=holder is not None))
    progress.done()
    logged = _logged(directory, every, places, inspected, spec)
    views = [replace(view, logged=logged[place.store]) for place, view in zip(places, inspected, strict=True)]
    by_task = _by_task(every, tasks)
    found = tuple(known_files(directory, by_task))
    names = sorted({*by_task, *_tasks_without_stores(directory, tasks, stores)})
    beside = {name: inspect_task(directory, name, by_task.get(name, []), every, spec) for name in names}
    whole = not tasks and not stores
    try:
        journal, left = ("", ()) if holder is not None or not whole else _unfinished(directory)
    except OSError as error:
        raise unreadable(directory.work_path, error) from error
    if whole:
        beside[""] = inspect_beside_tasks(directory)
    return DirectoryReading(
        directory, holder, spec, whole, tuple(every), tuple(filter(is_requested, ignored)),
        tuple(views), beside, found, journal, left,
        int(time.time() * 1000),
    )  # fmt: skip


def _by_task(places: Sequence[StorePlace], tasks: Sequence[str]) -> dict[str, list[StorePlace]]:
    """The stores of the requested tasks; of all tasks if none is named."""
    found: dict[str, list[StorePlace]] = {}
    for place in places:
        if not tasks or place.task in tasks:
            found.setdefault(place.task, []).append(place)
    return found


def _tasks_without_stores(directory: StateDirectory, tasks: Sequence[str], stores: Sequence[str]) -> Sequence[str]:
    """Requested tasks that may have offset files, or miss declared stores, even if they have no store."""
    return [] if stores else [task for task in directory.every_task() if not tasks or task in tasks]


def check_names(what: str, requested: Sequence[str], known: set[str], directory: StateDirectory) -> None:
    """Raise ``NotFound`` for a task or store that does not exist."""
    for name in requested:
        if name not in known:
            raise NotFound(
                f"{directory.path} has no {what} {name}{suggest_names(name, known)}",
                code="task-not-found" if what == "task" else "store-not-found",
                action=f"Name a {what} that exists, or leave --{what} out.",
                state_dir=str(directory.path),
                **{what: name},
            )


def _logged(
    directory: StateDirectory,
    every: Sequence[StorePlace],
    places: Sequence[StorePlace],
    views: Sequence[StoreView],
    spec: ApplicationSpec | None,
) -> dict[str, bool]:
    """Which stores have a changelog: as declared, else those without a clean close that left no offset in any task."""
    by_store: dict[str, list[StoreView]] = {}
    filled = _filled_by_sources(directory, views)
    for place, view in zip(places, views, strict=True):
        by_store.setdefault(place.store, []).append(view)
    found = {}
    for place in places:
        key = place.store
        if key in found:
            continue
        declared, of_store = declared_at(spec, place.task, place.store), by_store[key]
        if declared is not None:
            found[key] = declared.is_logged
        elif any(view.databases for view in of_store) and all(view.keeps_no_offset for view in of_store):
            tasks = {view.task for view in of_store}
            others = [one for one in every if one.store == key and one.task not in tasks]
            found[key] = any(_keeps_offset(other) for other in others) or any(
                (view.task, view.store) in filled for view in of_store
            )
        else:
            found[key] = True
    return found


def _filled_by_sources(directory: StateDirectory, views: Sequence[StoreView]) -> set[tuple[str, str]]:
    """Stores without an offset that are restored from a source topic whose offset is still in ``.checkpoint``."""
    found = set()
    for task in {view.task for view in views if view.declared is None and view.databases and view.keeps_no_offset}:
        of_task = [view for view in views if view.task == task]
        without = [view.store for view in of_task if view.declared is None and view.databases and view.keeps_no_offset]
        topics = {partition.topic for partition in read_offset_file(directory.path / task / CHECKPOINT_FILE).offsets}
        topics -= {partition.topic for view in of_task for partition in view.offsets}
        sources = {topic for topic in topics if not topic.endswith("-changelog")}
        if len(without) <= len(sources):
            found |= {(task, store) for store in without}
    return found


def _keeps_offset(place: StorePlace) -> bool:
    """Whether a store of a task that is not inspected is logged, by its newest database."""
    for path in place.databases[-1:]:
        with contextlib.suppress(StatecoreError):
            return not read_database(path).opened().keeps_no_offset
    return False


def _inspect_store(
    place: StorePlace,
    kind: KindOnDisk,
    declared: StoreSpec | None,
    depth: InspectionDepth,
    progress: Progress,
    *,
    running: bool,
) -> StoreView:
    segments = place.segments if place.segmented else tuple(Segment(path, None) for path in place.databases)
    interval = _interval(kind.kind, declared, segments)
    holder = find_writer(segment.path for segment in segments)  # first: one that closes meanwhile is no finding
    checks = _row_checks(place, kind, declared, segments)
    inspected = [
        inspect_database(segment, interval, depth, check, progress.advance)
        for segment, check in zip(segments, checks, strict=True)
    ]
    databases = tuple(one for one in inspected if one is not None)
    # A new segment has no CURRENT yet, and one that expires no longer has one.
    if not running and holder is None:
        databases += tuple(
            view_without_current(path, len(files)) for path, files in rows_without_current(place).items()
        )
    outside = read_offset_file(place.checkpoint_file).offsets
    foreign = () if databases else _foreign(place)
    return StoreView(
        place.task, place.store, kind.kind, kind.possible_kinds, place.segmented, databases, outside, holder=holder,
        declared=declared, in_use=running or holder is not None, mismatch=kind.mismatch.get(place.task, ""),
        unopenable=kind.unopenable.get(place.task, ""), foreign=foreign,
        strays=tuple(strays_among_segments(place)) if place.segmented and not foreign else (),
        miskeyed=kind.miskeyed.get(place.task, 0), is_upgraded_at_start=kind.is_upgraded_at_start,
    )  # fmt: skip


def _foreign(place: StorePlace) -> tuple[str, ...]:
    """Names in a directory without a database that no RocksDB store has, other than emptied segments.

    A database in the place of a file is the store itself, moved or copied into its own directory.
    """
    return tuple(
        name
        for name in foreign_files(place.path)
        if segment_start(name, place.store) is None and not has_database(place.path / name)
    )


def _interval(kind: StoreKind, declared: StoreSpec | None, segments: Sequence[Segment]) -> int | None:
    """The length of segments in ms: as declared, else as the distances between them allow."""
    if (interval := _declared_interval(kind, declared)) is not None:
        return interval
    starts = [segment.start for segment in segments if segment.start is not None]
    return gcd(*starts) if len(starts) > 1 else None


def _row_checks(
    place: StorePlace, kind: KindOnDisk, declared: StoreSpec | None, segments: Sequence[Segment]
) -> list[RowCheck]:
    """A check for the rows of each segment. Undeclared, a segment ends where the next one begins, at the latest."""
    is_sure = place.task not in kind.mismatch and place.task not in kind.unopenable
    of = kind.kind if is_sure else StoreKind.UNKNOWN
    if of not in WINDOWED_KINDS:
        return [RowCheck(of) for _ in segments]
    interval = _declared_interval(of, declared)
    starts = [one.start if one.path.name == f"{place.store}.{one.start}" else None for one in segments]
    return [
        RowCheck(of, start, next_start if interval is None or start is None else start + interval)
        for start, next_start in pairwise([*starts, None])
    ]


def _declared_interval(kind: StoreKind, declared: StoreSpec | None) -> int | None:
    if declared is None or kind not in WINDOWED_KINDS:
        return None
    return segment_interval_of(replace(declared, kind=kind))  # the kind on disk, which may not be the declared one


def _unfinished(directory: StateDirectory) -> tuple[str, tuple[str, ...]]:
    """The request of an interrupted placement, and leftovers of jobs in the work directory."""
    work = directory.work_path
    try:
        journal = read_journal(work)
        request = "" if journal is None else journal.request_id
    except Invalid:
        request = "unreadable"
    left = []
    for path in directories_in(work):
        if not entry_of(path.name).is_expected and next(path.iterdir(), None) is not None:
            left.append(path.name)
    return request, tuple(sorted(left))
