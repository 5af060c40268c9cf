"""Whether a database's MANIFEST is whole, found out before RocksDB opens it: afterwards it would be too late.

RocksDB takes a MANIFEST that ends early for one that says less. It opens, without a word, with some files missing, and
deletes the SST files that the MANIFEST does not name. But such a file is no damage by itself: every second kill in a
flush or a compaction leaves one. So a database is refused only when there is a second witness:

- **A record** beside the database, ``statecore-witness``: this MANIFEST was at least so long when the store was opened,
  flushed or closed. Whoever opens a database for writing makes a new MANIFEST, with another number; so a record of
  before Kafka Streams wrote to the store says nothing, and refuses nothing. Nor does one whose checksum is wrong, or
  that is of another database (its ``IDENTITY``): each of its lines is a CRC-32C and what it is of.
- **The log**: what the MANIFEST does not have in files must be in the log, without a gap. RocksDB deletes a log only
  after the MANIFEST names the files of its rows.

Both only ever say less than they could: the record may be missing or old. Commits write none, so they cost nothing.

Where nobody can tell (no record of this MANIFEST), files of rows that it does not name get a second name in ``lost/``,
where RocksDB's own repair puts such files, before RocksDB deletes the first one; a database whose files cannot get
one is not opened for writing. RocksDB and Kafka Streams look at neither.

The record also tells whose rows these are. A commit of this library writes rows and offset at once, so after a kill
they agree, whatever ``status`` says. Of a store that Kafka Streams wrote to last nobody can know that.
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
from statecore.filesystem import link_or_copy, sync_file
from statecore.formats.offsets import STATUS_CLOSED, STATUS_KEY, partition_of_key
from statecore.formats.releases import OFFSETS_COLUMN_FAMILY
from statecore.formats.rocksdb_log import BLOCK, Manifest, first_sequence, last_sequence, read_manifest
from statecore.stores.rocksdb.directory import current_manifest, data_files_in
from statecore.stores.rocksdb.errors import translate
from statecore.stores.rocksdb.files import check_blobs, understood
from statecore.stores.rocksdb.reading import OpenedFamilies
from statecore.stores.rocksdb.readonly_links import Shadow
from statecore.stores.rocksdb.scan import FamilyIterator, RocksDBCursor

WITNESS_FILE = "statecore-witness"
"""In a database's directory: what this library knows of its MANIFEST. Anybody may delete it."""

LOST_DIRECTORY = "lost"
"""In a database's directory: SST files that its MANIFEST did not name."""

_ATTEMPTS = 5
_NAMED = 5
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Record:
    """What was written down.

    Attributes:
        manifest: the MANIFEST's name.
        bytes: how long it was at least.
        rows_ahead: whether rows may be ahead of the offset.
        openings: last sequence numbers with which this library set out to open the database; each opening makes a new
            MANIFEST, and one that was killed had no time to say so.
    """

    manifest: str
    bytes: int
    rows_ahead: bool
    openings: frozenset[int]


@dataclass(frozen=True)
class _Sight:
    """What was seen of a closed database.

    Attributes:
        current: the MANIFEST's name.
        manifest: what it says.
        unnamed: files of rows that it does not name.
        first_logged: sequence number of the first row in the oldest log, if there is any.
        last_logged: that of the last row in the newest.
        record: what was written down, if it was.
        damaged_blob: what is wrong with a blob file, if anything is.
    """

    current: str
    manifest: Manifest
    unnamed: tuple[Path, ...]
    first_logged: int | None
    last_logged: int | None
    record: _Record | None
    damaged_blob: Corrupted | None = None

    @property
    def last_sequence(self) -> int:
        return max(self.manifest.last_sequence, self.last_logged or 0)

    @property
    def witnessed(self) -> bool:
        return self.record is not None and self.record.manifest == self.current

    @property
    def written_here_last(self) -> bool:
        return self.witnessed or (self.record is not None and self.last_sequence in self.record.openings)


