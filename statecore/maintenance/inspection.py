"""What lies in an application's state directory, looked at without changing anything, also while it runs.

Everything that would surprise somebody tomorrow is named as trouble: a database that cannot be opened, offsets that are
missing or contradict each other, a store that was not closed, files that decide more than one would think.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import gcd
from pathlib import Path

from statecore.errors import Corrupted, Invalid, NotFound, StatecoreError
from statecore.filesystem import tree_bytes
from statecore.formats.kinds import WINDOWED_KINDS, StoreKind
from statecore.formats.releases import DEFAULT_COLUMN_FAMILY, LOCK_FILE, OFFSETS_COLUMN_FAMILY
from statecore.formats.segments import default_segment_interval
from statecore.maintenance.database import Database
from statecore.maintenance.evidence import BUILT, conclude, listed, of_name
from statecore.maintenance.findings import Trouble
from statecore.maintenance.layout import StorePlace, named_instead, store_places
from statecore.maintenance.leftovers import leftovers, store_checkpoint
from statecore.maintenance.recognise import recognise
from statecore.maintenance.trouble import application_trouble, store_trouble
from statecore.maintenance.views import DatabaseView, Inspection, StoreView
from statecore.placement.contents import Segment
from statecore.placement.database_state import DatabaseState
from statecore.placement.open_stores import writer_among
from statecore.placement.state_directory import StateDirectory
from statecore.spec.model import ApplicationSpec, StoreSpec
from statecore.stores.lock_holder import lock_holder
from statecore.stores.rocksdb_directory import has_database
from statecore.stores.rocksdb_links import files_of
from statecore.stores.rocksdb_ownership import writer_of
from statecore.stores.rocksdb_witness import Witness, lost_files


def inspect(
    directory: StateDirectory,
    *,
    spec: ApplicationSpec | None = None,
    tasks: Sequence[str] = (),
    stores: Sequence[str] = (),
    estimate: bool = False,
) -> Inspection:
    """Look at an application's directory.

    Args:
        directory: it.
        spec: what is declared; kinds come from it then, and differences are trouble.
        tasks: only these tasks; all without.
        stores: only these stores; all without.
        estimate: take RocksDB's estimate for the numbers of rows instead of counting, which reads everything.

    Raises:
        NotFound: a task or store that was named is not there.
        Invalid: the directory may not be read.
    """
    every = store_places(directory)
    _check_named("task", tasks, {place.task for place in every}, directory)
    _check_named("store", stores, {place.store for place in every}, directory)
    places = [place for place in every if (not tasks or place.task in tasks) and (not stores or place.store in stores)]
    holder = lock_holder(directory.path / LOCK_FILE)
    kinds = _kinds(every, {(place.topology, place.store) for place in places}, spec)
    running = holder is not None
    looked = [
        _look(place, *kinds[place.topology, place.store][:2], spec, estimate=estimate, running=running)
        for place in places
    ]
    logged = _logged(places, [view for view, _ in looked], spec)
    views = []
    for place, (view, unreadable) in zip(places, looked, strict=True):
        key = place.topology, place.store
        trouble = [*([Trouble(kinds[key][2])] if kinds[key][2] else []), *([unreadable] if unreadable else [])]
        trouble += store_trouble(view, running=running or view.holder is not None, logged=logged[key])
        damage = _said(one for one in trouble if one.damage)
        views.append(replace(view, trouble=_said(trouble), damage=damage, logged=logged[key]))
    found = tuple(
        one for one in leftovers(directory, {place.task for place in every}) if not tasks or one.task in tasks
    )
    whole = not tasks and not stores
    trouble = application_trouble(spec if whole else None, every, found)
    damage = _said(one for one in trouble if one.damage)
    return Inspection(
        directory.application_id, directory.path, holder, estimate, tuple(views), found, _said(trouble), damage
    )


def _check_named(what: str, wanted: Sequence[str], known: set[str], directory: StateDirectory) -> None:
    for name in wanted:
        if name not in known:
            raise NotFound(
                f"{directory.path} has no {what} {name}{named_instead(name, known)}",
                action=f"Name a {what} that exists, or leave --{what} out.",
                state_dir=str(directory.path),
                **{what: name},
            )


def _declared(spec: ApplicationSpec | None, place: StorePlace) -> StoreSpec | None:
    if spec is None:
        return None
    every = (*spec.stores, *spec.global_stores)
    return next((one for one in every if (one.topology, one.name) == (place.topology, place.store)), None)


def _kinds(
    every: list[StorePlace], wanted: set[tuple[str | None, str]], spec: ApplicationSpec | None
) -> dict[tuple[str | None, str], tuple[StoreKind, str, str]]:
    """Kind, what else it may be, and a remark, for each store: one look over all its tasks."""
    kinds = {}
    for topology, store in wanted:
        places = [place for place in every if (place.topology, place.store) == (topology, store)]
        places = [place for place in places if place.segmented == places[0].segmented]
        declared = _declared(spec, places[0])
        kind, left, remark = StoreKind.UNKNOWN, BUILT, ""
        with contextlib.suppress(StatecoreError):  # said where the database itself is looked at
            seen = recognise(places)
            remark = seen.strange
            if not seen.strange:
                kind, left, *_ = conclude([*seen.evidence, *of_name(store, ())])
        if declared is not None and declared.kind.can_be_built:
            if declared.kind not in left and not remark:
                remark = f"the spec says {declared.kind}, but what is on disk is {listed(left)}"
            kind = declared.kind
        kinds[topology, store] = (kind, "" if kind is not StoreKind.UNKNOWN else _left(left), remark)
    return kinds


def _left(left: frozenset[StoreKind]) -> str:
    return listed(left) if len(left) <= 4 else ""


def _logged(
    places: Sequence[StorePlace], views: Sequence[StoreView], spec: ApplicationSpec | None
) -> dict[tuple[str | None, str], bool]:
    """Which stores have a changelog: as declared, else unless no task has an offset of it though it was closed."""
    by_store: dict[tuple[str | None, str], list[StoreView]] = {}
    for place, view in zip(places, views, strict=True):
        by_store.setdefault((place.topology, place.store), []).append(view)
    found = {
        key: not any(view.databases for view in of_store) or not all(view.keeps_no_offset for view in of_store)
        for key, of_store in by_store.items()
    }
    declared = {(place.topology, place.store): _declared(spec, place) for place in places}
    return {key: logged if (store := declared[key]) is None else store.is_logged for key, logged in found.items()}


def _look(
    place: StorePlace, kind: StoreKind, left: str, spec: ApplicationSpec | None, *, estimate: bool, running: bool
) -> tuple[StoreView, Trouble | None]:
    """One store of one task without what is wrong with it, and why its checkpoint file cannot be read, if so."""
    segments = place.segments if place.segmented else tuple(Segment(path, None) for path in place.databases)
    interval = _interval(kind, _declared(spec, place), segments)
    holder = writer_among(segment.path for segment in segments)  # first: one that closes meanwhile is no trouble
    looked = [_database(segment, interval, estimate=estimate) for segment in segments]
    databases = tuple(one for one in looked if one is not None)
    if (
        not running and holder is None
    ):  # a segment in the making has no CURRENT yet, and one that expires has none any more
        databases += tuple(_headless(place))
    outside, unreadable = store_checkpoint(place)
    view = StoreView(place.task, place.store, kind, left, place.segmented, databases, (), (), outside, holder=holder)
    return view, unreadable


def _said(trouble: Iterable[Trouble]) -> tuple[str, ...]:
    return tuple(one.what for one in trouble)


def _headless(place: StorePlace) -> list[DatabaseView]:
    """Databases that lost the file which names all others: RocksDB would make an empty one over their rows."""
    paths = sorted(path for path in place.path.iterdir() if path.is_dir()) if place.segmented else [place.path]
    found = []
    for path in paths:
        files = len(list(path.glob("*.sst")))
        if files and not has_database(path):
            broken = (
                f"{path} has {files} SST files and no CURRENT: the application would begin an empty database there."
            )
            found.append(
                DatabaseView(
                    path.name, None, None, {}, None, 0, tree_bytes(path), (), broken=broken, error=Corrupted.__name__
                )
            )
    return found


def _interval(kind: StoreKind, declared: StoreSpec | None, segments: Sequence[Segment]) -> int | None:
    """The length of the segments: as declared, else as far as the distances between them tell."""
    if declared is not None and kind in WINDOWED_KINDS and declared.retention_ms is not None:
        return declared.segment_interval_ms or default_segment_interval(kind, declared.retention_ms)
    starts = [segment.start for segment in segments if segment.start is not None]
    return gcd(*starts) if len(starts) > 1 else None


def _database(segment: Segment, interval: int | None, *, estimate: bool) -> DatabaseView | None:
    """What a database holds; ``None`` when it has gone meanwhile, as expired segments go."""
    start = segment.start
    end = start + interval if start is not None and interval is not None else None
    size = tree_bytes(segment.path)
    rows = older = 0
    state = DatabaseState((), {}, None)
    broken = kind = ""
    try:
        _look_at_manifest(segment.path)
        with Database(segment.path) as database:
            state = database.state
            for family in database.families - {OFFSETS_COLUMN_FAMILY}:
                count = database.estimate(family) if estimate else database.count(family)
                rows += count
                older += count if _is_older(family, database.families) else 0
    except NotFound:
        return None
    except StatecoreError as error:
        broken, kind = error.what, type(error).__name__
    return DatabaseView(
        segment.path.name, start, end, dict(sorted(state.offsets.items())), state.status, rows, size,
        tuple(sorted(state.column_families)), older, broken, kind, lost_files(segment.path),
    )  # fmt: skip


def _look_at_manifest(path: Path) -> None:
    """See whether a database's MANIFEST is whole: RocksDB reads one that lost its end without a word.

    Raises:
        Corrupted: it is not, and nobody is at work there.
    """
    before = files_of(path)
    try:
        Witness(path, path).look(read_only=True)
    except Corrupted:
        if writer_of(path) is None and files_of(path) == before:
            raise


def _is_older(family: str, families: frozenset[str]) -> bool:
    """Whether a family is that of an older format: a store has one data family besides ``default``, or two of them."""
    data = families - {DEFAULT_COLUMN_FAMILY, OFFSETS_COLUMN_FAMILY}
    return family == DEFAULT_COLUMN_FAMILY if len(data) == 1 else bool(data) and not family.endswith("Headers")


def check_application(spec: ApplicationSpec | None, application_id: str) -> None:
    """Refuse a spec of another application. Raises ``Invalid``."""
    if spec is not None and spec.application_id != application_id:
        raise Invalid(
            f"{spec.source} is the spec of {spec.application_id}, not of {application_id}.",
            action="Name the spec of this application.",
            application_id=application_id,
        )
