"""Databases whose creation was interrupted by a kill: no row was ever put into one, so it counts as not there.

What a kill leaves depends on how far the creation had come. RocksDB writes ``CURRENT``, then ``OPTIONS``. This library
creates all column families with the database. Kafka Streams opens it with ``default`` alone, which writes an
``OPTIONS`` that names only that, adds the others one by one to the MANIFEST (``offsets`` last), and has them named by
another ``OPTIONS`` when all are there.

- **No** ``OPTIONS``, or one that lacks a family that there is: the creation was not finished, by whatever release.
- **Only** ``default``: the same, or a finished store of plain rows of Kafka Streams 4.2 or older. The family of its
  kind tells where that is known, else a database beside it: where one has ``offsets``, 4.3 or later is at work.

One that has ``offsets`` and the family of its rows is finished, though nothing was flushed: it may have had rows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path

from statecore.formats.releases import DEFAULT_COLUMN_FAMILY, OFFSETS_COLUMN_FAMILY
from statecore.formats.rocksdb_log import DATA_SUFFIXES, read_manifest
from statecore.stores.rocksdb_options_file import families_in, newest_options
from statecore.stores.rocksdb_ownership import writer_of


def is_unfinished_creation(database: Path, data_family: str = "", beside: Iterable[Path] = ()) -> bool:
    """Whether the creation of a database was interrupted, and no process goes on with it.

    Args:
        database: its directory, with ``CURRENT``.
        data_family: the column family of the rows of its kind; empty where that is not known.
        beside: other databases of the application, in which ``offsets`` is looked for where nothing else decides.
    """
    families = families_of(database) if holds_nothing(database) else frozenset()
    if not families or writer_of(database) is not None:
        return False
    if creation_ended_early(database, families, data_family):
        return OFFSETS_COLUMN_FAMILY not in families or data_family not in {"", *families}
    if OFFSETS_COLUMN_FAMILY in families or not _named(database) <= families:
        return False
    return any(OFFSETS_COLUMN_FAMILY in families_of(one) for one in beside)


def creation_ended_early(database: Path, families: Collection[str], data_family: str = "") -> bool:
    """Whether a database's own files say that it was not created to the end; never where it has rows.

    Args:
        database: its directory, or one of links to its files.
        families: its column families.
        data_family: that of the rows of its kind; empty where the kind is not known.
    """
    named = _named(database)
    if not named <= set(families) or not holds_nothing(database):
        return False  # one that is named and not there was lost with the end of the MANIFEST
    return named != set(families) or (data_family not in {"", *families} and named == {DEFAULT_COLUMN_FAMILY})


def holds_nothing(database: Path) -> bool:
    """Whether a database has neither files of rows nor anything in its log."""
    try:
        return not any(
            file.suffix in DATA_SUFFIXES or (file.suffix == ".log" and file.stat().st_size)
            for file in database.iterdir()
        )
    except OSError:
        return False


def families_of(database: Path) -> frozenset[str]:
    """The column families that the MANIFEST of a database names; none where it cannot be read."""
    try:
        current = (database / "CURRENT").read_text().strip()
        return read_manifest((database / current).read_bytes()).families
    except (OSError, ValueError):
        return frozenset()


def _named(database: Path) -> frozenset[str]:
    """The column families that the newest ``OPTIONS`` of a database names; none where there is none."""
    try:
        return families_in(newest_options(database))
    except OSError:
        return frozenset()
