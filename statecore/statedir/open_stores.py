"""Which stores of a task somebody has open: a processor on this library's stores holds no ``.lock`` of the application.

Kafka Streams holds that lock as long as it lives, one process for a directory. Processors in Python are several to a
directory, one a task, and are seen by what RocksDB itself locks, the ``LOCK`` of each database.

Nor does a Kafka Streams always hold it: where a second one in the same JVM was refused, the lock of the first falls as
soon as the garbage collector closes the file of the second. It works on, and has the file and its databases open.
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


def writer_among(databases: Iterable[Path]) -> Holder | None:
    """Who has one of these databases open for writing; ``None`` when nobody is seen to."""
    return next((holder for database in databases if (holder := writer_of(database)) is not None), None)


def refuse_open_stores(task_directory: Path) -> None:
    """Make sure that nobody works on a task directory that is about to be replaced.

    Raises:
        Fenced: one of its databases is open. Its process would go on writing to files that have no name any more.
    """
    for store in stores_in(task_directory):
        holder = writer_among(store.databases)
        if holder is not None:
            raise Fenced(
                f"The store {store.store} in {task_directory} is open: {holder} works on it. Nothing was changed.",
                code="store-open",
                action="Stop that process, then run this again.",
                task_directory=str(task_directory),
                store=store.store,
                process=holder.process,
            )


def who_lost_lock(lock_file: Path, task_directories: Iterable[Path]) -> Holder | None:
    """Who works in an application's directory whose lock it has lost; ``None`` when nobody is seen to.

    Processes of other users, and of other containers, are not seen here; their stores are, by who changes a task.

    Args:
        lock_file: the lock's, which nobody else holds.
        task_directories: its tasks', and that of the global stores.
    """
    for task_directory in task_directories:
        holder = None
        with suppress(StatecoreError, OSError):  # who may not look here, may not change anything either
            holder = writer_among(one for store in stores_in(task_directory) for one in store.databases)
        if holder is not None and holder.process not in (0, os.getpid()) and _has_open(holder.process, lock_file):
            return holder._replace(lost=True)
    return None


def refuse_lost_lock(lock_file: Path, task_directories: Iterable[Path]) -> None:
    """Make sure that no application works in a directory whose lock it has lost; to be called by who has taken that.

    Args:
        lock_file: the lock's.
        task_directories: as for :func:`who_lost_lock`.

    Raises:
        Fenced: one does.
    """
    holder = who_lost_lock(lock_file, task_directories)
    if holder is not None:
        raise Fenced(
            f"The state directory {lock_file.parent} is in use: {holder._replace(lost=False)} works on stores of it, "
            "and has lost its lock. Kafka Streams loses it where a second instance in the same process was refused.",
            code="application-running-without-lock",
            action="Stop that process, then run this again. Give no two instances in one process the same "
            "application.id and state.dir.",
            state_dir=str(lock_file.parent),
            process=holder.process,
        )


def _has_open(process: int, file: Path) -> bool:
    """Whether a process is seen to have a file open."""
    with suppress(OSError):
        wanted = file.stat()
        for descriptor in Path(f"/proc/{process}/fd").iterdir():
            with suppress(OSError):
                if os.path.samestat(descriptor.stat(), wanted):
                    return True
    return False
