"""Files of a RocksDB directory: detection, creation, opening, and cleanup after use.

rocksdict creates missing databases and writes ``rocksdict-config.json`` into every directory it opens, even read-only;
RocksDB writes a ``LOG``. Neither may be left where Kafka Streams or a verifier would find it.

In this package ``path`` names a database in messages, and ``where`` is the path to access it by, which follows renames
or leads through links.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterable, Iterator, Set
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from statecore.errors import Fenced, Invalid, NotFound, StatecoreError
from statecore.filesystem import DIRECTORY_MODE, open_regular, read_regular, set_modes, sync_file, sync_tree
from statecore.formats.kinds import StoreKind
from statecore.formats.releases import (
    CURRENT,
    DEFAULT_COLUMN_FAMILY,
    FAMILIES,
    LAST_WITHOUT_OFFSETS,
    OFFSETS_COLUMN_FAMILY,
)
from statecore.formats.rocksdb_log import BLOCK, DATA_SUFFIXES, Manifest, endless_record, read_manifest
from statecore.stores.rocksdb.directory_lock import LOCK_FILE, Claim, writer_of
from statecore.stores.rocksdb.errors import STOP_THE_OTHER, translate
from statecore.stores.rocksdb.file_limits import is_crowded, merge_in_steps, opening_threads
from statecore.stores.rocksdb.options import TARGET_FILE_BYTES, StoreOptions
from statecore.stores.rocksdb.options_file import families_in, keep_levels, newest_options

CONFIG_FILE = "rocksdict-config.json"  # Written by rocksdict into every directory it opens


def check_request(
    kind: StoreKind, *, create: bool, create_if_missing: bool, read_only: bool, upgrade: bool = False
) -> None:
    """Refuse unsupported or contradictory options."""
    if not isinstance(kind, StoreKind):
        raise Invalid(
            f"{kind!r} is not a kind of store.",
            code="kind-invalid",
            action=f"Give a StoreKind: {', '.join(f'StoreKind.{one.name}' for one in StoreKind if one.can_be_built)}.",
        )
    if not kind.can_be_built:
        raise Invalid(
            f"A store of kind {kind.value} cannot be opened by this version.",
            code="kind-unsupported",
            action="Open it with the class of its kind; a RocksDBStore needs a kind that is stored in RocksDB.",
            kind=kind.value,
        )
    if create + create_if_missing + read_only > 1:
        raise Invalid(
            "create, create_if_missing and read_only exclude each other.",
            code="options-conflict",
            action="Give one of them, or none to open an existing store.",
        )
    if read_only and upgrade:
        raise Invalid(
            "A store that is opened read-only cannot be upgraded.",
            code="options-conflict",
            action="Give read_only or upgrade, not both.",
        )


_BEFORE_CURRENT = re.compile(r"LOCK|LOG(\.old\..*)?|IDENTITY|MANIFEST-\d+|\d+\.dbtmp|rocksdict-config\.json")
"""Files of an interrupted creation: ``CURRENT`` is written last, and rows only after it."""


def has_database(path: Path) -> bool:
    """Whether there is a database, including one whose creation was interrupted."""
    try:
        return (path / "CURRENT").is_file()
    except OSError as error:
        raise translate(path, "Reading", error) from error


def data_files_in(path: Path) -> frozenset[str]:
    """Names of the SST and blob files in a database's directory, whether or not its MANIFEST names them."""
    return frozenset(file.name for file in path.iterdir() if file.suffix in DATA_SUFFIXES)


def identity_of(path: Path, *, ignore_errors: bool = False) -> str:
    """RocksDB's ``IDENTITY`` of a database: copies and moves keep it, recreation changes it; empty if there is none.

    Args:
        ignore_errors: return nothing also where it cannot be read. For callers that only compare it with a recorded
            one, where a database without an identity is simply not the recorded one.
    """
    try:
        return read_regular(path / "IDENTITY").decode(errors="replace").strip()
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError:
        if ignore_errors:
            return ""
        raise


def identities_of(databases: Iterable[Path]) -> frozenset[str]:
    """The identities of several databases that have a readable one; see :func:`identity_of`."""
    return frozenset(identity_of(path, ignore_errors=True) for path in databases) - {""}


