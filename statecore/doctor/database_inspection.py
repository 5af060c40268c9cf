"""Inspection of one database: state, damage with its finding code, and number of rows."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from statecore.doctor.inspection import DatabaseView
from statecore.doctor.row_check import RowCheck
from statecore.errors import NOT_READABLE_HERE, Corrupted, Invalid, NotFound, StatecoreError, is_not_readable_here
from statecore.filesystem import tree_bytes
from statecore.formats.releases import DEFAULT_COLUMN_FAMILY, FAMILIES, OFFSETS_COLUMN_FAMILY
from statecore.formats.rocksdb_log import BLOB_SUFFIX
from statecore.statedir.database_state import DatabaseState
from statecore.statedir.known_files import foreign_files, not_a_file
from statecore.statedir.manifest_check import ManifestCheck, sst_format
from statecore.statedir.readonly_database import Database, opened_database
from statecore.statedir.store_on_disk import DatabaseOnDisk
from statecore.statedir.task_layout import Segment, entry_names
from statecore.stores.rocksdb.directory import data_files_in, identity_of
from statecore.stores.rocksdb.manifest_guard import lost_files
from statecore.words import number_of, shortened_list

_NOT_OF_THE_DATABASE = ("Permission denied", "Operation not permitted")
"""Texts of errors at opening that are caused by missing permissions."""

_NAMED = 5
_CHECKED_ROWS = 100

Tick = Callable[[int], None]
"""Called with the bytes read since the last call."""


@dataclass(frozen=True)
class InspectionDepth:
    """How thoroughly databases are inspected.

    Attributes:
        count: count all rows and verify checksums; otherwise use RocksDB's estimate, which is exact about whether there
            are any.
        formats: read the format version of each SST file.
    """

    count: bool = True
    formats: bool = False


def inspect_database(
    segment: Segment, interval: int | None, depth: InspectionDepth, check: RowCheck, tick: Tick | None = None
) -> DatabaseView | None:
    """Inspect a database; ``None`` if it was deleted meanwhile, as expired segments are."""
    path, start = segment.path, segment.start
    end = start + interval if start is not None and interval is not None else None
    size = tree_bytes(path)
    result = _DatabaseInspection(path)
    try:
        with opened_database(path) as (on_disk, database):
            result.take(on_disk, database)
            if not result.broken:
                _count(database, result, depth, check, size, tick)
    except NotFound:
        return None
    except StatecoreError as error:
        result.fail(_cause_at_opening(error), error)
    state, counts, manifest = result.state, result.rows, result.manifest
    older = sum(number for family, number in counts.items() if is_older(family, frozenset(counts)))
    unnamed, lost_end = (
        (manifest.unlisted, manifest.lost_end) if manifest is not None and not result.broken else ((), "")
    )
    return DatabaseView(
        path.name, start, end, dict(sorted(state.offsets.items())), state.status, sum(counts.values()), size,
        tuple(sorted(state.column_families)), older, result.broken, result.error, lost_files(path), result.cause,
        counts, unnamed, lost_end, _formats(path, manifest) if depth.formats else (), foreign_files(path),
        manifest is not None and manifest.offsets_flushed, state.position_entry, result.written_here_last,
        _not_files(path, manifest),
        identity_of(path, ignore_errors=True), check.short, check.outside, check.example,
        "" if manifest is None or result.broken else manifest.foreign_log,
    )  # fmt: skip


def view_without_current(path: Path, files: int) -> DatabaseView:
    """The view of a directory that lost ``CURRENT``. RocksDB deletes its files, or refuses it for a log, even empty."""
    outcome = "the application would create an empty database there, and delete them"
    if log := next(iter(sorted(path.glob("*.log"))), None):
        outcome = f"every start of the application fails, because RocksDB creates no database beside {log.name}"
    broken = f"{path} has {number_of(files, 'file')} of rows and no CURRENT: {outcome}."
    return DatabaseView(
        path.name, None, None, {}, None, 0, tree_bytes(path), (), 0, broken, Corrupted.__name__, (), "current-missing"
    )  # fmt: skip


def is_older(family: str, families: frozenset[str]) -> bool:
    """Whether a family has an older format: a store has one data family beside ``default``, or two of them."""
    data = families & FAMILIES - {DEFAULT_COLUMN_FAMILY, OFFSETS_COLUMN_FAMILY}
    return family == DEFAULT_COLUMN_FAMILY if len(data) == 1 else bool(data) and not family.endswith("Headers")


class _DatabaseInspection:
    """Results of inspecting one database, collected step by step."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.state = DatabaseState((), {}, None)
        self.manifest: ManifestCheck | None = None
        self.rows: dict[str, int] = {}
        self.broken = self.error = self.cause = ""
        self.written_here_last = False

    def take(self, on_disk: DatabaseOnDisk, database: Database) -> None:
        """Take over the reader's result; a MANIFEST that lost its end is kept apart from other damage."""
        manifest, damage, self.written_here_last = on_disk.manifest, on_disk.damage, on_disk.written_here_last
        missing = () if manifest is None else manifest.missing
        if damage is not None and on_disk.refused:
            self.fail(_cause_of_refusal(manifest), damage, missing)
            return
        self.manifest, self.state = manifest, on_disk.state
        if damage is not None and not on_disk.opens:
            self.state = DatabaseState(tuple(database.families), {}, None)
            cause = _cause_in_bookkeeping(damage) if database.families else _cause_at_opening(damage)
            self.fail(cause, damage, missing)

    def fail(self, cause: str, error: StatecoreError, missing: Sequence[str] = ()) -> None:
        """Record why it cannot be read; RocksDB names only one of several missing files."""
        self.broken, self.error, self.cause = error.what, type(error).__name__, cause
        if missing and cause in ("file-missing", "blob-damaged"):
            self.broken = _missing_file(self.path, missing)


