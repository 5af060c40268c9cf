"""Detects processes that have stores of a task open without holding the application's ``.lock``.

Kafka Streams holds that lock as long as it lives, one process per directory. Python processors share a directory, one
task each, and are detected by RocksDB's ``LOCK`` of each database.
Kafka Streams can lose its lock: if a second instance in the same JVM is refused, the first one's lock falls when the
garbage collector closes the second one's file. It continues, with the file and its databases open.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from statecore.errors import Fenced, StatecoreError
from statecore.statedir.task_layout import stores_in
from statecore.stores.lock_holder import Holder
from statecore.stores.rocksdb.directory_lock import writer_of


def find_writer(databases: Iterable[Path]) -> Holder | None:
    """The holder of the write lock of one of these databases; ``None`` if none is detected."""
    return next((holder for database in databases if (holder := writer_of(database)) is not None), None)


def refuse_open_stores(task_directory: Path) -> None:
    """Raise ``Fenced`` if a database of a task directory is open: its process would write to files without a name."""
    for store in stores_in(task_directory):
        holder = find_writer(store.databases)
        if holder is not None:
            raise Fenced(
                f"The store {store.store} in {task_directory} is open in {holder}. Nothing was changed.",
                code="store-open",
                action="Stop that process, then run this again.",
                task_directory=str(task_directory),
                store=store.store,
                process=holder.process,
            )


def holder_without_lock(lock_file: Path, task_directories: Iterable[Path]) -> Holder | None:
    """The process that uses an application's directory after it has lost its lock; ``None`` if none is detected.

    Open lock files of other users' and other containers' processes are not visible; their stores are still checked when
    a task is replaced.
    """
    for task_directory in task_directories:
        holder = None
        with suppress(StatecoreError, OSError):  # a user without read permission cannot change anything either
            holder = find_writer(one for store in stores_in(task_directory) for one in store.databases)
        if holder is not None and holder.process not in (0, os.getpid()) and _has_open(holder.process, lock_file):
            return holder._replace(lost=True)
    return None


def refuse_lost_lock(lock_file: Path, task_directories: Iterable[Path]) -> None:
    """Raise ``Fenced`` if an application uses the directory after it has lost its lock. Call it with the lock held."""
    holder = holder_without_lock(lock_file, task_directories)
    if holder is not None:
        raise Fenced(
            f"The state directory {lock_file.parent} is in use: {holder._replace(lost=False)} has stores of it open, "
            "and has lost its lock. Kafka Streams loses it if a second instance in the same process was refused.",
            code="application-running-without-lock",
            action="Stop that process, then run this again. Do not run two instances in one process with the same "
            "application.id and state.dir.",
            state_dir=str(lock_file.parent),
            process=holder.process,
        )


def _has_open(process: int, file: Path) -> bool:
    """Whether a process has a file open, as far as this user can see."""
    with suppress(OSError):
        wanted = file.stat()
        for descriptor in Path(f"/proc/{process}/fd").iterdir():
            with suppress(OSError):
                if os.path.samestat(descriptor.stat(), wanted):
                    return True
    return False