def current_name(path: Path) -> str:
    """The name of the MANIFEST in ``CURRENT``."""
    return read_regular(path / "CURRENT").decode().strip()


def current_manifest(path: Path) -> tuple[str, bytes]:
    """Name and content of the MANIFEST that ``CURRENT`` names."""
    name = current_name(path)
    return name, read_regular(path / name)


def require_database(path: Path, where: Path | None = None) -> None:
    """Raise unless there is a database."""
    if not has_database(where or path):
        raise NotFound(
            f"There is no database at {path}.",
            code="database-not-found",
            action="Check the state directory, task and store name.",
            store_path=str(path),
        )


def claim_directory(path: Path, *, create: bool, resume_creation: bool) -> tuple[Claim, bool]:
    """Claim the directory of a database, creating it if asked; also return whether the database must be created."""
    make = create or (resume_creation and not has_database(path))
    if make:
        make_directory(path, resume_creation=resume_creation)
    else:
        require_database(path)
    claim = Claim(path)
    try:
        if make and has_database(claim.directory):  # another process has created and closed it meanwhile
            make = False
            if create:
                raise _exists(path)
        elif not make:
            require_database(path, claim.directory)
    except BaseException:
        claim.release()
        raise
    return claim, make


def _exists(path: Path) -> Invalid:
    return Invalid(
        f"{path} exists already.",
        code="store-exists",
        action="Remove it or name another directory; nothing was changed.",
        store_path=str(path),
    )


def make_directory(path: Path, *, resume_creation: bool = False) -> None:
    """Create the directory of a new database durably; ``resume_creation`` continues a creation that was killed."""
    try:
        missing = [path, *(parent for parent in path.parents if not parent.exists())]
        if resume_creation and is_interrupted_creation(path):
            missing = [path, *path.parents]  # unknown which of them the killed process had created
        else:
            path.mkdir(parents=True, mode=DIRECTORY_MODE)
        for made in missing:
            if os.access(made.parent, os.R_OK):
                sync_file(made.parent)
    except FileExistsError as error:
        if resume_creation and (is_interrupted_creation(path) or has_database(path)):  # created since it was checked
            raise Fenced(
                f"Another process is creating a database at {path}.",
                code="store-open",
                action=STOP_THE_OTHER,
                store_path=str(path),
            ) from error
        raise _exists(path) from error
    except OSError as error:
        raise translate(path, "Creating", error) from error


def is_interrupted_creation(path: Path) -> bool:
    """Whether the directory contains at most the files of an interrupted creation."""
    return path.is_dir() and all(_BEFORE_CURRENT.fullmatch(file.name) for file in path.iterdir())


def column_families_in(where: Path) -> list[str]:
    """The column families of a database as RocksDB lists them; raises like RocksDB.

    Nothing lists or opens a database before this, which refuses one that RocksDB would read for ever.
    """
    from rocksdict import Options, Rdict

    if why := _why_endless(where):
        raise ValueError(f"Corruption: {why}")
    names: list[str] = Rdict.list_cf(str(where), Options(raw_mode=True))
    return names


def _why_endless(where: Path) -> str:
    """Why RocksDB would never finish reading the MANIFEST or a log; empty if it would, or says what is wrong."""
    with suppress(OSError, ValueError):
        for file in (where / current_name(where), *where.glob("*.log")):
            if (at := endless_record(_blocks(file))) is not None:
                return f"{file.name} is damaged at byte {at}, which RocksDB never gets past"
    return ""


def _blocks(file: Path) -> Iterator[bytes]:
    with open_regular(file) as opened:
        while block := opened.read(BLOCK):
            yield block


