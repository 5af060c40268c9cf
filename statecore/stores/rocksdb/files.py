"""Files of a closed database by column family, from its MANIFEST and the SST footers, without opening it.

A block-based table ends in a footer whose last eight bytes, the magic number, determine its layout
(``table/format.h``); numbers are little-endian::

    magic number          where                  format version
    88e241b785f4cff7      the last 53 bytes      from 1 on; four bytes right before the magic number
    db4775248b80fb57      the last 48 bytes      0: the footer has no version field

    1 to 5   checksum type 1 | handles of two blocks, varints, zeros up to 40   | version 4 | magic 8
    from 6   checksum type 1 | 3e007a00, checksum 4, base 4, size 4, zeros to 40 | version 4 | magic 8

RocksDB 7.9.2 (Kafka Streams 3.9) reads format versions up to 5, RocksDB 8.6 and newer up to 6
(:mod:`statecore.formats.releases`).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from pathlib import Path

from statecore.errors import Corrupted, Invalid
from statecore.filesystem import open_regular
from statecore.formats.releases import OFFSETS_COLUMN_FAMILY, PLAIN_PARENT
from statecore.formats.rocksdb_log import BlobFile, DamagedRecord, FilesElsewhere, LiveFile, Manifest, read_manifest
from statecore.stores.rocksdb.directory import current_manifest
from statecore.stores.rocksdb.errors import not_readable_here, translate

FOOTER_BYTES = 53  # Bytes at the end of a file that hold its version
_MAGIC = 0x88E241B785F4CFF7
_LEGACY_MAGIC = 0xDB4775248B80FB57
_LEGACY_BYTES = 48
_END = struct.Struct("<IQ")


def parse_manifest(path: Path, content: bytes) -> Manifest:
    """Parse the MANIFEST of a database."""
    try:
        return read_manifest(content)
    except FilesElsewhere as error:
        raise not_readable_here(f"The database at {path} cannot be read: {error}", path) from error
    except DamagedRecord as error:
        raise Corrupted(
            f"The MANIFEST of the database at {path} is damaged: {error}.",
            code="database-damaged",
            action="Rebuild the store from its changelog.",
            store_path=str(path),
        ) from error
    except ValueError as error:
        raise Invalid(
            f"The MANIFEST of the database at {path} is not understood ({error}), so it is not known which files the "
            "database is made of.",
            code="manifest-unsupported",
            action="Nothing was changed. If the application sets this with rocksdb.config.setter, let Kafka Streams "
            "restore the store; if the MANIFEST is damaged (statecore doctor), restore the store from its changelog.",
            store_path=str(path),
        ) from error


def manifest_of(path: Path) -> tuple[str, Manifest]:
    """Name and content of a database's MANIFEST."""
    try:
        name, data = current_manifest(path)
    except (OSError, ValueError) as error:
        raise translate(path, "Reading the MANIFEST of", error) from error
    return name, parse_manifest(path, data)


def sst_formats(path: Path) -> dict[str, frozenset[int]]:
    """The SST format versions of the files that a closed database's MANIFEST names, by column family."""
    found: dict[str, set[int]] = {}
    for live in manifest_of(path)[1].files.values():
        file = path / live.name
        try:
            found.setdefault(live.family, set()).add(sst_format_of(file))
        except (ValueError, FileNotFoundError) as error:
            is_lost = isinstance(error, FileNotFoundError)
            raise Corrupted(
                f"{path} lacks {live.name}, which its MANIFEST names."
                if is_lost
                else f"{file} is not an SST file: {error}.",
                code="database-damaged",
                action="Restore this store.",
                store_path=str(path),
                file=live.name,
            ) from error
        except OSError as error:
            raise translate(path, "Reading", error) from error
    return {family: frozenset(versions) for family, versions in found.items()}


def sst_format_of(file: Path) -> int:
    """The format version in the footer of an SST file."""
    with open_regular(file) as opened:
        opened.seek(max(file.stat().st_size - FOOTER_BYTES, 0))
        return sst_format_version(opened.read(FOOTER_BYTES))


