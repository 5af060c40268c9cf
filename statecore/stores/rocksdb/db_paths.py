"""Detects databases whose SST files are in other directories (``db_paths``, ``cf_paths``).

RocksDB does not write these options to its OPTIONS file. The only sign is a database that names files of which none
exists, and deleting them leaves the same. So this is only a suspicion, and callers must change nothing.
"""

from __future__ import annotations

from pathlib import Path

from statecore.formats.releases import OFFSETS_COLUMN_FAMILY
from statecore.formats.rocksdb_log import FilesElsewhere, read_manifest
from statecore.stores.rocksdb.directory import current_manifest

_FEWEST = 2
"""A single missing file, the only one of its family, is more likely lost."""


def files_elsewhere(database: Path) -> str:
    """Why the SST files of a database must be elsewhere, or were all deleted; empty if nothing suggests it or it is
    unreadable.
    """
    try:
        manifest = read_manifest(current_manifest(database)[1])
        present = {file.name for file in database.glob("*.sst")}
    except FilesElsewhere as error:
        return str(error)
    except (OSError, ValueError):
        return ""
    absent = [file for file in manifest.files.values() if file.name not in present]
    of_rows = [file for file in manifest.files.values() if file.family != OFFSETS_COLUMN_FAMILY]
    if not absent or not of_rows or any(file.name in present for file in of_rows):
        return ""
    everything = len(absent) == len(manifest.files) > len(of_rows)
    if not everything and len(of_rows) < _FEWEST:
        return ""
    what = "SST files" if everything else "SST files with rows"
    return (
        f"none of the {len(absent)} {what} that its MANIFEST names exists: the application keeps them in another "
        "directory (db_paths or cf_paths in its rocksdb.config.setter), or all of them were deleted"
    )