def existing_families(path: Path, where: Path, kind: StoreKind, *, resume_creation: bool = False) -> set[str]:
    """The column families of a database, if Kafka Streams accepts them for a store of this kind."""
    try:
        found = set(column_families_in(where))
    except Exception as error:
        raise translate(path, "Listing the column families of", error) from error
    data = kind.data_column_family
    unexpected = found - {data, OFFSETS_COLUMN_FAMILY, *kind.older_column_families, DEFAULT_COLUMN_FAMILY}
    if unexpected:
        raise Invalid(
            f"{path} has column families that a {kind.value} store does not have: {', '.join(sorted(unexpected))}.",
            code="kind-mismatch",
            action="Check the kind that the store was opened with.",
            store_path=str(path),
            kind=kind.value,
            column_families=sorted(unexpected),
        )
    if {data, OFFSETS_COLUMN_FAMILY} - found and creation_ended_early(where, found):
        if resume_creation:
            return found
        raise NotFound(
            f"The creation of the database at {path} is not complete: a process is creating it, or was killed while "
            "it did. It has no rows.",
            code="database-incomplete",
            action="Open it with create_if_missing=True, which completes it, or wait until it is created.",
            store_path=str(path),
        )
    if data not in found:
        raise Invalid(
            f"{path} lacks the column family {data} of a {kind.value} store; it is a store of another kind.",
            code="kind-mismatch",
            action="Open it with its own kind (see statecore inspect); nothing was changed. For another kind, name "
            "another directory, and restore the store from its changelog.",
            store_path=str(path),
            kind=kind.value,
            missing=data,
        )
    return found


def is_older(where: Path, families: Set[str], *, resume_creation: bool = False) -> bool:
    """Whether a release without offsets inside wrote it; false for a creation that ``resume_creation`` continues."""
    return OFFSETS_COLUMN_FAMILY not in families and not (resume_creation and creation_ended_early(where, families))


def written_by_older(path: Path) -> Invalid:
    """The error for opening such a database for writing, which needs the ``offsets`` family."""
    return Invalid(
        f"{path} was written by Kafka Streams {LAST_WITHOUT_OFFSETS} or older: it lacks the column family "
        f"{OFFSETS_COLUMN_FAMILY}. Writing to it would add that, and those releases could no longer open it.",
        code="upgrade-required",
        action=f"Open it with upgrade=True if this library and Kafka Streams {CURRENT.name} will use it from now on, "
        "else with read_only=True; nothing was changed.",
        store_path=str(path),
    )


def open_database(
    path: Path, where: Path, families: Set[str], *, create: bool, read_only: bool, options: StoreOptions
) -> Any:
    """Open the ``Rdict`` at ``where`` (the database, or its links); see :mod:`.file_limits` for very many files."""
    from rocksdict import AccessType, Rdict

    options.database.create_if_missing(create)
    options.database.create_missing_column_families(not read_only)
    options.database.set_max_file_opening_threads(opening_threads(where))
    if not create:
        keep_levels(where, _columns(families, options.database, options.offsets))
    if read_only:
        options.database.set_max_open_files(-1)  # all files at once: a writer may remove them later
    access = AccessType.read_only(False) if read_only else AccessType.read_write()
    try:
        with _restore_notes_on_failure(where):
            if options.automatic_compaction and not read_only and is_crowded(where, TARGET_FILE_BYTES):
                _uncrowd(path, where, families, options)
            columns = _columns(families, options.database, options.offsets)
            return Rdict(str(where), options.database, column_families=columns, access_type=access)
    except Exception as error:
        raise translate(path, "Opening", error) from error


def _columns(families: Set[str], data: Any, offsets: Any) -> dict[str, Any]:
    return {name: offsets if name == OFFSETS_COLUMN_FAMILY else data for name in families}


def _uncrowd(path: Path, where: Path, families: Set[str], options: StoreOptions) -> None:
    from rocksdict import Rdict

    present = families & set(column_families_in(where))
    merging = options.merging_in_steps()
    keep_levels(where, _columns(present, merging, options.offsets))
    handles = [Rdict(str(where), merging, column_families=_columns(present, merging, options.offsets))]
    try:
        handles += [handles[0].get_column_family(name) for name in present]
        merge_in_steps(path, handles[1:])
    finally:
        close_handles(path, reversed(handles))


