"""One database as it is seen: what it says, how many rows it has, and what is wrong with its files.

RocksDB opens a database whose MANIFEST lost its end without a word. So the MANIFEST is held against what else there is:
this library's witness and the log (:mod:`statecore.stores.rocksdb_witness`), and, of a database that Kafka Streams
wrote, its OPTIONS, which name every column family, and the SST files beside it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from statecore.errors import NOT_READABLE_HERE, Corrupted, Invalid, NotFound, StatecoreError, is_not_readable_here
from statecore.filesystem import tree_bytes
from statecore.formats.releases import DEFAULT_COLUMN_FAMILY, FAMILIES, OFFSETS_COLUMN_FAMILY
from statecore.formats.rocksdb_log import Manifest, read_manifest
from statecore.maintenance.database import Database
from statecore.maintenance.views import DatabaseView
from statecore.placement.contents import Segment
from statecore.placement.database_state import DatabaseState, read_database_state
from statecore.stores.rocksdb_directory import CONFIG_FILE, current_manifest, data_files_in
from statecore.stores.rocksdb_elsewhere import files_elsewhere
from statecore.stores.rocksdb_errors import not_readable_here
from statecore.stores.rocksdb_files import check_blobs, sst_format_of
from statecore.stores.rocksdb_links import files_of
from statecore.stores.rocksdb_options_file import families_in, newest_options
from statecore.stores.rocksdb_ownership import writer_of
from statecore.stores.rocksdb_witness import LOST_DIRECTORY, WITNESS_FILE, Witness, lost_files
from statecore.words import number_of, some_of

_OF_ROCKSDB = re.compile(
    r"CURRENT|IDENTITY|LOCK|LOG(\.old\.\d+)?|(MANIFEST|OPTIONS)-\d+|\d+\.(sst|log|blob|dbtmp)|OPTIONS-\d+\.dbtmp"
)
_OURS = frozenset({WITNESS_FILE, f"{WITNESS_FILE}.tmp", LOST_DIRECTORY})
_NOT_OF_THE_DATABASE = ("Permission denied", "Operation not permitted")
"""What an opening fails with for want of rights."""

_NAMED = 5

Tick = Callable[[int], None]
"""Told how many bytes more were looked at."""


@dataclass(frozen=True)
class Depth:
    """How closely databases are looked at.

    Attributes:
        count: whether all rows are read, checksums verified; else RocksDB's estimate is taken, which knows well
            whether there are any.
        formats: whether the format version of each SST file is read.
    """

    count: bool = True
    formats: bool = False


@dataclass(frozen=True)
class _Files:
    """The files of a database while nobody changed them.

    Attributes:
        named: SST files and blob files that its MANIFEST names.
        present: those that there are.
        manifest: what the MANIFEST says.
        manifest_bytes: how long it is.
        option_families: column families in the newest OPTIONS; empty where there are none.
        flushed: whether bookkeeping was flushed since the database was opened last.
    """

    named: frozenset[str]
    present: frozenset[str]
    manifest: Manifest
    manifest_bytes: int
    option_families: frozenset[str]
    flushed: bool


def look_at_database(
    segment: Segment, interval: int | None, depth: Depth, tick: Tick | None = None
) -> DatabaseView | None:
    """What a database holds; ``None`` when it has gone meanwhile, as expired segments go.

    Args:
        segment: its directory, and when its segment begins.
        interval: how long the segment is, where that is known.
        depth: how closely it is looked at.
        tick: told the bytes of what was read.
    """
    path, start = segment.path, segment.start
    end = start + interval if start is not None and interval is not None else None
    size = tree_bytes(path)
    seen, files = _Sight(), None
    try:
        files = _look_at_files(path, seen)
        if not seen.broken:
            _look_inside(path, seen, depth, size, tick)
    except NotFound:
        return None
    except StatecoreError as error:
        _note_failure(path, seen, files, error)
    state, counts = seen.state, seen.rows
    older = sum(number for family, number in counts.items() if is_older(family, frozenset(counts)))
    unnamed, cut = _manifest_doubts(path, files, state) if files is not None and not seen.broken else ((), "")
    return DatabaseView(
        path.name, start, end, dict(sorted(state.offsets.items())), state.status, sum(counts.values()), size,
        tuple(sorted(state.column_families)), older, seen.broken, seen.error, lost_files(path), seen.cause, counts,
        unnamed, cut, _formats(path, files) if depth.formats else (), foreign_in(path),
        files is not None and files.flushed, state.positioned,
    )  # fmt: skip


def refuse_cut(path: Path) -> None:
    """Stop at a database that has lost the end of its MANIFEST, and so rows: RocksDB would open it without a word.

    One that somebody is at work in is passed over, as are files that are not understood.

    Args:
        path: its directory.

    Raises:
        Corrupted: it has.
        StatecoreError: it cannot be read.
    """
    before = files_of(path)
    cut = ""
    try:
        Witness(path, path).look(read_only=True)
        if (files := _read_files(path)) is not None:
            cut = _manifest_doubts(path, files, read_database_state(path))[1]
    except Corrupted:
        if _is_quiet(path, before):
            raise
    if cut and _is_quiet(path, before):
        raise Corrupted(
            f"The database at {path} has lost the end of its MANIFEST: {cut}.",
            code="database-damaged",
            action="Rebuild the store from its changelog.",
            store_path=str(path),
        )


def without_current(path: Path, files: int) -> DatabaseView:
    """A directory that lost the file which names all others: RocksDB would make an empty database over its rows.

    Args:
        path: the directory.
        files: how many files of rows it has.
    """
    of_rows = number_of(files, "file")
    broken = f"{path} has {of_rows} of rows and no CURRENT: the application would begin an empty database there."
    return DatabaseView(
        path.name, None, None, {}, None, 0, tree_bytes(path), (), 0, broken, Corrupted.__name__, (), "current-missing"
    )  # fmt: skip


def is_older(family: str, families: frozenset[str]) -> bool:
    """Whether a family is that of an older format: a store has one data family besides ``default``, or two of them."""
    data = families & FAMILIES - {DEFAULT_COLUMN_FAMILY, OFFSETS_COLUMN_FAMILY}
    return family == DEFAULT_COLUMN_FAMILY if len(data) == 1 else bool(data) and not family.endswith("Headers")


def foreign_in(path: Path) -> tuple[str, ...]:
    """Files in a database's directory that neither RocksDB nor this library makes."""
    try:
        names = sorted(entry.name for entry in path.iterdir())
    except OSError:
        return ()
    return tuple(name for name in names if not is_of_rocksdb(name) or name == CONFIG_FILE)


