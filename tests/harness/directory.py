"""Reads a Kafka Streams state directory row by row, as bytes, without touching it.

Each RocksDB directory is copied first and the copy is opened read-only through rocksdict in raw mode: opening the
original, even to read, would leave files in it. Every column family is read whole; nothing is interpreted.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from rocksdict import AccessType, Options, Rdict

Families = dict[str, list[tuple[bytes, bytes]]]
"""Rows of one database by column family, in the order of the database."""

GLOBAL = "global"
"""Takes the place of the task id for global stores."""


def read_application(directory: Path) -> dict[tuple[str, str], Families]:
    """Every database of an application's state directory (``state.dir/application.id``).

    Returns:
        By (task, store), and for a segmented store by (task, ``store/segment``): the rows of each column family.
    """
    return {(task, name): read_database(path) for task, name, path in databases(directory)}


def databases(directory: Path) -> Iterator[tuple[str, str, Path]]:
    """Task id (or ``global``), store (``store/segment`` where it is segmented) and path of every database below."""
    for task in sorted(one for one in directory.iterdir() if one.is_dir()):
        for current in sorted(task.rglob("CURRENT")):
            path = current.parent
            parts = path.relative_to(task).parts
            yield task.name, "/".join(parts[1:] if parts[0] == "rocksdb" else parts), path


def read_database(path: Path) -> Families:
    """Every row of every column family of one RocksDB directory."""
    with tempfile.TemporaryDirectory(prefix="statecore-read-") as scratch:
        copy = Path(scratch) / "copy"
        shutil.copytree(path, copy, ignore=shutil.ignore_patterns("LOCK", "rocksdict-config.json"))
        names = Rdict.list_cf(str(copy))
        options = Options(raw_mode=True)
        database = Rdict(
            str(copy),
            options,
            {name: Options(raw_mode=True) for name in names},
            access_type=AccessType.read_only(error_if_log_file_exist=False),
        )
        try:
            return {name: list(database.get_column_family(name).items()) for name in names}
        finally:
            database.close()


def copy_of_open(path: Path, to: Path) -> Path:
    """Copies a database that is open, as a kill at one moment leaves it.

    A compaction may add and delete files while others are copied: then the copy is of no moment, and is made again.
    """

    def copied(source: str, target: str) -> None:
        with suppress(FileNotFoundError):
            shutil.copy2(source, target)

    while True:
        before = _sizes(path)
        copy = Path(shutil.copytree(path, to, ignore=shutil.ignore_patterns("LOCK"), copy_function=copied))
        if _sizes(path) == before:
            return copy
        shutil.rmtree(copy)


def _sizes(path: Path) -> dict[str, int]:
    """Every file of a database that may be open, but for its ``LOG``, with its size."""
    sizes = {}
    for file in path.rglob("*"):
        with suppress(FileNotFoundError):
            if not file.name.startswith("LOG") and file.is_file():
                sizes[str(file)] = file.stat().st_size
    return sizes


def files(directory: Path) -> dict[str, int]:
    """Every file below a directory by relative path, with its size: what must not change."""
    return {
        str(one.relative_to(directory)): one.stat().st_size for one in sorted(directory.rglob("*")) if one.is_file()
    }


def inodes(directory: Path) -> dict[str, tuple[int, ...]]:
    """Every file and directory below: times, links, size."""
    found = {str(path): path.stat() for path in directory.rglob("*")}
    return {name: (one.st_mtime_ns, one.st_ctime_ns, one.st_nlink, one.st_size) for name, one in found.items()}
