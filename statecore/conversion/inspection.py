"""Inspection of a task's directory for a conversion. Reads only: not a byte or time changes.

Each store is inspected separately, because a directory may be converted in part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

from statecore.conversion.rows import COUNTERPARTS, RowCounts, count_converted_rows, counterpart_of_row
from statecore.discover.kind_detection import detect_kind, kinds_opening_families
from statecore.discover.kind_evidence import BUILT, GRACE_BUFFER_SUFFIX, conclude, evidence_of_name, listed
from statecore.errors import Corrupted, NotFound, Reason
from statecore.formats.checkpoint import position_file
from statecore.formats.kinds import StoreKind
from statecore.formats.position import Position, position_of_offsets
from statecore.formats.releases import CHECKPOINT_FILE, DEFAULT_COLUMN_FAMILY, GLOBAL, OFFSETS_COLUMN_FAMILY
from statecore.formats.topic_partition import TopicPartition
from statecore.images.digest import digest_rows
from statecore.images.model import StoreDigest
from statecore.spec.model import ApplicationSpec, StoreSpec
from statecore.statedir.database_state import DatabaseState, smallest_offsets
from statecore.statedir.file_trees import link_in
from statecore.statedir.flush_times import NOTHING_FLUSHED, Flushes, read_flushes
from statecore.statedir.mounts import mount_in, why_mounted
from statecore.statedir.readonly_database import Database, opened_database
from statecore.statedir.store_places import StorePlace, changelog_at, declared_at
from statecore.statedir.task_layout import StoreDirectory, rows_without_current, stores_in
from statecore.stores.legacy_offsets import read_offsets
from statecore.stores.rocksdb.directory import has_database
from statecore.stores.rocksdb.files import live_files, manifest_of, sst_formats

_WITH_HEADERS = frozenset(kind.data_column_family for kind in COUNTERPARTS)


@dataclass(frozen=True)
class InspectionTarget:
    """What the target of a conversion requires to be read.

    Attributes:
        moves: whether rows of kinds with headers are to be moved, so that all of them are read.
        sst_format: the newest accepted version of SST files; the rows of families with newer ones are digested.
    """

    moves: bool
    sst_format: int


@dataclass(frozen=True)
class DatabaseInspection:
    """One database.

    Attributes:
        directory: relative to the task's.
        nonempty_families: families with at least one row.
        formats: versions of its SST files, by family.
        files: its SST files with their bytes, by family.
        first_key: the first key in a family with headers, if there is one.
        converted_rows: result of moving the rows of a family with headers.
        contents: digests of families with newer files than accepted.
        flushed: whether an offset was flushed since it was last opened.
        unnamed_files: complete SST files that its MANIFEST does not name.
    """

    directory: str
    state: DatabaseState
    position: Position
    nonempty_families: frozenset[str]
    formats: Mapping[str, frozenset[int]]
    files: Mapping[str, Mapping[str, int]]
    first_key: bytes | None = None
    converted_rows: RowCounts | None = None
    contents: Mapping[str, StoreDigest] = field(default_factory=dict)
    flushed: bool = False
    unnamed_files: tuple[str, ...] = ()

    @property
    def families(self) -> frozenset[str]:
        return frozenset(self.state.column_families)

    @property
    def has_offsets_family(self) -> bool:
        return OFFSETS_COLUMN_FAMILY in self.families

    @property
    def with_headers(self) -> str | None:
        """Its family of rows with headers, if there is one."""
        return next(iter(self.families & _WITH_HEADERS), None)


@dataclass(frozen=True)
class StoreInspection:
    """One store.

    Attributes:
        directory: relative to the task's.
        segmented: whether it has the layout for segments.
        databases: segments in order of time.
        changelog: the topic of its offsets, by the spec or by Kafka Streams' names; empty if unknown, or if it has
            none.
        logged: whether the spec declares it logged; ``None`` without a declaration.
        kind: its kind, if that matters and can be detected, else ``?``.
        possible_kinds: possible kinds, in words.
        target: of a store with headers, its kind without them.
        file_offsets: offsets in ``.checkpoint_<store>``, if it exists.
        file_position: position in ``<store>.position``.
        has_position_file: whether that file exists.
        foreign: whether its directory has files and no database: a store of the application's own class.
        damage: why a database of it cannot be read; ``None`` if all can.
        flushes: flushes since ``.checkpoint`` was written, if only that file has its offset.
    """

    store: str
    directory: str
    segmented: bool
    databases: tuple[DatabaseInspection, ...] = ()
    declared: StoreSpec | None = None
    changelog: str = ""
    logged: bool | None = None
    kind: StoreKind = StoreKind.UNKNOWN
    possible_kinds: str = ""
    target: StoreKind | None = None
    file_offsets: Mapping[TopicPartition, int] | None = None
    file_position: Position = field(default_factory=dict)
    has_position_file: bool = False
    foreign: bool = False
    damage: Reason | None = None
    flushes: Flushes = NOTHING_FLUSHED

    @property
    def keeps_offset_outside(self) -> bool:
        """Whether releases with offsets inside read its offset from ``.checkpoint_<store>`` anyway."""
        return self.kind is StoreKind.GRACE_BUFFER

    @property
    def smallest_offsets(self) -> dict[TopicPartition, int]:
        """The smallest offset of each partition over its databases."""
        return smallest_offsets(one.state.offsets for one in self.databases)

    @property
    def transactional(self) -> bool:
        """Whether only transactional stores of 4.4 wrote to it: its rows are at its offset, even after a kill."""
        return bool(self.databases) and all(one.state.transactional for one in self.databases)

    @property
    def has_rows(self) -> bool:
        return any(one.nonempty_families for one in self.databases)


@dataclass(frozen=True)
class TaskInspection:
    """A task's directory, or ``global/``.

    Attributes:
        checkpoint: the entries of ``.checkpoint``; ``None`` if it does not exist.
        damage: why that cannot be read.
        sources: topics of the declared global stores, in ``global/``; ``None`` without a spec.
        offset_files: entries of ``.checkpoint_<store>`` files of stores without a directory here, by file.
    """

    task: str
    stores: tuple[StoreInspection, ...]
    checkpoint: Mapping[TopicPartition, int] | None
    damage: Reason | None = None
    sources: frozenset[str] | None = None
    offset_files: Mapping[str, Mapping[TopicPartition, int]] = field(default_factory=dict)

    @property
    def is_global(self) -> bool:
        return self.task == GLOBAL


def inspect_task(
    task: str, path: Path, application_id: str, spec: ApplicationSpec | None, depth: InspectionTarget
) -> TaskInspection:
    """Inspect a task's directory."""
    checkpoint, written_ns = None, 0
    broken: Reason | None = None
    found = stores_in(path)
    beside = {}
    try:
        for file in sorted(set(path.glob(f"{CHECKPOINT_FILE}_*")) - {store.checkpoint_file for store in found}):
            if file.suffix != ".tmp":
                beside[file.name] = read_offsets(file)
        if (path / CHECKPOINT_FILE).is_file():
            checkpoint = read_offsets(path / CHECKPOINT_FILE)
            written_ns = (path / CHECKPOINT_FILE).stat().st_mtime_ns
    except Corrupted as error:
        broken = Reason(error.what, error.code, **error.context)
    if (link := link_in(path)) is not None:
        what = f"{link} is a link to another directory, which would not be copied. Replace it by the directory."
        broken = Reason(what, "task-directory-linked", path=str(link))
    if broken is None and (mounted := why_mounted(path)):
        broken = Reason(mounted, "mount-in-the-way", path=str(mount_in(path)))
    stores = [_store(task, one, path, application_id, spec, depth) for one in found]
    if checkpoint is not None and task != GLOBAL:
        stores = [replace(store, flushes=_flushes(store, path, written_ns)) for store in stores]
    sources = None if spec is None else frozenset(store.changelog for store in spec.global_stores)
    return TaskInspection(task, tuple(stores), checkpoint, broken, sources, beside)


