"""The files of a closed database by column family: what its MANIFEST and their last bytes tell. Opens nothing."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from statecore.errors import Corrupted, Invalid
from statecore.formats.rocksdb_log import BlobFile, FilesElsewhere, LiveFile, Manifest, read_manifest
from statecore.formats.sst_footer import FOOTER_BYTES, sst_format_version
from statecore.stores.rocksdb.directory import current_manifest
from statecore.stores.rocksdb.errors import not_readable_here, translate


def understood(path: Path, content: bytes) -> Manifest:
    """What a database's MANIFEST says.

    Args:
        path: the database, as messages name it.
        content: of its MANIFEST.

    Raises:
        Invalid: it has something that this reader does not know, so nobody can say which files the database is made of.
    """
    try:
        return read_manifest(content)
    except FilesElsewhere as error:
        raise not_readable_here(f"The database at {path} cannot be read: {error}", path) from error
    except ValueError as error:
        raise Invalid(
            f"The MANIFEST of the database at {path} is not understood ({error}), so it is not known which files the "
            "database is made of.",
            code="manifest-unsupported",
            action="Nothing was changed. Where the application chooses this by rocksdb.config.setter, leave the store "
            "to Kafka Streams; where the MANIFEST is damaged (statecore doctor), restore the store from its changelog.",
            store_path=str(path),
        ) from error


def manifest_of(path: Path) -> tuple[str, Manifest]:
    """The name of a database's MANIFEST, and what it says.

    Raises:
        Invalid: it is not understood, or this user may not read it.
        Corrupted, NotFound: there is none.
    """
    try:
        name, data = current_manifest(path)
    except (OSError, ValueError) as error:
        raise translate(path, "Reading the MANIFEST of", error) from error
    return name, understood(path, data)


def sst_formats(path: Path) -> dict[str, frozenset[int]]:
    """The format versions of a closed database's SST files, by column family; nothing is opened or changed.

    Files that the MANIFEST does not name are not its own and not looked at.

    Raises:
        Corrupted: a file is missing, or is no SST file.
        Invalid: the MANIFEST is not understood, or this user may not read a file.
    """
    found: dict[str, set[int]] = {}
    for live in manifest_of(path)[1].files.values():
        file = path / live.name
        try:
            found.setdefault(live.family, set()).add(sst_format_of(file))
        except ValueError as error:
            raise Corrupted(
                f"{file} is no SST file: {error}.",
                code="database-damaged",
                action="Restore this store.",
                store_path=str(path),
                file=file.name,
            ) from error
        except FileNotFoundError as error:
            raise Corrupted(
                f"{path} lacks {live.name}, which its MANIFEST names.",
                code="database-damaged",
                action="Restore this store.",
                store_path=str(path),
                file=live.name,
            ) from error
        except OSError as error:
            raise translate(path, "Reading", error) from error
    return {family: frozenset(versions) for family, versions in found.items()}


def sst_format_of(file: Path) -> int:
    """The format version of an SST file, by its last bytes.

    Raises:
        OSError: it cannot be read.
        ValueError: it is no SST file, or was cut.
    """
    with file.open("rb") as opened:
        opened.seek(max(file.stat().st_size - FOOTER_BYTES, 0))
        return sst_format_version(opened.read(FOOTER_BYTES))


def live_files(path: Path) -> dict[str, dict[str, int]]:
    """The SST files and blob files of a closed database, and their bytes, by column family, as its MANIFEST names them.

    Raises:
        Corrupted, Invalid, NotFound: there is no MANIFEST, it is not understood, or this user may not read it.
    """
    manifest = manifest_of(path)[1]
    every: list[LiveFile | BlobFile] = [*manifest.files.values(), *manifest.blobs.values()]
    found: dict[str, dict[str, int]] = {}
    for file in sorted(every, key=lambda file: file.number):
        found.setdefault(file.family, {})[file.name] = file.size
    return found


def check_blobs(path: Path, where: Path, blobs: Iterable[BlobFile]) -> None:
    """Make sure that blob files are there, each as long as its MANIFEST says.

    RocksDB does so with SST files when it opens a database, and with blob files only when it reads a value of one.

    Args:
        path: the database, as messages name it.
        where: where it is.
        blobs: what its MANIFEST names.

    Raises:
        Corrupted: one is missing, or has another size.
        Invalid, Retryable: the system does not let this process look.
    """
    for blob in blobs:
        try:
            size = (where / blob.name).stat().st_size
        except FileNotFoundError as error:
            raise _damaged_blob(path, f"lacks {blob.name}, which its MANIFEST names") from error
        except OSError as error:
            raise translate(path, "Looking at a blob file of", error) from error
        if size != blob.size:
            raise _damaged_blob(path, f"has {size} bytes of {blob.name}, which has {blob.size} by its MANIFEST")


def _damaged_blob(path: Path, why: str) -> Corrupted:
    return Corrupted(
        f"{path} {why}: the rows whose values are in it cannot be read.",
        code="database-damaged",
        action="Rebuild the store from its changelog; nothing was changed.",
        store_path=str(path),
    )
