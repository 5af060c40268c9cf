"""Which stores of a task somebody has open: a processor on this library's stores holds no ``.lock`` of the application.

Kafka Streams holds that lock as long as it lives, one process for a directory. Processors in Python are several to a
directory, one a task, and are seen by what RocksDB itself locks, the ``LOCK`` of each database.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from statecore.errors import Fenced
from statecore.placement.contents import stores_in
from statecore.stores.lock_holder import Holder
from statecore.stores.rocksdb_ownership import writer_of


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
                action="Stop that process, then run this again.",
                task_directory=str(task_directory),
                store=store.store,
            )