@contextmanager
def _restore_notes_on_failure(path: Path) -> Iterator[None]:
    """Undo what rocksdict and RocksDB write into a directory before they find that they cannot open it.

    They write before they try its lock: the ``LOG`` of an application that has just opened it would be renamed.
    """
    config = path / CONFIG_FILE
    before = _bytes_of(config)
    logs = {file.name for file in path.glob("LOG*")}
    try:
        yield
    except BaseException:
        with suppress(OSError):  # must not hide the original error
            if before is None:
                config.unlink(missing_ok=True)
            elif _bytes_of(config) != before:
                config.write_bytes(before)
            if "LOG" not in logs:
                (path / "LOG").unlink(missing_ok=True)
            for renamed in path.glob("LOG.old.*"):
                if renamed.name not in logs:
                    renamed.replace(path / "LOG")
        raise


def _bytes_of(file: Path) -> bytes | None:
    try:
        return read_regular(file)
    except FileNotFoundError:
        return None


def close_handles(path: Path, handles: Iterable[Any]) -> StatecoreError | None:
    """Close every handle, at which rocksdict flushes; return the first error. Unreferenced ones are closed anyway."""
    failure: StatecoreError | None = None
    for handle in handles:
        try:
            handle.close()
        except Exception as error:
            failure = failure or translate(path, "Closing", error)
    return failure


def first_failure(*steps: Callable[[], None]) -> StatecoreError | None:
    """Run every step, even after failures; return the first error, without its traceback, which holds handles."""
    failure: StatecoreError | None = None
    for step in steps:
        try:
            step()
        except StatecoreError as error:
            error.__cause__ = error.__context__ = None
            failure = failure or error.with_traceback(None)
    return failure


def clean_up(path: Path, where: Path, *, is_created: bool = False, untouched: frozenset[str] = frozenset()) -> None:
    """Restore what Kafka Streams expects: no files of the tools, the old modes. The database may still be open."""
    try:
        if not where.stat().st_nlink:  # deleted while it was open
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(where))
        for name in (CONFIG_FILE, "LOG"):
            (where / name).unlink(missing_ok=True)
        for old in where.glob("LOG.old.*"):
            old.unlink(missing_ok=True)
        set_modes(where, without=untouched)
        if is_created:
            sync_tree(where, without=frozenset({LOCK_FILE}))
        else:
            sync_file(where)
    except OSError as error:
        raise translate(path, "Tidying", error) from error


def is_unfinished_creation(database: Path, siblings: Iterable[Path] = ()) -> bool:
    """Whether the creation of a database was interrupted by a kill, and no process continues it.

    Such a database never had a row, so it counts as missing. RocksDB writes ``CURRENT``, then ``OPTIONS``. This library
    creates all column families with the database. Kafka Streams opens it with ``default`` alone, which writes an
    ``OPTIONS`` that names only that family, adds the others one by one to the MANIFEST (``offsets`` last), and then
    writes another ``OPTIONS`` that names all. So the creation was not finished, in any release, where ``OPTIONS`` is
    missing or lacks an existing family. Else, without ``offsets``, it may be of Kafka Streams 4.2 or older, unless a
    sibling has ``offsets``. A database with ``offsets`` is complete: it may have had rows.
    """
    families = families_of(database) if is_empty(database) else frozenset()
    if not families or not families <= FAMILIES - {OFFSETS_COLUMN_FAMILY} or writer_of(database) is not None:
        return False
    if creation_ended_early(database, families):
        return True
    # A family in OPTIONS that is missing was lost with the end of the MANIFEST.
    return _named(database) <= families and any(OFFSETS_COLUMN_FAMILY in families_of(one) for one in siblings)


def creation_ended_early(database: Path, families: Set[str]) -> bool:
    """Whether a database's own files show an interrupted creation; false if it has rows."""
    return _named(database) < families and is_empty(database)


def is_empty(database: Path) -> bool:
    """Whether a database has neither data files nor log content, and its MANIFEST names no file, missing or not."""
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
    return read_manifest(current_manifest(database)[1])


def _named(database: Path) -> frozenset[str]:
    """The column families that the newest ``OPTIONS`` of a database names; empty if there is none."""
    try:
        return families_in(newest_options(database))
    except OSError:
        return frozenset()
