"""The SST files of a closed database by column family: what its MANIFEST and their last bytes tell. Opens nothing."""

from __future__ import annotations

from pathlib import Path

from statecore.errors import Corrupted
from statecore.formats.releases import DEFAULT_COLUMN_FAMILY
from statecore.formats.rocksdb_log import read_manifest
from statecore.formats.sst_footer import FOOTER_BYTES, sst_format_version
from statecore.stores.rocksdb_directory import current_manifest
from statecore.stores.rocksdb_errors import translate


def sst_formats(path: Path) -> dict[str, frozenset[int]]:
    """The format versions of a closed database's SST files, by column family; nothing is opened or changed.

    Files that the MANIFEST does not name are not its own and not looked at. Where this reader does not understand the
    MANIFEST, every file counts for ``default``.

    Raises:
        Corrupted: a file is missing, or is no SST file.
        Invalid: this user may not read one.
    """
    found: dict[str, set[int]] = {}
    for name, family, _ in _files(path):
        file = path / name
        try:
            found.setdefault(family, set()).add(sst_format_of(file))
        except ValueError as error:
            raise Corrupted(
                f"{file} is no SST file: {error}.", action="Restore this store.", store_path=str(path)
            ) from error
        except FileNotFoundError as error:
            raise Corrupted(
                f"{path} lacks {name}, which its MANIFEST names.",
                action="Restore this store.",
                store_path=str(path),
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
    """The SST files of a closed database and their bytes by column family, as its MANIFEST names them.

    Where this reader does not understand the MANIFEST, every file counts for ``default``.

    Raises:
        Corrupted, Invalid, NotFound: there is no MANIFEST, or this user may not read it.
    """
    found: dict[str, dict[str, int]] = {}
    for name, family, size in _files(path):
        found.setdefault(family, {})[name] = size
    return found


def _files(path: Path) -> list[tuple[str, str, int]]:
    try:
        _, data = current_manifest(path)
    except OSError as error:
        raise translate(path, "Reading the MANIFEST of", error) from error
    try:
        return [(file.name, file.family, file.size) for _, file in sorted(read_manifest(data).files.items())]
    except ValueError:
        return [(file.name, DEFAULT_COLUMN_FAMILY, file.stat().st_size) for file in sorted(path.glob("*.sst"))]
