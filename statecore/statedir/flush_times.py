"""Detection of rows flushed after ``.checkpoint`` was written, from MANIFEST and file times.

3.9 and 4.2 flush all stores of a task and then write ``.checkpoint``: after a restore, at a close, and at-least-once at
commits. RocksDB also flushes by itself when its memory is full. A process that dies after that leaves rows newer than
``.checkpoint``. Under exactly-once they may belong to a transaction that was never committed, whose input is processed
again.

An SST file counts as late only if both clocks say so:

- **The MANIFEST** has the second in which a file was begun. A compaction begins a file and adds no row: its file counts
  as of the newest of its inputs, which the MANIFEST names too. A compaction begun by a close may end just after
  ``.checkpoint`` was written, so within that second it proves nothing.
- **The file system** has the modification time in nanoseconds, of the file and of ``.checkpoint``. A flush ends before
  ``.checkpoint`` is written, so a younger flushed file is late, even within one second. Where times have whole seconds
  (an archive has cut them), they are compared as such.

A clock that was set back makes older files seem late. So a file is not late if one with a greater number was flushed
before ``.checkpoint`` was written: RocksDB numbers flushes as they begin, and ``.checkpoint`` waits for all of them.

Hard links keep the times, and so do ``cp -a``, ``cp -p``, ``rsync -a`` and ``tar``. A copy without them proves nothing,
and is detectable: no file was written at the time that the MANIFEST has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from statecore.formats.releases import OFFSETS_COLUMN_FAMILY
from statecore.formats.rocksdb_log import LiveFile, read_manifest
from statecore.stores.rocksdb.directory import current_manifest

_SECOND = 1_000_000_000
_EARLIER_S, _LATER_S = 60, 600
"""Accepted difference between a file's time and the MANIFEST: clocks differ, and large files take long."""


@dataclass(frozen=True)
class Flushes:
    """Flushes of one or more databases.

    Attributes:
        late: files with rows flushed after ``.checkpoint`` was written → their time (ns).
        flushed: number of files with a flush time in the MANIFEST.
        unmodified: how many of these still have that time on disk; if none, none can be late.
    """

    late: Mapping[str, int]
    flushed: int = 0
    unmodified: int = 0


NOTHING_FLUSHED = Flushes({})


def read_flushes(databases: Iterable[Path], root: Path, checkpoint_ns: int) -> Flushes:
    late: dict[str, int] = {}
    flushed = unmodified = 0
    for database in databases:
        superseded = False  # by a flush that ended before .checkpoint was written
        for number, file in sorted(_files(database).items(), reverse=True):
            path = database / f"{number:06d}.sst"
            try:
                written_ns = path.stat().st_mtime_ns
            except OSError:  # RocksDB reports missing files
                continue
            superseded |= file.is_flushed and written_ns <= checkpoint_ns
            if not superseded and is_late(file, written_ns, checkpoint_ns):
                late[str(path.relative_to(root))] = written_ns
            if file.is_flushed and file.flushed_at:
                flushed += 1
                unmodified += -_EARLIER_S <= written_ns // _SECOND - file.flushed_at <= _LATER_S
    return Flushes(late, flushed, unmodified)


def is_late(file: LiveFile, written_ns: int, checkpoint_ns: int) -> bool:
    """Whether a file with this modification time has rows that were flushed after ``.checkpoint`` was written."""
    second = checkpoint_ns // _SECOND
    if checkpoint_ns % _SECOND == 0:
        written_ns -= written_ns % _SECOND
    if written_ns <= checkpoint_ns:
        return False
    flushed_at = min(file.flushed_at, written_ns // _SECOND)  # the host's clock may be ahead of its file server's
    return flushed_at > second or (file.is_flushed and flushed_at == second)


def format_time(time_ns: int) -> str:
    """A file's time in UTC, for messages."""
    return f"{datetime.fromtimestamp(time_ns // _SECOND, UTC):%Y-%m-%d %H:%M:%S}"


def _files(database: Path) -> Mapping[int, LiveFile]:
    """The SST files of data; empty if the MANIFEST is not readable, which other checks report."""
    try:
        files = read_manifest(current_manifest(database)[1]).files
    except (OSError, ValueError):
        return {}
    return {number: file for number, file in files.items() if file.family != OFFSETS_COLUMN_FAMILY}