def _flushes(store: StoreInspection, path: Path, written_ns: int) -> Flushes:
    if store.smallest_offsets or store.file_offsets is not None:
        return NOTHING_FLUSHED
    databases = [path / one.directory for one in store.databases if not one.has_offsets_family]
    return read_flushes(databases, path, written_ns)


def _store(
    task: str,
    found: StoreDirectory,
    path: Path,
    application_id: str,
    spec: ApplicationSpec | None,
    depth: InspectionTarget,
) -> StoreInspection:
    place = StorePlace(found.store, found.path, found.segmented, task)
    seen = StoreInspection(found.store, found.name, found.segmented)
    declared = declared_at(spec, task, found.store)
    logged = None if declared is None else declared.is_logged
    changelog = changelog_at(application_id, task, found.store, declared)
    seen = replace(seen, declared=declared, logged=logged, changelog=changelog)
    try:
        file = found.checkpoint
        databases = found.databases
        seen = replace(
            seen,
            file_offsets=None if file is None else read_offsets(file),
            file_position=_known(read_offsets(path / position_file(found.store))),
            has_position_file=(path / position_file(found.store)).is_file(),
            foreign=not databases and any(found.path.iterdir()),
        )
        # Also a segment that has expired: Kafka Streams would create a database there before it deletes it.
        if lost := next(iter(rows_without_current(found)), None):
            what = f"{lost} has files of rows and no CURRENT."
            return replace(seen, damage=Reason(what, "store-incomplete", store_path=str(lost)))
        inspected = [inspect_database(database, path) for database in databases]
        seen = replace(seen, databases=tuple(one for one in inspected if one is not None))
        seen = _with_kind(seen, place)
        return replace(seen, databases=tuple(_with_digests(seen, one, path, depth) for one in seen.databases))
    except Corrupted as error:
        return replace(seen, damage=Reason(error.what, error.code, **error.context))


