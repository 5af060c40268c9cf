"""Whether rows were flushed after ``.checkpoint`` was written, by what RocksDB and the file system wrote down.

3.9 and 4.2 flush all stores of a task and write ``.checkpoint`` then: when the task is restored, at a close and, at
least-once, at commits. RocksDB flushes by itself as well, whenever its memory is full. A process that dies after that
leaves rows that ``.checkpoint`` does not speak of. Under exactly-once they may be of a transaction that was never
committed, and its input is processed again.

A file of rows counts as late only where both clocks say so:

- **The MANIFEST** has the second in which a file was begun. A compaction begins a file and adds no row: its file counts
  as of the newest that it was made of, which the MANIFEST names too. One that was begun by a close may end just after
  ``.checkpoint`` was written, so within that second it proves nothing.
- **The file system** has the time at which a file was written last, in nanoseconds, as it has of ``.checkpoint``. A
  flush ends before ``.checkpoint`` is written, so a flushed file that is younger is late, within one second too. Where
  times have whole seconds alone (an archive has cut them), they are compared so.

A clock that was set back makes older files seem late. So a file is not, where one with a greater number was flushed
before ``.checkpoint`` was written: RocksDB numbers flushes as they begin, and ``.checkpoint`` waits for all of them.

Hard links keep the times, and so do ``cp -a``, ``cp -p``, ``rsync -a`` and ``tar``. A copy without them proves nothing,
and that is to be seen: then no file was written when the MANIFEST says so.
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
"""How much a file's time may differ from what the MANIFEST says of it: clocks differ, and large files take long."""


@dataclass(frozen=True)
class Flushes:
    """What is known of the files of some databases.

    Attributes:
        late: files with rows that were flushed after ``.checkpoint`` was written, with the time (ns) of each.
        flushed: how many files can be asked about their times.
        kept: how many of these have the time at which they were flushed; where none has, none can be late.
    """

    late: Mapping[str, int]
    flushed: int = 0
    kept: int = 0


NOTHING_FLUSHED = Flushes({})


def flushes(databases: Iterable[Path], root: Path, checkpoint_ns: int) -> Flushes:
    """What was flushed of a store, or of several, since ``.checkpoint`` was written.

    Args:
        databases: their directories.
        root: of the task; files are named relative to it.
        checkpoint_ns: the modification time of ``.checkpoint``.
    """
    late: dict[str, int] = {}
    flushed = kept = 0
    for database in databases:
        followed = False  # by a flush that ended before .checkpoint was written
        for number, file in sorted(_files(database).items(), reverse=True):
            path = database / f"{number:06d}.sst"
            try:
                written_ns = path.stat().st_mtime_ns
            except OSError:  # RocksDB says what is missing
                continue
            followed |= file.is_flushed and written_ns <= checkpoint_ns
            if not followed and is_late(file, written_ns, checkpoint_ns):
                late[str(path.relative_to(root))] = written_ns
            if file.is_flushed and file.flushed_at:
                flushed += 1
                kept += -_EARLIER_S <= written_ns // _SECOND - file.flushed_at <= _LATER_S
    return Flushes(late, flushed, kept)


def is_late(file: LiveFile, written_ns: int, checkpoint_ns: int) -> bool:
    """Whether a file has rows that were flushed after ``.checkpoint`` was written.

    Args:
        file: what the MANIFEST says of it.
        written_ns: its modification time.
        checkpoint_ns: that of ``.checkpoint``.
    """
    second = checkpoint_ns // _SECOND
    if checkpoint_ns % _SECOND == 0:
        written_ns -= written_ns % _SECOND
    if written_ns <= checkpoint_ns:
        return False
    flushed_at = min(file.flushed_at, written_ns // _SECOND)  # a host whose clock is ahead of its file server's
    return flushed_at > second or (file.is_flushed and flushed_at == second)


def in_words(time_ns: int) -> str:
    """A file's time for a person, in UTC."""
    return f"{datetime.fromtimestamp(time_ns // _SECOND, UTC):%Y-%m-%d %H:%M:%S}"


def _files(database: Path) -> Mapping[int, LiveFile]:
    """The files of rows; none where the MANIFEST is not understood, which others say."""
    try:
        files = read_manifest(current_manifest(database)[1]).files
    except (OSError, ValueError):
        return {}
    return {number: file for number, file in files.items() if file.family != OFFSETS_COLUMN_FAMILY}
