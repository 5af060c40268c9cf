"""What the newest OPTIONS file of a database says: RocksDB writes one at each open, and when a family has been made.

Kafka Streams lets an application choose options (``rocksdb.config.setter``). Most of them whoever opens the database
may choose anew. Of the levels there must be as many as there were: with fewer RocksDB refuses a database that has files
in the ones beyond.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

_FAMILY = re.compile(rb'^\[CFOptions "(.*)"\]', re.MULTILINE)
_LEVELS = re.compile(rb"^\s*num_levels=(\d+)", re.MULTILINE)
_DEFAULT_LEVELS = 7
_MOST_LEVELS = 1000
"""More than anybody has: a number that is damaged must not become memory."""


def newest_options(database: Path) -> bytes:
    """The newest OPTIONS file; empty where there is none.

    Raises:
        OSError: it cannot be read.
    """
    found = sorted(database.glob("OPTIONS-*"), key=lambda file: (len(file.name), file.name))
    found = [file for file in found if file.suffix != ".dbtmp"]
    return found[-1].read_bytes() if found else b""


def families_in(options: bytes) -> frozenset[str]:
    """The column families that an OPTIONS file names."""
    return frozenset(name.decode(errors="replace") for name in _FAMILY.findall(options))


def keep_levels(database: Path, *several: Any) -> None:
    """Give ``rocksdict.Options`` as many levels as a database has, where it has more than RocksDB's default.

    Args:
        database: its directory, or one of links to its files.
        several: the options that its column families are opened with.
    """
    try:
        said = [int(number) for number in _LEVELS.findall(newest_options(database))]
    except OSError:
        return  # RocksDB says what it is, if it matters
    levels = max((number for number in said if number <= _MOST_LEVELS), default=_DEFAULT_LEVELS)
    for options in several if levels > _DEFAULT_LEVELS else ():
        options.set_num_levels(levels)
