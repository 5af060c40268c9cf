"""Reads the newest OPTIONS file of a database, which RocksDB writes at each open and after creating a family.

Kafka Streams lets an application choose options (``rocksdb.config.setter``). Most of them may differ at each open.
Three kinds are bound to the database:

- **Levels.** Each family must be opened with its number of levels: with fewer RocksDB refuses the files beyond, and
  with more it moves files to where the application does not find them.
- **What this library cannot read**: another comparator, another table format (:func:`unreadable_here`).
- **What the application could not open if this library built it**: the same, and few levels (:func:`unopenable_there`).

``docs/rocksdb-options.md`` lists the options.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from statecore.filesystem import read_regular

_FAMILY = re.compile(rb'^\[CFOptions "(.*)"\]', re.MULTILINE)
_SECTION = re.compile(rb'^\[([^ \]]+)(?: "(.*)")?\]')
_DEFAULT_LEVELS = 7
_MOST_LEVELS = 1000  # More than any database has: a damaged number must not allocate memory
_COMPARATOR, _TABLE = "leveldb.BytewiseComparator", "BlockBasedTable"


def newest_options(database: Path) -> bytes:
    """The newest OPTIONS file; empty if there is none."""
    found = sorted(database.glob("OPTIONS-*"), key=lambda file: (len(file.name), file.name))
    found = [file for file in found if file.suffix != ".dbtmp"]
    return read_regular(found[-1]) if found else b""


def families_in(options: bytes) -> frozenset[str]:
    """The column families that an OPTIONS file names."""
    return frozenset(name.decode(errors="replace") for name in _FAMILY.findall(options))


def family_options(options: bytes) -> Mapping[str, Mapping[str, str]]:
    """The options of each column family in an OPTIONS file, as text."""
    found: dict[str, dict[str, str]] = {}
    inside: dict[str, str] = {}
    for line in options.splitlines():
        section = _SECTION.match(line)
        if section is not None:
            of_family = section[1] == b"CFOptions" and section[2] is not None
            inside = found.setdefault(section[2].decode(errors="replace"), {}) if of_family else {}
        elif b"=" in line:
            name, _, value = line.partition(b"=")
            inside[name.strip().decode(errors="replace")] = value.strip().decode(errors="replace")
    return found


def unreadable_here(options: bytes) -> tuple[str, ...]:
    """Why this library cannot read a database with these options, compression aside, which each block names."""
    reasons = []
    for family, settings in family_options(options).items():
        comparator, table = settings.get("comparator", _COMPARATOR), settings.get("table_factory", _TABLE)
        if comparator != _COMPARATOR:
            reasons.append(f"the family {family} is ordered by the comparator {comparator}")
        if table != _TABLE:
            reasons.append(f"the family {family} has files of the format {table}")
    return tuple(reasons)


def unopenable_there(database: Path) -> str:
    """Why an application could not open a database built here in place of this one; empty if nothing is known.

    Databases built here are ordered by bytes, in block-based tables, in the last of seven levels.
    """
    try:
        options = newest_options(database)
    except OSError:
        return ""
    few = {family: number for family, number in levels_in(options).items() if number < _DEFAULT_LEVELS}
    levels = (f"the family {family} has {number} levels and not {_DEFAULT_LEVELS}" for family, number in few.items())
    return "; ".join((*unreadable_here(options), *levels))


def levels_in(options: bytes) -> Mapping[str, int]:
    """The number of levels of each column family in an OPTIONS file; families without a valid number are left out."""
    found = {}
    for family, settings in family_options(options).items():
        number = settings.get("num_levels", "")
        if number.isascii() and number.isdigit() and 0 < int(number) <= _MOST_LEVELS:
            found[family] = int(number)
    return found


def keep_levels(database: Path, families: Mapping[str, Any]) -> None:
    """Set the number of levels of each family (``rocksdict.Options``, maybe shared), if it is not RocksDB's default."""
    try:
        levels_of = levels_in(newest_options(database))
    except OSError:
        return  # RocksDB reports the error, if it matters
    wanted: dict[int, tuple[Any, int]] = {}
    for family, options in families.items():
        if family in levels_of:
            _, most = wanted.get(id(options), (options, 0))
            wanted[id(options)] = options, max(most, levels_of[family])
    for options, levels in wanted.values():
        if levels != _DEFAULT_LEVELS:
            options.set_num_levels(levels)
