"""Checks a database's MANIFEST before RocksDB opens it, because RocksDB does not notice a truncated one.

RocksDB reads a MANIFEST that ends early as a shorter one: it opens the database without an error, with some files
missing, and deletes the SST files that the MANIFEST does not name. An unnamed file alone is no damage: every second
kill during a flush or compaction leaves one. So a database is refused only on further evidence:

- **The guard record**, the file ``statecore-witness`` beside the database: the minimum length of this MANIFEST when
  the store was last opened, flushed or closed. Every opening for writing creates a new MANIFEST with another number, so
  a record from before Kafka Streams wrote to the store is ignored. A line with a wrong CRC-32C, or of another database
  (``IDENTITY``), is ignored too.
- **The log**: rows that are not in the MANIFEST's files must be in the log, without a gap. RocksDB deletes a log only
  after the MANIFEST names the files of its rows.

Both may miss damage, and never report a false one: the guard record may be missing or old. Commits write no record, so
they cost nothing.

Without a guard record of this MANIFEST, unnamed SST files are linked into ``lost/`` (where RocksDB's own repair puts
them) before RocksDB deletes them; if that fails, the database is not opened for writing. RocksDB and Kafka Streams
ignore both names.

The guard record also tells who wrote last. A commit of this library writes rows and offset atomically, so after a kill
they agree, whatever ``status`` is. For a store last written by Kafka Streams that is unknown.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from filecmp import cmp
from itertools import count
from pathlib import Path
from typing import Any

from crc32c import crc32c

from statecore.errors import Corrupted, Invalid
from statecore.filesystem import link_or_copy, open_regular, read_regular, sync_file
from statecore.formats.offsets import STATUS_CLOSED, STATUS_KEY, partition_of_key
from statecore.formats.releases import OFFSETS_COLUMN_FAMILY
from statecore.formats.rocksdb_log import BLOCK, Manifest, first_sequence, last_sequence, read_manifest
from statecore.stores.rocksdb.directory import current_manifest, current_name, data_files_in, identity_of
from statecore.stores.rocksdb.errors import translate
from statecore.stores.rocksdb.files import check_blobs, parse_manifest
from statecore.stores.rocksdb.reading import OpenedFamilies
from statecore.stores.rocksdb.readonly_links import ReadOnlyLinks
from statecore.stores.rocksdb.scan import FamilyIterator, RocksDBCursor

RECORD_FILE = "statecore-witness"
"""In a database's directory: what this library knows of its MANIFEST. It may be deleted at any time."""

LOST_DIRECTORY = "lost"  # In a database's directory: SST files that its MANIFEST did not name
_ATTEMPTS = 5
_NAMED = 5
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Record:
    """The guard record: the contents of ``statecore-witness``."""

    manifest: str
    bytes: int  # minimum length of the MANIFEST
    rows_ahead: bool  # whether rows may be ahead of the offset
    # last sequence numbers at which this library began to open the database; an opening creates a new MANIFEST, and a
    # killed one leaves no other trace
    openings: frozenset[int]


@dataclass(frozen=True)
class _DatabaseFiles:
    """The files of a closed database."""

    current: str
    manifest: Manifest
    unlisted: tuple[Path, ...]  # SST files that the MANIFEST does not name
    first_logged: int | None  # sequence number of the first row in the oldest log
    last_logged: int | None  # sequence number of the last row in the newest log
    record: _Record | None
    damaged_blob: Corrupted | None = None  # the error of a missing or truncated blob file

    @property
    def last_sequence(self) -> int:
        return max(self.manifest.last_sequence, self.last_logged or 0)

    @property
    def is_recorded(self) -> bool:
        return self.record is not None and self.record.manifest == self.current

    @property
    def written_here_last(self) -> bool:
        return self.is_recorded or (self.record is not None and self.last_sequence in self.record.openings)