@dataclass
class ManifestGuard:
    """Of one database, from before it is opened until it is closed.

    Attributes:
        path: the database's directory, as messages name it.
        where: where it is.
        records: whether anything is written down.
    """

    path: Path
    where: Path
    records: bool = True
    _sight: _Sight | None = field(default=None, init=False)
    _rows_ahead: bool = field(default=False, init=False)
    _goes_at_close: bool = field(default=False, init=False)
    _on_disk: str | None = field(default=None, init=False)

    def look(self, *, read_only: bool) -> None:
        """Look at the files of a database that is about to be opened; to be opened for writing, keep what would go.

        Raises:
            Corrupted: its MANIFEST does not say all that it said, or a blob file is missing or was cut.
            Invalid: it is to be written to, and has a MANIFEST that RocksDB understands and this reader does not.
            Capacity, Invalid, Retryable: files that would go could not be kept.
        """
        self._sight = sight = _look(self.path, self.where)
        if sight is None:
            if not read_only:
                _refuse_unknown(self.path, self.where)
            return
        record, manifest = sight.record, sight.manifest
        if sight.damaged_blob is not None:
            raise sight.damaged_blob
        if record is not None and sight.witnessed and manifest.whole_bytes < record.bytes:
            raise _refusal(
                sight,
                self.path,
                self.where,
                f"ends at byte {manifest.whole_bytes}, and was {record.bytes} bytes long when the"
                " store was last opened, flushed or closed",
            )
        if sight.first_logged is not None and sight.first_logged > manifest.last_sequence + 1:
            raise _refusal(
                sight,
                self.path,
                self.where,
                f"knows rows up to sequence number {manifest.last_sequence}, and the log begins at"
                f" {sight.first_logged}; those between are in files that it does not name",
            )
        if read_only:
            return
        if sight.written_here_last:
            _note_opening(self.where, sight.last_sequence)
        if sight.unnamed and not sight.written_here_last:
            _keep(self.path, self.where, sight.unnamed)

    def opened(self, families: Mapping[str, Any], data_family: str, sequence: int) -> None:
        """Say in the log what is missing of a database that was opened, before anything is written to it.

        Args:
            families: its column families, open.
            data_family: the name of the one that has the rows.
            sequence: its latest sequence number.
        """
        if self._sight is None:
            return
        offsets = families.get(OFFSETS_COLUMN_FAMILY)
        entries = {} if offsets is None else {key: value or b"" for key, value in _rows(self.path, offsets)}
        at = {key.decode(): int.from_bytes(entries[key], "big", signed=True) for key in entries if _is_offset(key)}
        status = entries.get(STATUS_KEY)
        closed = status is None or int.from_bytes(status, "big") == STATUS_CLOSED
        self._rows_ahead = not closed and not self.whole
        damaged = sequence < (self._sight.last_logged or 0)
        if damaged:
            _log.warning(
                "The log of %s is damaged: it had commits up to sequence number %d, and could be read up to %d. The "
                "store stands at an earlier commit, whole; its offset (%s) says from where to apply the changelog.",
                self.path,
                self._sight.last_logged,
                sequence,
                at or "none",
            )
        lacking = [name for name, has in (("status", status is not None), ("offset", bool(at))) if not has]
        sound = not lacking and not damaged  # what the log has lost may be in the files that were kept
        if not self._sight.written_here_last and self._sight.unnamed:
            self._goes_at_close = sound
            _log.warning(
                "%s had %d files of rows that its MANIFEST does not name (%s), as a kill in a flush or a compaction "
                "leaves them, or the loss of a part of the MANIFEST; they are kept in %s/%s%s.",
                self.path,
                len(self._sight.unnamed),
                _names(self._sight.unnamed),
                self.path,
                LOST_DIRECTORY,
                " until the store is closed" if sound else "; delete them when the store has what it should have",
            )
        if lacking and next(_rows(self.path, families[data_family]), None) is not None:
            _log.log(
                logging.WARNING if self._sight.unnamed else logging.INFO,
                "%s has rows, and no %s.",
                self.path,
                " and no ".join(lacking),
            )

    @property
    def whole(self) -> bool:
        """Whether rows and offset are known to agree, closed cleanly or not.

        This library wrote to the database last, and had not ingested files without a commit.
        """
        sight = self._sight
        return (
            sight is not None and sight.record is not None and sight.written_here_last and not sight.record.rows_ahead
        )

    @property
    def written_here_last(self) -> bool:
        """Whether this library is known to have written to the database last, whatever it left."""
        return self._sight is not None and self._sight.record is not None and self._sight.written_here_last

    @property
    def doubt(self) -> tuple[str, str]:
        """Why rows and offset of a store that is not :attr:`whole` may disagree, and what to do, for an error.

        Without a record nobody can know: a flush leaves the files that Kafka Streams leaves, and no log.
        """
        sight = self._sight
        if sight is None or sight.record is None:
            return (
                f"there is no {WITNESS_FILE} of it, which says who wrote to it last",
                "Where it was copied from a directory in which this library had it, copy it again, with every file of "
                "the directory; else rebuild the store from its changelog.",
            )
        why = (
            "something else than this library wrote to it last"
            if not sight.written_here_last
            else "files were ingested into it, and no commit followed"
        )
        return why, "Rebuild the store from its changelog."

    def record(self, *, rows_ahead: bool, durably: bool = False) -> None:
        """Write down how long the MANIFEST of the open database is. What fails here makes a weaker witness, no error.

        The first record of a MANIFEST is forced to the disk, because without it a store that lost power would not be
        known to be whole; but not that of a fresh database, which is forced to the disk as one when it is closed.

        Args:
            rows_ahead: whether rows may be ahead of the offset, so that the store is not whole after a kill.
            durably: force it to the disk, and fail where that fails: nobody may forget it.

        Raises:
            Capacity, Invalid, Retryable: it had to be durable, and the system did not take it.
        """
        if not self.records:
            return
        try:
            current = (self.where / "CURRENT").read_text().strip()
            said = {
                "database": _identity(self.where),
                "manifest": current,
                "bytes": (self.where / current).stat().st_size,
                "rows_ahead": rows_ahead or self._rows_ahead,
            }
            partial = self.where / f"{WITNESS_FILE}.tmp"
            try:
                partial.write_text(_line(said))
                synced = durably or (self._sight is not None and self._on_disk != current)
                if synced:
                    sync_file(partial)
                partial.replace(self.where / WITNESS_FILE)
                if synced:
                    sync_file(self.where)
                    self._on_disk = current
            except BaseException:
                partial.unlink(missing_ok=True)
                raise
        except OSError as error:
            if durably:
                raise translate(self.path, "Noting an ingest beside", error) from error

    def closed(self) -> None:
        """The database was closed cleanly: files that were kept, and are not missed, go."""
        if self._goes_at_close:
            shutil.rmtree(self.where / LOST_DIRECTORY, ignore_errors=True)
            self._goes_at_close = False


