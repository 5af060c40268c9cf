"""A database as it was at one moment, in a directory of its own, also while somebody writes to it.

What a MANIFEST names is of one moment: RocksDB makes files durable before it names them, never writes to one again, and
takes the edits of a group as one. Kafka Streams keeps no log, and flushes all column families of a database together
(``atomic_flush``), so what its MANIFEST names is rows, offset and status of its last flush. Here the MANIFEST is read
once, and every file of rows that it names (SST files, and blob files where the application has its values in such)
gets a second name; one that has gone meanwhile, as compactions take them away,
means that the MANIFEST is to be read again. What RocksDB appends to is copied. Nothing of the database is changed.

A writer may be faster than a MANIFEST is understood. So all files of rows that there are get their second names right
before and right after it is read, and those that it does not name lose them in the end. What was named once need not be
named again by another attempt, as long as the database is the same one.
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
from statecore.filesystem import DIRECTORY_MODE, link_or_copy
from statecore.formats.releases import OFFSETS_COLUMN_FAMILY
from statecore.formats.rocksdb_log import DATA_SUFFIXES, Manifest
from statecore.stores.rocksdb.db_paths import files_elsewhere
from statecore.stores.rocksdb.errors import STOP_THE_OTHER, not_readable_here, translate
from statecore.stores.rocksdb.files import check_blobs, understood

_ATTEMPTS = 40
_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.02, 0.5
"""Before the second attempt, which doubles with each, and at most: an attempt fails where this process was not given
the time that linking takes, and the next one may have it at once."""

_CURRENT, _IDENTITY = "CURRENT", "IDENTITY"


@dataclass(frozen=True)
class DatabaseCheckpoint:
    """A database at one moment.

    Attributes:
        source: the database.
        path: the directory that has its files.
        manifest: what its MANIFEST says.
        logs: whether it has rows in a log.
        begun: when the database was made, in seconds since the epoch; ``None`` where nothing tells it.
        flushed: when the newest of its files with offsets was made, likewise; ``None`` where there is none.
    """

    source: Path
    path: Path
    manifest: Manifest
    logs: bool
    begun: float | None
    flushed: float | None

    @property
    def is_empty(self) -> bool:
        """Whether it has nothing at all, not even a status: it was made, and nothing of it has reached a file."""
        return not self.manifest.files and not self.logs

    @property
    def data_files(self) -> tuple[Path, ...]:
        """Its SST files and blob files, by number."""
        return tuple(self.path / name for name in self.manifest.names)


class _Changed(Exception):
    """Somebody wrote to the database while its files were being named."""


def take_checkpoint(source: Path, target: Path, *, sleep: Callable[[float], None] = time.sleep) -> DatabaseCheckpoint:
    """Give the files of a database, as they are at one moment, a second name each in another directory.

    Args:
        source: the database; it may be open, by anybody.
        target: a directory that does not exist; on another file system files are copied.
        sleep: waits so many seconds before another attempt.

    Raises:
        NotFound: there is no database, or it has gone.
        Invalid: its MANIFEST is not understood, its files lie in another directory, or this user has no right to one.
        Corrupted: a blob file is not as long as its MANIFEST says.
        Fenced: a writer changes its files faster than they can be named.
        Capacity: no room.
    """
    named_of: str | None = None
    for attempt in range(_ATTEMPTS):
        try:
            identity = _identity(source)
            if attempt and identity != named_of:
                shutil.rmtree(target, ignore_errors=True)
            if not attempt or identity != named_of:
                target.mkdir(parents=True, mode=DIRECTORY_MODE)
                named_of = identity
            return _taken(source, target, identity)
        except (_Changed, FileNotFoundError) as error:
            if isinstance(error, FileNotFoundError) and not (source / _CURRENT).exists():
                shutil.rmtree(target, ignore_errors=True)
                raise NotFound(
                    f"There is no database at {source}, or it has gone meanwhile.",
                    code="database-not-found",
                    action="Look again.",
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
        "names are not there.",
        code="store-open",
        action=f"Look at it with statecore inspect. {STOP_THE_OTHER}",
        store_path=str(source),
    )


def _taken(source: Path, target: Path, identity: str | None) -> DatabaseCheckpoint:
    for file in target.iterdir():
        if file.suffix not in DATA_SUFFIXES:  # of an earlier attempt: its logs would be replayed
            file.unlink()
    _link_all(source, target)
    name = (source / _CURRENT).read_text().strip()
    logs = {file.name: file.stat().st_size for file in source.glob("*.log") if file.stat().st_size}
    content = (source / name).read_bytes()
    _link_all(source, target)
    manifest = understood(source, content)
    if manifest.group_left:
        raise _Changed
    _keep(source, target, set(manifest.names))
    check_blobs(source, target, manifest.blobs.values())
    if _identity(source) != identity:
        raise _Changed
    for file in _small(source):
        shutil.copyfile(file, target / file.name)
    for log in logs:
        shutil.copyfile(source / log, target / log)
    if logs:  # what is in them must not be in a file as well, nor missing
        now = {file.name: file.stat().st_size for file in source.glob("*.log") if file.stat().st_size}
        if now != logs or (source / name).stat().st_size != len(content):
            raise _Changed
    (target / name).write_bytes(content[: manifest.whole_bytes])
    (target / _CURRENT).write_text(f"{name}\n")
    return DatabaseCheckpoint(source, target, manifest, bool(logs), _begun(source), _flushed(target, manifest))


def _link_all(source: Path, target: Path) -> None:
    """Give all files of rows that there are a second name; none where they would have to be copied, which would cut one
    that is still being written.
    """
    with os.scandir(source) as entries:
        for entry in entries:
            if entry.name.endswith(DATA_SUFFIXES):
                with suppress(OSError):
                    os.link(entry.path, target / entry.name)


def _keep(source: Path, target: Path, named: Set[str]) -> None:
    """Have these files of rows in the target, and no others."""
    there = {file.name for file in target.iterdir() if file.suffix in DATA_SUFFIXES}
    for name in named - there:
        link_or_copy(source / name, target / name)
    for name in there - named:
        (target / name).unlink()


def _identity(source: Path) -> str | None:
    """The name that RocksDB gave to the database when it was made; another database has the same numbers of files."""
    try:
        return (source / _IDENTITY).read_text(errors="replace")
    except FileNotFoundError:
        return None


def named_files(path: Path) -> tuple[Path, ...]:
    """The files that make a closed database: what its MANIFEST names, what names that, and logs with something in them.

    In an order that is the same for the same names.

    Raises:
        Invalid: its MANIFEST is not understood, or this user has no right to it.
    """
    try:
        name = (path / _CURRENT).read_text().strip()
        manifest = understood(path, (path / name).read_bytes())
        files = [path / name for name in manifest.names]
        files += [path / _CURRENT, path / name, *_small(path)]
        files += [file for file in path.glob("*.log") if file.stat().st_size]
    except OSError as error:
        raise translate(path, "Looking into", error) from error
    return tuple(sorted(files))


def _small(path: Path) -> Iterator[Path]:
    """Who the database is, and its options as they were written last."""
    if (path / _IDENTITY).is_file():
        yield path / _IDENTITY
    options = [file for file in path.glob("OPTIONS-*") if file.suffix != ".dbtmp"]
    yield from sorted(options, key=lambda file: (len(file.name), file.name))[-1:]


def _begun(source: Path) -> float | None:
    try:
        return (source / _IDENTITY).stat().st_mtime
    except FileNotFoundError:
        return None


def _flushed(target: Path, manifest: Manifest) -> float | None:
    times = [
        (target / file.name).stat().st_mtime for file in manifest.files.values() if file.family == OFFSETS_COLUMN_FAMILY
    ]
    return max(times, default=None)