@dataclass
class ManifestGuard:
    """Guards one database from before it is opened until it is closed."""

    path: Path
    where: Path
    records: bool = True  # whether the guard record is written
    _files: _DatabaseFiles | None = field(default=None, init=False)
    _rows_ahead: bool = field(default=False, init=False)
    _deletes_saved_files: bool = field(default=False, init=False)
    _on_disk: str | None = field(default=None, init=False)

    def check(self, *, read_only: bool) -> None:
        """Inspect a database that is about to be opened; before a writer opens it, save unnamed files in ``lost/``."""
        self._files = inspection = _inspect(self.path, self.where)
        if inspection is None:
            if not read_only:
                _refuse_unknown(self.path, self.where)
            return
        record, manifest = inspection.record, inspection.manifest
        if inspection.damaged_blob is not None:
            raise inspection.damaged_blob
        if record is not None and inspection.is_recorded and manifest.valid_bytes < record.bytes:
            raise _refusal(
                inspection,
                self.path,
                self.where,
                f"ends at byte {manifest.valid_bytes}, and was {record.bytes} bytes long when the"
                " store was last opened, flushed or closed",
            )
        if inspection.first_logged is not None and inspection.first_logged > manifest.last_sequence + 1:
            raise _refusal(
                inspection,
                self.path,
                self.where,
                f"has rows up to sequence number {manifest.last_sequence}, and the log begins at"
                f" {inspection.first_logged}; those between are in files that it does not name",
            )
        if read_only:
            return
        if inspection.written_here_last:
            _append_opening(self.where, inspection.last_sequence)
        if inspection.unlisted and not inspection.written_here_last:
            _link_to_lost(self.path, self.where, inspection.unlisted)

    def report_missing(self, families: Mapping[str, Any], data_family: str, sequence: int) -> None:
        """Log what an opened database lacks, before anything is written to it."""
        if self._files is None:
            return
        offsets = families.get(OFFSETS_COLUMN_FAMILY)
        entries = {} if offsets is None else {key: value or b"" for key, value in _rows(self.path, offsets)}
        at = {key.decode(): int.from_bytes(entries[key], "big", signed=True) for key in entries if _is_offset(key)}
        status = entries.get(STATUS_KEY)
        closed = status is None or int.from_bytes(status, "big") == STATUS_CLOSED
        self._rows_ahead = not closed and not self.is_consistent
        damaged = sequence < (self._files.last_logged or 0)
        if damaged:
            _log.warning(
                "The log of %s is damaged: it had commits up to sequence number %d, and could be read up to %d. The "
                "store is consistent at an earlier commit; apply the changelog from its offset (%s).",
                self.path,
                self._files.last_logged,
                sequence,
                at or "none",
            )
        lacking = [name for name, has in (("status", status is not None), ("offset", bool(at))) if not has]
        sound = not lacking and not damaged  # rows missing in the log may be in the saved files
        if not self._files.written_here_last and self._files.unlisted:
            self._deletes_saved_files = sound
            _log.warning(
                "%s had %d SST files that its MANIFEST does not name (%s), left by a kill during a flush or compaction "
                "or by a truncated MANIFEST; they are saved in %s/%s%s.",
                self.path,
                len(self._files.unlisted),
                _names(self._files.unlisted),
                self.path,
                LOST_DIRECTORY,
                " until the store is closed" if sound else "; delete them when the store has all its rows",
            )
        if lacking and next(_rows(self.path, families[data_family]), None) is not None:
            _log.log(
                logging.WARNING if self._files.unlisted else logging.INFO,
                "%s has rows, and no %s.",
                self.path,
                " and no ".join(lacking),
            )

    @property
    def is_consistent(self) -> bool:
        """Whether rows and offset agree, closed or not: this library wrote last, and a commit followed any ingest."""
        inspection = self._files
        return (
            inspection is not None
            and inspection.record is not None
            and inspection.written_here_last
            and not inspection.record.rows_ahead
        )

    @property
    def written_here_last(self) -> bool:
        """Whether this library is known to have written to the database last."""
        return self._files is not None and self._files.record is not None and self._files.written_here_last

    @property
    def why_inconsistent(self) -> tuple[str, str]:
        """Why rows and offset of a store that is not consistent may disagree, and what to do, for an error."""
        inspection = self._files
        if inspection is None or inspection.record is None:
            return (
                f"it has no {RECORD_FILE}, which says who wrote to it last",
                "If it was copied from a directory that this library wrote, copy it again with every file of the "
                "directory; else rebuild the store from its changelog.",
            )
        why = (
            "something else than this library wrote to it last"
            if not inspection.written_here_last
            else "files were ingested into it, and no commit followed"
        )
        return why, "Rebuild the store from its changelog."

    def record(self, *, rows_ahead: bool, durably: bool = False) -> None:
        """Write the record of the open database. A failure weakens the evidence and is no error.

        The first record of a MANIFEST is synced, so that the store is known to be whole after a power loss; except for
        a fresh database, which is synced as a whole when it is closed.
        """
        if not self.records:
            return
        try:
            current = current_name(self.where)
            record = {
                "database": identity_of(self.where),
                "manifest": current,
                "bytes": (self.where / current).stat().st_size,
                "rows_ahead": rows_ahead or self._rows_ahead,
            }
            partial = self.where / f"{RECORD_FILE}.tmp"
            try:
                partial.write_text(_line(record))
                synced = durably or (self._files is not None and self._on_disk != current)
                if synced:
                    sync_file(partial)
                partial.replace(self.where / RECORD_FILE)
                if synced:
                    sync_file(self.where)
                    self._on_disk = current
            except BaseException:
                partial.unlink(missing_ok=True)
                raise
        except OSError as error:
            if durably:
                raise translate(self.path, "Noting an ingest beside", error) from error

    def delete_saved_files(self) -> None:
        """After a clean close, delete saved files that nothing misses."""
        if self._deletes_saved_files:
            shutil.rmtree(self.where / LOST_DIRECTORY, ignore_errors=True)
            self._deletes_saved_files = False