def sst_format_version(end: bytes) -> int:
    """Format version of an SST file, from its last :data:`FOOTER_BYTES` or more (all of a shorter one)."""
    if len(end) >= FOOTER_BYTES:
        version, magic = _END.unpack_from(end, len(end) - _END.size)
        if magic == _MAGIC:
            if not version:
                raise ValueError("its footer has format version 0, which uses another footer")
            return int(version)
    if len(end) >= _LEGACY_BYTES and int.from_bytes(end[-8:], "little") == _LEGACY_MAGIC:
        return 0
    raise ValueError("it does not end in the footer of a block-based table")


def live_files(path: Path) -> dict[str, dict[str, int]]:
    """Sizes of the SST and blob files that the MANIFEST of a closed database names, by column family."""
    manifest = manifest_of(path)[1]
    every: list[LiveFile | BlobFile] = [*manifest.files.values(), *manifest.blobs.values()]
    found: dict[str, dict[str, int]] = {}
    for file in sorted(every, key=lambda file: file.number):
        found.setdefault(file.family, {})[file.name] = file.size
    return found


def check_blobs(path: Path, where: Path, blobs: Iterable[BlobFile]) -> None:
    """Check blob files against the MANIFEST, which RocksDB does only when it reads one of their values."""
    for blob in blobs:
        try:
            size = (where / blob.name).stat().st_size
        except FileNotFoundError as error:
            raise _damaged_blob(path, f"lacks {blob.name}, which its MANIFEST names") from error
        except OSError as error:
            raise translate(path, "Reading a blob file of", error) from error
        if size != blob.size:
            raise _damaged_blob(path, f"has {size} bytes of {blob.name}, which has {blob.size} in its MANIFEST")


def _damaged_blob(path: Path, why: str) -> Corrupted:
    return Corrupted(
        f"{path} {why}: the rows whose values are in it cannot be read.",
        code="database-damaged",
        action="Rebuild the store from its changelog; nothing was changed.",
        store_path=str(path),
    )


_FEWEST = 2  # A single missing file, the only one of its family, is more likely lost


def files_elsewhere(database: Path) -> str:
    """Why the SST files of a database must be in other directories, or were all deleted; empty if nothing suggests it.

    RocksDB does not write ``db_paths`` and ``cf_paths`` to its OPTIONS file. The only sign is a database that names
    files of which none exists, so this is a suspicion, and callers must change nothing. Two things refute it: SST files
    that it does not name (the application writes them there, and its MANIFEST is of another moment), and the same store
    of another task, or another segment of it, with its files in place: both have the options of one setter.
    """
    try:
        manifest = read_manifest(current_manifest(database)[1])
        present = {file.name for file in database.glob("*.sst")}
    except FilesElsewhere as error:
        return str(error)
    except (OSError, ValueError):
        return ""
    if present - set(manifest.names):
        return ""
    absent = [file for file in manifest.files.values() if file.name not in present]
    of_rows = [file for file in manifest.files.values() if file.family != OFFSETS_COLUMN_FAMILY]
    if not absent or not of_rows or any(file.name in present for file in of_rows):
        return ""
    everything = len(absent) == len(manifest.files) > len(of_rows)
    if not everything and len(of_rows) < _FEWEST:
        return ""
    if any(_keeps_rows_here(other) for other in _same_store(database) if other != database):
        return ""
    what = "SST files" if everything else "SST files with rows"
    return (
        f"none of the {len(absent)} {what} that its MANIFEST names exists: the application keeps them in another "
        "directory (db_paths or cf_paths in its rocksdb.config.setter), or all of them were deleted"
    )


def _same_store(database: Path) -> Iterator[Path]:
    """Databases of the same store: its other segments, and those of the tasks beside this one."""
    parent = database.parent
    for task in parent.parent.parent.glob("[0-9]*_[0-9]*"):
        where = task / parent.name
        yield from [where / database.name] if parent.name == PLAIN_PARENT else where.glob("*")


def _keeps_rows_here(database: Path) -> bool:
    """Whether all SST files with rows that its MANIFEST names are in its directory: db_paths may have it and others."""
    try:
        files = read_manifest(current_manifest(database)[1]).files.values()
    except (OSError, ValueError):
        return False
    of_rows = [database / file.name for file in files if file.family != OFFSETS_COLUMN_FAMILY]
    return bool(of_rows) and all(path.is_file() for path in of_rows)
