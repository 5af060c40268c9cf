"""Executes the conversion of a task's directory in a copy of it, and verifies the result.

SST files of the copy may be links to live ones: none is ever written to, only unlinked, and new files are created
beside. A copy in which a conversion failed is discarded.
"""

from __future__ import annotations

import statecore.extras.pipeline

import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import chain
from pathlib import Path

from statecore.conversion.inspection import inspect_database
from statecore.conversion.model import DatabaseConversion, RowMove, TaskConversion
from statecore.conversion.rows import convert_chunks
from statecore.errors import Corrupted
from statecore.faults import NO_FAULTS, FaultPoints
from statecore.filesystem import DIRECTORY_MODE, sync_tree
from statecore.formats.kinds import StoreKind
from statecore.formats.releases import CHECKPOINT_FILE, OFFSETS_COLUMN_FAMILY
from statecore.images.digest import digest_rows
from statecore.images.key_table import Chunk
from statecore.images.run_writer import write_run
from statecore.statedir.database_state import create_database
from statecore.statedir.readonly_database import Database
from statecore.stores.legacy_offsets import read_offsets, remove_offsets, write_offsets
from statecore.stores.rocksdb.directory_lock import LOCK_FILE
from statecore.stores.rocksdb.writes import ChangedDatabase

RUN_BYTES = 256 << 20
"""Bytes of keys and values in an SST file of moved rows, whose filter and index are kept in memory until it is
written.
"""


def convert(plan: TaskConversion, path: Path, faults: FaultPoints = NO_FAULTS, *, run_bytes: int = RUN_BYTES) -> None:
    """Convert a copy of a task's directory according to a plan, durably; owners and modes are kept."""
    if plan.refused:
        raise ValueError(f"{plan.task} was refused and cannot be converted")
    modes = _modes(path)
    for store in plan.stores:
        for database in store.databases:
            if not database.is_empty:
                faults.reach("conversion.before-database")
                _convert(database, path / database.directory, run_bytes)
                faults.reach("conversion.after-database")
    for name in plan.moved:
        if name not in plan.written:
            remove_offsets(path / name)
    for name, offsets in plan.written.items():
        write_offsets(path / name, offsets)
    if plan.databases and (path / CHECKPOINT_FILE).is_file():
        os.utime(path / CHECKPOINT_FILE)  # it must not be older than the files just written: see checkpoint_entries
    faults.reach("conversion.after-files")
    _apply_modes(path, modes)
    sync_tree(path, without=frozenset({LOCK_FILE}))


def _convert(database: DatabaseConversion, directory: Path, run_bytes: int) -> None:
    if database.create:
        directory.parent.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
        create_database(directory, StoreKind.WINDOW, {})
    with ChangedDatabase(directory, database.sst_format, durably=False) as opened:
        for number, move in enumerate(database.moves):
            opened.ingest(move.target, _runs(directory / f"moved-{number}", opened, move, run_bytes))
        for family in database.drop:
            opened.drop(family)
        for family in database.rewrite:
            opened.rewrite(family)
        if database.entries:
            opened.put(OFFSETS_COLUMN_FAMILY, database.entries)


def _runs(name: Path, opened: ChangedDatabase, move: RowMove, run_bytes: int) -> list[Path]:
    """SST files of the rows of a family in their new format, in order of their keys."""
    chunks = convert_chunks(opened.rows(move.source), move.source_kind, move.target_kind)
    runs: list[Path] = []
    for first in chunks:
        runs.append(name.with_name(f"{name.name}-{len(runs):05d}.ingest"))
        write_run(runs[-1], chain([first], _up_to(run_bytes - _bytes(first), chunks)))
    return runs


def _up_to(most: int, chunks: Iterator[Chunk]) -> Iterable[Chunk]:
    while most > 0 and (chunk := next(chunks, None)) is not None:
        most -= _bytes(chunk)
        yield chunk


def _bytes(chunk: Chunk) -> int:
    return len(chunk.keys) + len(chunk.values)


def _modes(path: Path) -> dict[Path, int]:
    return {path: stat.S_IMODE(path.stat().st_mode)} | {
        one: stat.S_IMODE(one.stat().st_mode) for one in path.rglob("*") if not one.is_symlink()
    }


def _apply_modes(path: Path, modes: Mapping[Path, int]) -> None:
    """Give new files owner and modes of those beside them; files with other hard links are skipped."""
    owner = path.stat()
    for one in sorted(path.rglob("*")):
        status = one.lstat()
        is_directory = stat.S_ISDIR(status.st_mode)
        if stat.S_ISLNK(status.st_mode) or (status.st_nlink > 1 and not is_directory):
            continue
        beside = modes.get(one.parent, modes[path])
        like = beside if is_directory else modes.get(one.parent / "CURRENT", beside & 0o666)
        mode = modes.get(one, like)
        if stat.S_IMODE(status.st_mode) != mode:
            one.chmod(mode)
        if (status.st_uid, status.st_gid) != (owner.st_uid, owner.st_gid):
            with suppress(PermissionError):  # a user without chown relies on the group
                os.chown(one, owner.st_uid if os.geteuid() == 0 else -1, owner.st_gid)


def verify_conversion(plan: TaskConversion, path: Path) -> None:
    """Reopen everything and compare it with the plan. Changes nothing. Raises ``Corrupted`` with the first difference.

    Compared are families, offsets, status and position of every database; digests of rewritten families; names of the
    SST files of all others; the version of every SST file; and the files beside the stores.
    """
    for store in plan.stores:
        for database in store.databases:
            _verify(plan, database, path)
    for name, offsets in plan.written.items():
        if read_offsets(path / name) != dict(offsets):
            raise _different(plan, f"{name} does not have the planned content")
    for name in set(plan.moved) - set(plan.written):
        if (path / name).exists():
            raise _different(plan, f"{name} still exists")


def _verify(plan: TaskConversion, database: DatabaseConversion, path: Path) -> None:
    seen = inspect_database(path / database.directory, path)
    if seen is None:
        raise _different(plan, f"{database.directory} is missing")
    for what, found, wanted in (
        ("column families", seen.families, database.families),
        ("offsets", dict(seen.state.offsets), dict(database.offsets or {})),
        ("status", seen.state.status, database.status),
        ("position", seen.position, database.position),
    ):
        if found != wanted:
            raise _different(plan, f"the {what} of {database.directory} are {found}, and should be {wanted}")
    versions = {version for of_family in seen.formats.values() for version in of_family}
    if versions and max(versions) > database.sst_format:
        raise _different(plan, f"{database.directory} has an SST file of format {max(versions)}")
    for family, names in database.files.items():
        if not names <= seen.files.get(family, {}).keys():
            raise _different(plan, f"{database.directory} has lost SST files of {family}")
    if database.contents:
        _verify_contents(plan, database, path)


def _verify_contents(plan: TaskConversion, database: DatabaseConversion, path: Path) -> None:
    with Database(path / database.directory) as opened:
        for family, wanted in database.contents.items():
            found = digest_rows(opened.chunks(family))
            if found != wanted:
                raise _different(
                    plan,
                    f"{database.directory} has {found.rows:,} rows in {family} with digest {found.digest}, and should "
                    f"have {wanted.rows:,} with {wanted.digest}",
                )


def _different(plan: TaskConversion, what: str) -> Corrupted:
    return Corrupted(
        f"The conversion of {plan.task} to Kafka Streams {plan.release_to} differs from its plan: {what}.",
        code="conversion-verification-failed",
        action="Nothing was changed in the application's directory. Run this again; report it if it happens again.",
        task=plan.task,
    )