def lost_files(path: Path) -> tuple[str, ...]:
    """Names of the files in a database's ``lost/``, sorted."""
    try:
        return tuple(sorted(file.name for file in (path / LOST_DIRECTORY).iterdir()))
    except OSError:
        return ()


def remove_guard_record(path: Path) -> None:
    """Delete this library's record from a database that is handed to Kafka Streams."""
    (path / RECORD_FILE).unlink(missing_ok=True)


def _inspect(path: Path, where: Path) -> _DatabaseFiles | None:
    """Read a closed database until nothing changed meanwhile; ``None`` if RocksDB will report the error."""
    for _ in range(_ATTEMPTS):
        try:
            record = _read_record(where)  # first: a MANIFEST that is read later can only be longer
            current, data = current_manifest(where)
            first, last = _logged(where)
            files = [where / name for name in data_files_in(where) if Path(name).stem.isdigit()]
            manifest = read_manifest(data)
            damaged = _damaged_blob(path, where, manifest)
            if (where / current).stat().st_size != len(data) or current_name(where) != current:
                continue
        except FileNotFoundError:
            continue
        except (OSError, ValueError):
            return None
        named = frozenset(manifest.names)
        unnamed = tuple(sorted(file for file in files if file.name not in named))
        return _DatabaseFiles(current, manifest, unnamed, first, last, record, damaged)
    return None


def _damaged_blob(path: Path, where: Path, manifest: Manifest) -> Corrupted | None:
    try:
        check_blobs(path, where, manifest.blobs.values())
    except Corrupted as error:
        return error
    return None


def _logged(path: Path) -> tuple[int | None, int | None]:
    """Sequence numbers of the first row in the oldest non-empty log, and of the last row in the newest."""
    logs = sorted((log for log in path.glob("*.log") if log.stem.isdigit()), key=lambda log: int(log.stem))
    logs = [log for log in logs if log.stat().st_size]
    if not logs:
        return None, None
    with open_regular(logs[0]) as file:
        first = first_sequence(file.read(BLOCK))
    return first, last_sequence(_blocks_from_the_end(logs[-1]))