def _cause_in_bookkeeping(error: StatecoreError) -> str:
    return "block-corrupt" if "Reading" in error.what else "database-unreadable"


def _cause_of_refusal(manifest: ManifestCheck | None) -> str:
    if manifest is not None and manifest.blobs_damaged:
        # Without an SST file it is not opened; a blob file is read with the first value in it that is asked for.
        return "blob-damaged" if all(map(_is_blob, manifest.missing)) else "file-missing"
    return "manifest-truncated"


def _is_blob(name: str) -> bool:
    return name.endswith(BLOB_SUFFIX)


def _count(
    database: Database,
    result: _DatabaseInspection,
    depth: InspectionDepth,
    check: RowCheck,
    size: int,
    tick: Tick | None,
) -> None:
    """Count and check rows; without a scan the first ones are checked."""
    data = check.kind.data_column_family if check.kind.can_be_built else ""
    families = sorted(database.families - {OFFSETS_COLUMN_FAMILY})
    byte_progress = _ByteProgress(tick, size, sum(database.estimate(family) for family in families))
    for family in families:
        try:
            if depth.count and family == data:
                for keys, values in database.chunks(family):
                    check.take(keys, values)
                    byte_progress.rows(check.seen)
                result.rows[family] = check.seen
            elif depth.count:
                result.rows[family] = database.count(family, byte_progress.rows)
            else:
                first = list(islice(database.rows(family), _CHECKED_ROWS if family == data else 1))
                if family == data:
                    check.take([key for key, _ in first], [value for _, value in first])
                result.rows[family] = max(database.estimate(family), 1) if first else 0
        except Corrupted as error:
            result.fail("block-corrupt", error)
    byte_progress.rest()


class _ByteProgress:
    """Converts rows read into bytes for progress, by RocksDB's estimate of the rows."""

    def __init__(self, tick: Tick | None, size: int, rows: int) -> None:
        self._tick, self._size, self._rows, self._reported = tick, size, max(rows, 1), 0

    def rows(self, count: int) -> None:
        """Report rows that were read."""
        self._report(min(self._size * count // self._rows, self._size - self._reported))

    def rest(self) -> None:
        """Report the remaining bytes."""
        self._report(self._size - self._reported)

    def _report(self, amount: int) -> None:
        if self._tick is not None and amount:
            self._tick(amount)
            self._reported += amount


def _missing_file(path: Path, missing: Sequence[str]) -> str:
    so = "rows whose values are in them cannot be read" if all(map(_is_blob, missing)) else "it cannot be opened"
    return f"{path} lacks {shortened_list(missing, _NAMED)}, which its MANIFEST names: {so}."


_OPENED = re.compile(r"CURRENT|IDENTITY|LOCK|MANIFEST-\d+|\d+\.(sst|blob|log)")
_NAMED_IN_MANIFEST = (".sst", ".blob")


def _not_files(path: Path, manifest: ManifestCheck | None) -> dict[str, str]:
    """What stands in the place of files that RocksDB opens, by name; data files only if the MANIFEST names them."""
    found = {}
    for name in entry_names(path):
        if _OPENED.fullmatch(name) is None or (what := not_a_file(path / name)) == "":
            continue
        if manifest is None or not name.endswith(_NAMED_IN_MANIFEST) or name in manifest.listed:
            found[name] = what
    return found


def _formats(path: Path, manifest: ManifestCheck | None) -> tuple[int, ...]:
    names = data_files_in(path) if manifest is None else manifest.listed
    return tuple(sorted({version for name in names if (version := sst_format(path / name))}, reverse=True))


def _cause_at_opening(error: StatecoreError) -> str:
    if is_not_readable_here(error):
        return NOT_READABLE_HERE
    if isinstance(error, Corrupted):
        return "file-missing" if "No such file" in error.what else "database-unreadable"
    if isinstance(error, Invalid) and not any(text in error.what for text in _NOT_OF_THE_DATABASE):
        return "database-unreadable"
    return "database-unseen"
