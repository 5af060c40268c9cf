"""RocksDB checkpoint: a consistent copy of a database by hard links, also while a process writes to it.

The files that a MANIFEST names form a consistent state: RocksDB makes files durable before it names them, never
modifies them again, and applies the edits of a group atomically. Kafka Streams writes no log and flushes all column
families together (``atomic_flush``), so its MANIFEST names rows, offset and status of the last flush. The MANIFEST is
read once, and every SST and blob file that it names is linked; if a compaction has deleted one meanwhile, the MANIFEST
is read again. Files that RocksDB appends to are copied. The database is not changed.

A writer may be faster than a MANIFEST is parsed. So all data files are linked right before and right after it is read,
and the unnamed ones are unlinked in the end. Further attempts reuse the links as long as the database is the same.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator, Set
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from statecore.errors import Fenced, NotFound, StatecoreError
from statecore.filesystem import DIRECTORY_MODE, link_or_copy, read_regular
from statecore.formats.releases import OFFSETS_COLUMN_FAMILY
from statecore.formats.rocksdb_log import DATA_SUFFIXES, Manifest
from statecore.stores.rocksdb.directory import current_manifest, current_name, identity_of
from statecore.stores.rocksdb.errors import STOP_THE_OTHER, not_readable_here, translate
from statecore.stores.rocksdb.files import check_blobs, files_elsewhere, parse_manifest

_ATTEMPTS = 40
# Before the second attempt; doubles with each, up to the longest. An attempt fails if this process was not scheduled
# for the time that linking takes; the next one may be.
_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.02, 0.5


_CURRENT, _IDENTITY = "CURRENT", "IDENTITY"


@dataclass(frozen=True)
class DatabaseCheckpoint:
    """A RocksDB checkpoint: a copy of a database at one point in time."""

    source: Path
    path: Path
    manifest: Manifest
    logs: bool  # whether it has rows in a log
    created_at: float | None  # when the database was created, in seconds since the epoch; None if unknown
    flushed_at: float | None  # when its newest file with offsets was written, likewise; None if there is none

    @property
    def is_empty(self) -> bool:
        """Whether it has neither rows nor a status: it was created, and nothing of it has reached a file."""
        return not self.manifest.files and not self.logs

    @property
    def data_files(self) -> tuple[Path, ...]:
        """Its SST and blob files, by number."""
        return tuple(self.path / name for name in self.manifest.names)


class _Changed(Exception):
    """A process wrote to the database while its files were being linked."""


def take_checkpoint(source: Path, target: Path, *, sleep: Callable[[float], None] = time.sleep) -> DatabaseCheckpoint:
    """Link the files of a database, as of one point in time, into another directory."""
    linked_identity: str | None = None
    for attempt in range(_ATTEMPTS):
        try:
            identity = identity_of(source)  # Another database may use the same file numbers
            if attempt and identity != linked_identity:
                shutil.rmtree(target, ignore_errors=True)
            if not attempt or identity != linked_identity:
                target.mkdir(parents=True, mode=DIRECTORY_MODE)
                linked_identity = identity
            return _attempt(source, target, identity)
        except (_Changed, FileNotFoundError) as error:
            if isinstance(error, FileNotFoundError) and not (source / _CURRENT).exists():
                shutil.rmtree(target, ignore_errors=True)
                raise NotFound(
                    f"There is no database at {source}, or it was removed meanwhile.",
                    code="database-not-found",
                    action="Check whether the database exists, then run this again.",
                    store_path=str(source),
                ) from error
        except OSError as error:
            shutil.rmtree(target, ignore_errors=True)
            raise translate(source, "Linking", error) from error
        except StatecoreError:
            shutil.rmtree(target, ignore_errors=True)
            raise
        sleep(min(_PAUSE_SECONDS * 2**attempt, _LONGEST_PAUSE_SECONDS))
    shutil.rmtree(target, ignore_errors=True)
    if why := files_elsewhere(source):
        raise not_readable_here(f"{source} cannot be copied: {why}.", source)
    raise Fenced(
        f"The files of the database at {source} change faster than they can be linked, or files that its MANIFEST "
        "names are missing.",
        code="store-open",
        action=f"Run statecore inspect. {STOP_THE_OTHER}",
        store_path=str(source),
    )


def _attempt(source: Path, target: Path, identity: str) -> DatabaseCheckpoint:
    for file in target.iterdir():
        if file.suffix not in DATA_SUFFIXES:  # of an earlier attempt: its logs would be replayed
            file.unlink()
    _link_all(source, target)
    name = current_name(source)
    logs = _logs_with_rows(source)
    content = read_regular(source / name)
    _link_all(source, target)
    manifest = parse_manifest(source, content)
    if manifest.missing_edits:
        raise _Changed
    _link_exactly(source, target, set(manifest.names))
    check_blobs(source, target, manifest.blobs.values())
    if identity_of(source) != identity:
        raise _Changed
    for file in _small_files(source):
        shutil.copyfile(file, target / file.name)
    for log in logs:
        shutil.copyfile(source / log, target / log)
    # Rows in the log must not be in an SST file too, nor missing.
    if logs and (_logs_with_rows(source) != logs or (source / name).stat().st_size != len(content)):
        raise _Changed
    (target / name).write_bytes(content[: manifest.valid_bytes])
    (target / _CURRENT).write_text(f"{name}\n")
    return DatabaseCheckpoint(source, target, manifest, bool(logs), _created_at(source), _flushed_at(target, manifest))


def _logs_with_rows(database: Path) -> dict[str, int]:
    """Sizes of the logs that are not empty."""
    return {file.name: size for file in database.glob("*.log") if (size := file.stat().st_size)}


def _link_all(source: Path, target: Path) -> None:
    """Link all data files; never copy, which would truncate one that is still being written."""
    with os.scandir(source) as entries:
        for entry in entries:
            if entry.name.endswith(DATA_SUFFIXES):
                with suppress(OSError):
                    os.link(entry.path, target / entry.name)


def _link_exactly(source: Path, target: Path, named: Set[str]) -> None:
    """Make the target contain these data files, and no others."""
    there = {file.name for file in target.iterdir() if file.suffix in DATA_SUFFIXES}
    for name in named - there:
        link_or_copy(source / name, target / name)
    for name in there - named:
        (target / name).unlink()


def named_files(path: Path) -> tuple[Path, ...]:
    """The MANIFEST of a closed database, the files that it names, ``CURRENT``, and non-empty logs; sorted."""
    try:
        name, content = current_manifest(path)
        manifest = parse_manifest(path, content)
        files = [path / name for name in manifest.names]
        files += [path / _CURRENT, path / name, *_small_files(path)]
        files += [file for file in path.glob("*.log") if file.stat().st_size]
    except OSError as error:
        raise translate(path, "Reading", error) from error
    return tuple(sorted(files))


def _small_files(path: Path) -> Iterator[Path]:
    if (path / _IDENTITY).is_file():
        yield path / _IDENTITY
    options = [file for file in path.glob("OPTIONS-*") if file.suffix != ".dbtmp"]
    yield from sorted(options, key=lambda file: (len(file.name), file.name))[-1:]


def _created_at(source: Path) -> float | None:
    try:
        return (source / _IDENTITY).stat().st_mtime
    except FileNotFoundError:
        return None


def _flushed_at(target: Path, manifest: Manifest) -> float | None:
    times = [
        (target / file.name).stat().st_mtime for file in manifest.files.values() if file.family == OFFSETS_COLUMN_FAMILY
    ]
    return max(times, default=None)