def _blocks_from_the_end(file: Path) -> Iterator[bytes]:
    with open_regular(file) as opened:
        for block in range((os.fstat(opened.fileno()).st_size - 1) // BLOCK, -1, -1):
            opened.seek(block * BLOCK)
            yield opened.read(BLOCK)


def _read_record(path: Path) -> _Record | None:
    """The record, without damaged lines; ``None`` if there is none, or it is of another database."""
    try:
        first, *more = read_regular(path / RECORD_FILE).splitlines()
        record, openings = _parse_line(first), [_parse_line(line) for line in more]
        if record is None or record["database"] != identity_of(path):
            return None
        sequences = frozenset(int(opening["opening"]) for opening in openings if opening is not None)
        return _Record(str(record["manifest"]), int(record["bytes"]), bool(record["rows_ahead"]), sequences)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _line(entry: Mapping[str, Any]) -> str:
    text = json.dumps(entry)
    return f"{crc32c(text.encode()):08x} {text}\n"


def _parse_line(line: bytes) -> dict[str, Any] | None:
    check, _, text = line.partition(b" ")
    if check != b"%08x" % crc32c(text):
        return None
    entry: dict[str, Any] = json.loads(text)
    return entry


def _append_opening(path: Path, sequence: int) -> None:
    """Append, so that a process that has it open loses nothing, that this library is about to open the database."""
    with suppress(OSError):
        with (path / RECORD_FILE).open("a") as file:
            file.write(_line({"opening": sequence}))


def _link_to_lost(path: Path, where: Path, files: tuple[Path, ...]) -> None:
    """Link files that RocksDB is about to delete into ``lost/``."""
    lost = where / LOST_DIRECTORY
    try:
        lost.mkdir(exist_ok=True)
        for file in files:
            with suppress(FileNotFoundError):  # deleted by the process that has the database open
                _link(file, lost)
        sync_file(lost)
    except OSError as error:
        raise translate(path, f"Keeping files without an entry in {LOST_DIRECTORY}/ of", error) from error


def _link(file: Path, lost: Path) -> None:
    """Link under an unused name: RocksDB reuses numbers that its MANIFEST no longer knows."""
    for number in count(1):
        target = lost / (file.name if number == 1 else f"{file.stem}-{number}{file.suffix}")
        try:
            if not target.exists():
                link_or_copy(file, target)
                return
        except FileExistsError:
            continue
        except OSError:
            target.unlink(missing_ok=True)  # a partial copy
            raise
        if target.samefile(file) or cmp(file, target, shallow=False):
            return


def _refusal(inspection: _DatabaseFiles, path: Path, where: Path, why: str) -> Corrupted:
    unnamed = _names(inspection.unlisted)
    there = f" SST files that it does not name still exist ({unnamed})." if unnamed else ""
    return Corrupted(
        f"{path} has lost a part of its {inspection.current}: it {why}.{there}{_outcome_of_opening(where)}",
        code="database-damaged",
        action="Rebuild the store from its changelog; nothing was changed.",
        store_path=str(path),
    )


def _refuse_unknown(path: Path, where: Path) -> None:
    """Refuse a database that RocksDB can open, but whose files this reader does not fully know."""
    try:
        content = current_manifest(where)[1]
    except (OSError, ValueError):
        return  # RocksDB says what is wrong
    try:
        parse_manifest(path, content)
    except Invalid:
        if _outcome_of_opening(where):
            raise


def _outcome_of_opening(path: Path) -> str:
    """Describe what RocksDB would read from it, for an error; empty if it could not open it."""
    shadow: ReadOnlyLinks | None = None
    try:
        shadow = ReadOnlyLinks(path)
        with OpenedFamilies(path, Path(shadow.name)) as opened:
            keys = {key for key, _ in opened.rows(OFFSETS_COLUMN_FAMILY)}
            rows = any(
                next(_rows(path, handle), None) is not None
                for name, handle in opened.handles.items()
                if name != OFFSETS_COLUMN_FAMILY
            )
    except Exception:  # only adds detail to an error that is raised anyway
        return ""
    finally:
        if shadow is not None:
            shadow.cleanup()
    has = {"rows": rows, "a status": STATUS_KEY in keys, "an offset": any(_is_offset(key) for key in keys)}
    with_, without = ([name for name, there in has.items() if there is wanted] for wanted in (True, False))
    phrases = [f"{word} {' and '.join(names)}" for word, names in (("with", with_), ("without", without)) if names]
    return f" RocksDB would open it {', '.join(phrases)}."


def _rows(path: Path, family: Any) -> Iterator[tuple[bytes, bytes | None]]:
    iterator = FamilyIterator(path, family)
    cursor = RocksDBCursor(iterator, None, None)
    try:
        while rows := cursor.chunk():
            yield from rows
    finally:
        iterator.close()


def _is_offset(key: bytes) -> bool:
    try:
        return partition_of_key(key) is not None
    except Corrupted:
        return False


def _names(files: tuple[Path, ...]) -> str:
    names = [file.name for file in files[:_NAMED]]
    return ", ".join([*names, f"{len(files) - _NAMED} more"] if len(files) > _NAMED else names)
