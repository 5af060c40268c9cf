"""A RocksDB directory as a thing of files: is it one, what is in it, how it is opened, how it is left behind.

rocksdict creates what it does not find, writes ``rocksdict-config.json`` into every directory it opens, read-only ones
too, and RocksDB writes a ``LOG``. None of that may surprise Kafka Streams or a verifier.
"""

from __future__ import annotations

import tempfile
from collections.abc import Set
from pathlib import Path
from typing import Any

from statecore.errors import Corrupted, Invalid, NotFound
from statecore.formats.kinds import DEFAULT_COLUMN_FAMILY, OFFSETS_COLUMN_FAMILY, StoreKind
from statecore.stores.files import DIRECTORY_MODE, set_modes, sync_file
from statecore.stores.options import data_options, offsets_options
from statecore.stores.rocksdb_errors import translate

CONFIG_FILE = "rocksdict-config.json"
"""What rocksdict drops into every directory it opens."""


def make_directory(path: Path) -> None:
    """Make the directory of a fresh database.

    Raises:
        Invalid: the path exists.
    """
    try:
        path.mkdir(parents=True, mode=DIRECTORY_MODE)
    except FileExistsError as error:
        raise Invalid(
            f"{path} exists already.",
            action="Remove it or name another directory; nothing was changed.",
            store_path=str(path),
        ) from error


def existing_families(path: Path, kind: StoreKind) -> set[str]:
    """The column families of a database, when they are those that Kafka Streams accepts for a store of this kind.

    Raises:
        NotFound: there is no database at ``path``.
        Invalid: it has a family that the kind does not have.
        Corrupted: it lacks the data family (Kafka Streams would open it as an empty store, silently).
    """
    from rocksdict import Options, Rdict

    if not (path / "CURRENT").is_file():
        raise NotFound(
            f"There is no database at {path}.",
            action="Check the state directory, task and store name.",
            store_path=str(path),
        )
    try:
        found = set(Rdict.list_cf(str(path), Options(raw_mode=True)))
    except Exception as error:
        raise translate(path, "Listing the column families of", error) from error
    data = kind.data_column_family
    unexpected = found - {DEFAULT_COLUMN_FAMILY, data, OFFSETS_COLUMN_FAMILY}
    if unexpected:
        raise Invalid(
            f"{path} has column families that a {kind.value} store does not have: {', '.join(sorted(unexpected))}.",
            action="Check the store's kind in the spec.",
            store_path=str(path),
        )
    if data not in found:
        raise Corrupted(
            f"{path} lacks the column family {data} of a {kind.value} store.",
            action="Check the store's kind in the spec; if it is right, rebuild the store from its changelog.",
            store_path=str(path),
        )
    return found


def shadow_of(path: Path) -> tempfile.TemporaryDirectory[str]:
    """A temporary directory of symbolic links to the files of a database, to open in its place."""
    shadow = tempfile.TemporaryDirectory(prefix="statecore-read-only-")
    for file in path.resolve().iterdir():
        if file.is_file() and file.name not in ("LOCK", "LOG", CONFIG_FILE):
            Path(shadow.name, file.name).symlink_to(file)
    return shadow


def open_database(path: Path, where: Path, families: Set[str], *, create: bool, read_only: bool) -> Any:
    """Open the ``Rdict`` at ``where`` (the database at ``path``, or its shadow) with these column families.

    Raises:
        Fenced: another process has it open for writing.
        Invalid: another comparator.
        Corrupted: it cannot be read.
    """
    from rocksdict import AccessType, Rdict

    options = data_options()
    options.create_if_missing(create)
    options.create_missing_column_families(not read_only)
    columns = {name: offsets_options() if name == OFFSETS_COLUMN_FAMILY else data_options() for name in families}
    access = AccessType.read_only(False) if read_only else AccessType.read_write()
    try:
        return Rdict(str(where), options, column_families=columns, access_type=access)
    except Exception as error:
        raise translate(path, "Opening", error) from error


def tidy(path: Path) -> None:
    """Leave a closed database as Kafka Streams expects it: without notes of the tools, with its modes."""
    for name in (CONFIG_FILE, "LOG"):
        (path / name).unlink(missing_ok=True)
    for old in path.glob("LOG.old.*"):
        old.unlink(missing_ok=True)
    set_modes(path)
    sync_file(path)