def _known(offsets: Mapping[TopicPartition, int]) -> Position:
    """A position from a file; -4 there means unknown, as a missing entry does."""
    return position_of_offsets({partition: offset for partition, offset in offsets.items() if offset >= 0})


def inspect_database(database: Path, path: Path) -> DatabaseInspection | None:
    """Inspect one database of a task's directory (``path``); ``None`` if it was deleted."""
    if not has_database(database):
        return None
    try:
        with opened_database(database) as (found, opened):
            state = found.checked().state
            filled = {name for name in opened.families - {OFFSETS_COLUMN_FAMILY} if next(opened.rows(name), None)}
            with_headers = next(iter(opened.families & _WITH_HEADERS), "")
            first = next((key for key, _ in islice(opened.rows(with_headers), 1)), None)
    except NotFound:
        return None
    current, manifest = manifest_of(database)
    return DatabaseInspection(
        str(database.relative_to(path)),
        state,
        state.position,
        frozenset(filled),
        sst_formats(database),
        live_files(database),
        first,
        flushed=manifest.flushed_since(current, OFFSETS_COLUMN_FAMILY),
        unnamed_files=() if found.manifest is None else found.manifest.unlisted,
    )


def _with_kind(seen: StoreInspection, place: StorePlace) -> StoreInspection:
    """Detect the store's kind if the conversion depends on it: with headers, or with its offset outside."""
    declared = seen.declared.kind if seen.declared is not None and seen.declared.kind.can_be_built else None
    family = next((one.with_headers for one in seen.databases if one.with_headers), None)
    if family is None:
        if declared is not None:
            return replace(seen, kind=declared)
        endless = seen.segmented and [one.directory for one in seen.databases] == [f"{seen.store}/{seen.store}.0"]
        named = not seen.databases and seen.store.endswith(GRACE_BUFFER_SUFFIX) and seen.segmented
        if seen.file_offsets is not None and seen.segmented:
            return replace(seen, kind=StoreKind.GRACE_BUFFER)
        if not endless:
            return replace(seen, kind=StoreKind.GRACE_BUFFER) if named else seen
        found = detect_kind([place])
        return replace(seen, kind=conclude([*found.evidence, *evidence_of_name(seen.store, ())]).kind)
    left = kinds_opening_families(seen.databases[0].families, segmented=seen.segmented)
    for kind, targets in COUNTERPARTS.items():
        if declared is kind and len(targets) == 1:
            return replace(seen, kind=kind, target=targets[0])
        if declared in targets and kind.data_column_family == family and kind.is_segmented == seen.segmented:
            return replace(seen, kind=kind, target=declared)
    if declared is None or declared not in COUNTERPARTS:
        found = detect_kind([place])
        conclusion = conclude([*found.evidence, *evidence_of_name(seen.store, ())])
        left = conclusion.possible_kinds & frozenset(COUNTERPARTS) & left
        kind = next(iter(left)) if len(left) == 1 else StoreKind.UNKNOWN
    else:
        kind = declared
    keys = [one.first_key for one in seen.databases if one.first_key is not None]
    target = counterpart_of_row(kind, keys[0]) if keys and kind is not StoreKind.UNKNOWN else None
    return replace(seen, kind=kind, target=target, possible_kinds=listed(left or BUILT & frozenset(COUNTERPARTS)))


def _with_digests(
    seen: StoreInspection, one: DatabaseInspection, path: Path, depth: InspectionTarget
) -> DatabaseInspection:
    newer = _families_above(one, depth.sst_format)
    moves = one.with_headers if depth.moves else None
    if not newer and not moves:
        return one
    with Database(path / one.directory) as opened:
        moved = None
        if moves and moves in one.nonempty_families and seen.target is not None:
            moved = count_converted_rows(opened.chunks(moves), seen.kind, seen.target)
        contents = {family: digest_rows(opened.chunks(family)) for family in sorted(newer - {moves})}
    return replace(one, converted_rows=moved, contents=contents)


def _families_above(one: DatabaseInspection, sst_format: int) -> frozenset[str]:
    return frozenset(
        family
        for family, versions in one.formats.items()
        if family != OFFSETS_COLUMN_FAMILY
        and family in one.families | {DEFAULT_COLUMN_FAMILY}
        and max(versions) > sst_format
    )


def release_names(stores: Sequence[StoreInspection]) -> str:
    """The releases that may have written the databases of these stores, in words."""
    found = set()
    for one in (one for store in stores for one in store.databases):
        versions = {version for of_family in one.formats.values() for version in of_family}
        if one.has_offsets_family:
            found.add("4.4" if one.state.transactional else "4.3 or 4.4")
        elif any(version > 5 for version in versions):
            found.add("4.2")
        else:
            found.add("3.9 or 4.2")
    for several, single in (("3.9 or 4.2", "4.2"), ("4.3 or 4.4", "4.4")):
        if {several, single} <= found:
            found.discard(several)
    return ", ".join(sorted(found)) or "any"