def is_of_rocksdb(name: str) -> bool:
    """Whether a file is called as those that RocksDB or this library makes."""
    return name in _OURS or _OF_ROCKSDB.fullmatch(name) is not None


class _Sight:
    """What is known so far."""

    def __init__(self) -> None:
        self.state = DatabaseState((), {}, None)
        self.rows: dict[str, int] = {}
        self.broken = self.error = self.cause = ""

    def fail(self, cause: str, error: StatecoreError) -> None:
        """Note why it cannot be read."""
        self.broken, self.error, self.cause = error.what, type(error).__name__, cause


def _look_inside(path: Path, seen: _Sight, depth: Depth, size: int, tick: Tick | None) -> None:
    with Database(path) as database:
        seen.state = DatabaseState(tuple(sorted(database.families)), {}, None)
        try:
            seen.state = database.state
        except Corrupted as error:
            seen.fail("block-corrupt" if "Reading" in error.what else "database-unreadable", error)
            return
        families = sorted(database.families - {OFFSETS_COLUMN_FAMILY})
        told = _Told(tick, size, sum(database.estimate(family) for family in families))
        for family in families:
            try:
                if depth.count:
                    seen.rows[family] = database.count(family, told.rows)
                else:
                    some = any(True for _ in islice(database.rows(family), 1))
                    seen.rows[family] = max(database.estimate(family), 1) if some else 0
            except Corrupted as error:
                seen.fail("block-corrupt", error)
        told.rest()


