"""Whether Kafka Streams would wipe a task under exactly-once, because a database of it was not closed cleanly.

Kafka Streams goes by the status in each database alone, of stores with and without a changelog. What this library
wrote last it takes all the same, because a commit of it has rows and offset in one write: whoever opens such a database
with it, and closes it, leaves one that Kafka Streams takes too. Nothing is written here, and one database is looked
into at a time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path

from statecore.statedir.store_on_disk import read_database
from statecore.statedir.task_layout import stores_in


def is_unclean(database: Path) -> bool:
    """Whether Kafka Streams would not take a database under exactly-once, whoever left it so.

    Raises:
        Corrupted, Fenced, Capacity, Invalid, NotFound, Retryable: see :func:`read_database`.
    """
    return not read_database(database).opened().closed_cleanly


def is_distrusted(database: Path) -> bool:
    """Whether neither Kafka Streams nor this library takes a database under exactly-once.

    Raises:
        Corrupted, Fenced, Capacity, Invalid, NotFound, Retryable: see :func:`read_database`.
    """
    return not read_database(database).checked().trusted


def distrusted_in(databases: Iterable[Path]) -> Path | None:
    """The first of some databases that :func:`is_distrusted`; ``None`` where there is none. Raises what that does."""
    return next((database for database in databases if is_distrusted(database)), None)


def distrusted_of_task(path: Path, known: Collection[Path] = ()) -> Path | None:
    """The first database in a task directory that :func:`is_distrusted`, of any store. Raises what that does.

    Args:
        path: the task directory.
        known: databases that are not looked into, because they are known to be trusted.
    """
    every = (database for store in stores_in(path) for database in store.databases)
    return distrusted_in(database for database in every if database not in known)
