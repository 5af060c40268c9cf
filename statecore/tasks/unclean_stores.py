"""Detects databases for which Kafka Streams would wipe a task under exactly-once: those not closed cleanly.

Kafka Streams goes by the status in each database alone, of stores with and without a changelog. This library also
accepts what it wrote last itself, because its commits have rows and offset in one write: opened and closed by it, such
a database is accepted by Kafka Streams too. Nothing is written here, and one database is read at a time.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from statecore.statedir.store_on_disk import read_database
from statecore.statedir.task_layout import stores_in


def is_unclean(database: Path) -> bool:
    """Whether Kafka Streams would not accept a database under exactly-once; raises as :func:`read_database`."""
    return not read_database(database).opened().closed_cleanly


def is_rejected(database: Path) -> bool:
    """Whether neither Kafka Streams nor this library accepts a database under exactly-once; raises as
    :func:`read_database`.
    """
    return not read_database(database).checked().trusted


def first_rejected(databases: Iterable[Path]) -> Path | None:
    """The first of some databases that :func:`is_rejected`; ``None`` where there is none."""
    return next((database for database in databases if is_rejected(database)), None)


def rejected_in_task(path: Path) -> Path | None:
    """The first database in a task directory that :func:`is_rejected`, of any store."""
    return first_rejected(database for store in stores_in(path) for database in store.databases)