class _Told:
    """Turns rows into bytes for whoever is told how far it is, by RocksDB's estimate of the rows."""

    def __init__(self, tick: Tick | None, size: int, rows: int) -> None:
        self._tick, self._size, self._rows, self._said = tick, size, max(rows, 1), 0

    def rows(self, count: int) -> None:
        """So many rows more were read."""
        self._say(min(self._size * count // self._rows, self._size - self._said))

    def rest(self) -> None:
        """All were."""
        self._say(self._size - self._said)

    def _say(self, amount: int) -> None:
        if self._tick is not None and amount:
            self._tick(amount)
            self._said += amount


def _look_at_files(path: Path, seen: _Sight) -> _Files | None:
    """The files of a database that nobody is at work in, ``None`` of another; notes a MANIFEST that lost its end."""
    before = files_of(path)
    try:
        files = _read_files(path)
        missing = [] if files is None else sorted(files.named - files.present)
        if files is not None:
            check_blobs(path, path, files.manifest.blobs.values())
    except Corrupted as error:
        if not _is_quiet(path, before):
            return None
        if why := files_elsewhere(path):
            seen.fail(NOT_READABLE_HERE, not_readable_here(f"{path} cannot be read: {why}.", path))
            return None
        seen.fail("file-missing" if missing else "database-unreadable", error)
        if missing:
            seen.broken = _lacks(path, missing)
        return None
    try:
        Witness(path, path).look(read_only=True)
    except Corrupted as error:
        if _is_quiet(path, before):
            seen.fail("manifest-truncated", error)
        return None
    return files if files is not None and _is_quiet(path, before) else None


def _note_failure(path: Path, seen: _Sight, files: _Files | None, error: StatecoreError) -> None:
    """Note why a database could not be opened; which of its files are missing RocksDB says one by one."""
    seen.fail(_cause_at_opening(error), error)
    missing = sorted(files.named - files.present) if files is not None else []
    if seen.cause == "file-missing" and missing:
        seen.broken = _lacks(path, missing)


def _lacks(path: Path, missing: Sequence[str]) -> str:
    only_blobs = all(name.endswith(".blob") for name in missing)
    so = "rows whose values are in them cannot be read" if only_blobs else "it cannot be opened"
    return f"{path} lacks {some_of(missing, _NAMED)}, which its MANIFEST names: {so}."


def _is_quiet(path: Path, before: frozenset[tuple[str, int]]) -> bool:
    return writer_of(path) is None and files_of(path) == before


def _read_files(path: Path) -> _Files | None:
    """``None`` where they are not understood: RocksDB says what is wrong."""
    try:
        name, data = current_manifest(path)
        manifest = read_manifest(data)
        present = data_files_in(path)
        known = families_in(newest_options(path))
    except (OSError, ValueError):
        return None
    flushed = manifest.flushed_since(name, OFFSETS_COLUMN_FAMILY)
    return _Files(frozenset(manifest.names), present, manifest, len(data), known, flushed)


def _manifest_doubts(path: Path, files: _Files, state: DatabaseState) -> tuple[tuple[str, ...], str]:
    """SST files that are whole and that nobody names, and why the MANIFEST must have lost its end, if it must.

    A kill leaves such files too, so they prove nothing by themselves. But what Kafka Streams flushes has a status, and
    RocksDB writes OPTIONS when a column family has been made.
    """
    unnamed = tuple(name for name in sorted(files.present - files.named) if _footer(path / name) is not None)
    gone = sorted(files.option_families - frozenset(state.column_families))
    if gone:
        return unnamed, f"its OPTIONS name the column family {', '.join(gone)}, which it does not have"
    if files.manifest.whole_bytes < files.manifest_bytes:
        return unnamed, f"its last whole entry ends at byte {files.manifest.whole_bytes} of {files.manifest_bytes}"
    if files.manifest.group_left and unnamed:
        return unnamed, "it ends within the entries of one flush"
    if unnamed and OFFSETS_COLUMN_FAMILY in state.column_families and state.status is None and not state.offsets:
        return unnamed, (
            f"it has neither status nor offset, and does not name {some_of(unnamed, _NAMED)}, which RocksDB "
            "deletes when it opens the database"
        )
    return unnamed, ""


def _formats(path: Path, files: _Files | None) -> tuple[int, ...]:
    names = files.named if files is not None else data_files_in(path)
    found = {version for name in names if (version := _footer(path / name)) is not None}
    return tuple(sorted(found, reverse=True))


def _footer(file: Path) -> int | None:
    try:
        return sst_format_of(file)
    except (OSError, ValueError):
        return None


def _cause_at_opening(error: StatecoreError) -> str:
    if is_not_readable_here(error):
        return NOT_READABLE_HERE
    if isinstance(error, Corrupted):
        return "file-missing" if "No such file" in error.what else "database-unreadable"
    if isinstance(error, Invalid) and not any(text in error.what for text in _NOT_OF_THE_DATABASE):
        return "database-unreadable"
    return "database-unseen"