def lost_files(path: Path) -> tuple[str, ...]:
    """The names of the files that are kept in a database's ``lost/``, in order."""
    try:
        return tuple(sorted(file.name for file in (path / LOST_DIRECTORY).iterdir()))
    except OSError:
        return ()


def forget_manifest_guard(path: Path) -> None:
    """Leave nothing of this library's own in a database's directory: it is handed to Kafka Streams."""
    (path / WITNESS_FILE).unlink(missing_ok=True)


def _look(path: Path, where: Path) -> _Sight | None:
    """What there is to see; ``None`` where it is not understood: RocksDB will say what is wrong.

    Another process may have the database open, so it is looked at until nothing changed meanwhile.
    """
    for _ in range(_ATTEMPTS):
        try:
            record = _read_record(where)  # first: a MANIFEST that is read later can only be longer
            current = (where / "CURRENT").read_text().strip()
            data = (where / current).read_bytes()
            first, last = _logged(where)
            files = [where / name for name in data_files_in(where) if Path(name).stem.isdigit()]
            manifest = read_manifest(data)
            damaged = _damaged_blob(path, where, manifest)
            if (where / current).stat().st_size != len(data) or (where / "CURRENT").read_text().strip() != current:
                continue
        except FileNotFoundError:
            continue
        except (OSError, ValueError):
            return None
        named = frozenset(manifest.names)
        unnamed = tuple(sorted(file for file in files if file.name not in named))
        return _Sight(current, manifest, unnamed, first, last, record, damaged)
    return None


def _damaged_blob(path: Path, where: Path, manifest: Manifest) -> Corrupted | None:
    try:
        check_blobs(path, where, manifest.blobs.values())
    except Corrupted as error:
        return error
    return None


def _logged(path: Path) -> tuple[int | None, int | None]:
    """The sequence numbers of the first row in the oldest log that has any, and of the last row in the newest."""
    logs = sorted((log for log in path.glob("*.log") if log.stem.isdigit()), key=lambda log: int(log.stem))
    logs = [log for log in logs if log.stat().st_size]
    if not logs:
        return None, None
    with logs[0].open("rb") as file:
        first = first_sequence(file.read(BLOCK))
    return first, last_sequence(_blocks_from_the_end(logs[-1]))


