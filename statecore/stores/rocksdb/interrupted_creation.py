"""Detects databases whose creation was interrupted by a kill: they never had a row, so they count as missing.

What is left depends on the progress of the creation. RocksDB writes ``CURRENT``, then ``OPTIONS``. This library creates
all column families with the database. Kafka Streams opens it with ``default`` alone, which writes an ``OPTIONS`` that
names only that family, adds the others one by one to the MANIFEST (``offsets`` last), and then writes another
``OPTIONS`` that names all.

- **No** ``OPTIONS``, or one that lacks an existing family: the creation was not finished, in any release.
- **Neither**, and no ``offsets``: it may be of Kafka Streams 4.2 or older. If another database has ``offsets``, 4.3 or
  later is in use, which adds it to each database that it creates. The caller names the databases to compare with: an
  application may use 4.3 in one task and 4.2 in another.

A database with ``offsets`` is complete, though nothing was flushed: it may have had rows. The very first database of an
application may look like an empty store of 4.2, and is taken for one.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from pathlib import Path

from statecore.formats.releases import FAMILIES, OFFSETS_COLUMN_FAMILY
from statecore.formats.rocksdb_log import DATA_SUFFIXES, Manifest, read_manifest
from statecore.stores.rocksdb.directory_lock import writer_of
from statecore.stores.rocksdb.options_file import families_in, newest_options


def is_unfinished_creation(database: Path, beside: Iterable[Path] = ()) -> bool:
    """Whether the creation of a database was interrupted, and no process continues it."""
    families = families_of(database) if is_empty(database) else frozenset()
    if not families or not families <= FAMILIES - {OFFSETS_COLUMN_FAMILY} or writer_of(database) is not None:
        return False
    if creation_ended_early(database, families):
        return True
    # A family in OPTIONS that is missing was lost with the end of the MANIFEST.
    return _named(database) <= families and any(OFFSETS_COLUMN_FAMILY in families_of(one) for one in beside)


def creation_ended_early(database: Path, families: Set[str]) -> bool:
    """Whether a database's own files show an interrupted creation; false if it has rows."""
    return _named(database) < families and is_empty(database)


def is_empty(database: Path) -> bool:
    """Whether a database has neither data files nor log content, and its MANIFEST names no data file.

    Files that it names and that are missing are in other directories (``db_paths``), or were lost.
    """
    try:
        has_files = any(
            file.suffix in DATA_SUFFIXES or (file.suffix == ".log" and file.stat().st_size)
            for file in database.iterdir()
        )
        return not has_files and not _manifest_of(database).names
    except (OSError, ValueError):
        return False


def families_of(database: Path) -> frozenset[str]:
    """The column families that the MANIFEST of a database names; empty if it cannot be read."""
    try:
        return _manifest_of(database).families
    except (OSError, ValueError):
        return frozenset()


def _manifest_of(database: Path) -> Manifest:
    current = (database / "CURRENT").read_text().strip()
    return read_manifest((database / current).read_bytes())


def _named(database: Path) -> frozenset[str]:
    """The column families that the newest ``OPTIONS`` of a database names; empty if there is none."""
    try:
        return families_in(newest_options(database))
    except OSError:
        return frozenset()