def _blocks_from_the_end(file: Path) -> Iterator[bytes]:
    with file.open("rb") as opened:
        for block in range((os.fstat(opened.fileno()).st_size - 1) // BLOCK, -1, -1):
            opened.seek(block * BLOCK)
            yield opened.read(BLOCK)


def _read_record(path: Path) -> _Record | None:
    """What was written down; ``None`` when there is nothing, nothing that is understood, or it is of another database.

    A line that is damaged, as a kill or a loss of power leaves it, says nothing.
    """
    try:
        first, *more = (path / WITNESS_FILE).read_bytes().splitlines()
        said, openings = _said(first), [_said(line) for line in more]
        if said is None or said["database"] != _identity(path):
            return None
        sequences = frozenset(int(opening["opening"]) for opening in openings if opening is not None)
        return _Record(str(said["manifest"]), int(said["bytes"]), bool(said["rows_ahead"]), sequences)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _line(said: Mapping[str, Any]) -> str:
    text = json.dumps(said)
    return f"{crc32c(text.encode()):08x} {text}\n"


def _said(line: bytes) -> dict[str, Any] | None:
    check, _, text = line.partition(b" ")
    if check != b"%08x" % crc32c(text):
        return None
    said: dict[str, Any] = json.loads(text)
    return said


def _identity(path: Path) -> str:
    """What RocksDB called the database when it was made; copies have the same."""
    try:
        return (path / "IDENTITY").read_text(errors="replace").strip()
    except FileNotFoundError:
        return ""


def _note_opening(path: Path, sequence: int) -> None:
    """Say in the record that this library sets out to open the database: its MANIFEST is about to change.

    Added, so that who has the database open all the same loses nothing of what it wrote down.
    """
    with suppress(OSError):
        with (path / WITNESS_FILE).open("a") as file:
            file.write(_line({"opening": sequence}))


def _keep(path: Path, where: Path, files: tuple[Path, ...]) -> None:
    """Give files of rows that RocksDB is about to delete a second name.

    Raises:
        Capacity, Invalid, Retryable: one could not be given, so the database must not be opened for writing.
    """
    lost = where / LOST_DIRECTORY
    try:
        lost.mkdir(exist_ok=True)
        for file in files:
            with suppress(FileNotFoundError):  # who has the database open has deleted it
                _link(file, lost)
        sync_file(lost)
    except OSError as error:
        raise translate(path, f"Keeping files without an entry in {LOST_DIRECTORY}/ of", error) from error


def _link(file: Path, lost: Path) -> None:
    """Under a name of its own: RocksDB gives a number again that its MANIFEST does not know any more."""
    for number in count(1):
        target = lost / (file.name if number == 1 else f"{file.stem}-{number}{file.suffix}")
        try:
            if not target.exists():
                link_or_copy(file, target)
                return
        except FileExistsError:
            continue
        except OSError:
            target.unlink(missing_ok=True)  # a part of a copy
            raise
        if target.samefile(file) or cmp(file, target, shallow=False):
            return


def _refusal(sight: _Sight, path: Path, where: Path, why: str) -> Corrupted:
    there = f" Files of rows that it does not name are still there ({_names(sight.unnamed)})." if sight.unnamed else ""
    return Corrupted(
        f"{path} has lost a part of its {sight.current}: it {why}.{there}{_as_it_would_open(where)}",
        code="database-damaged",
        action="Rebuild the store from its changelog; nothing was changed.",
        store_path=str(path),
    )


def _refuse_unknown(path: Path, where: Path) -> None:
    """Refuse a database that RocksDB can open and that this reader does not know all files of.

    Raises:
        Invalid: it is one.
    """
    try:
        content = current_manifest(where)[1]
    except (OSError, ValueError):
        return  # RocksDB says what is wrong
    try:
        understood(path, content)
    except Invalid:
        if _as_it_would_open(where):
            raise


def _as_it_would_open(path: Path) -> str:
    """What RocksDB would make of it, in words; empty when it could not open it."""
    shadow: Shadow | None = None
    try:
        shadow = Shadow(path)
        with OpenedFamilies(path, Path(shadow.name)) as opened:
            keys = {key for key, _ in opened.rows(OFFSETS_COLUMN_FAMILY)}
            rows = any(
                next(_rows(path, handle), None) is not None
                for name, handle in opened.handles.items()
                if name != OFFSETS_COLUMN_FAMILY
            )
    except Exception:  # it is only a word more in an error that is raised anyway
        return ""
    finally:
        if shadow is not None:
            shadow.cleanup()
    has = {"rows": rows, "a status": STATUS_KEY in keys, "an offset": any(_is_offset(key) for key in keys)}
    with_, without = ([name for name, there in has.items() if there is wanted] for wanted in (True, False))
    said = [f"{word} {' and '.join(names)}" for word, names in (("with", with_), ("without", without)) if names]
    return f" RocksDB would open it {', '.join(said)}."


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
