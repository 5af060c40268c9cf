"""Limits the files that RocksDB keeps open, and reduces the files of a database that exceeds them.

RocksDB by default keeps every file of every database open, so a database with many files cannot even be opened under a
low descriptor limit. Here each database keeps a share of the process's limit open, and opens other files when they are
read. That does not help where all files are needed at once: every level-0 file takes part in every scan and, by
default, in the next compaction, and a compaction that fails for lack of descriptors stops all writes. So a database
with very many level-0 files is compacted in steps before use.
"""

from __future__ import annotations

import logging
import os
import resource
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

FIXED_DESCRIPTORS = 9
"""Descriptors of an open store without data files, measured: its log file, ``LOG``, ``LOCK``, MANIFEST, and its
directory several times. Each SST file in use adds one.
"""

CROWDED = 36  # Level-0 files at which RocksDB stops writes until some are compacted (level0_stop_writes_trigger)
_MERGED_AT_ONCE = 32
_SHARES = 16
_FEWEST = 20  # RocksDB's minimum of max_open_files, of which it reserves ten for other files
_ENOUGH = 1 << 20
_POLL_SECONDS = 0.01

_OPENING_THREADS = 16  # RocksDB's default of max_file_opening_threads
_FILES_OF_A_THREAD = 8  # Files that can be opened in about the time that a thread takes to start
_log = logging.getLogger(__name__)


def descriptor_limit() -> int | None:
    """Descriptor limit of this process (``ulimit -n``); ``None`` if unlimited."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft


def max_open_files() -> int:
    """``max_open_files`` of a database: a sixteenth of the process's limit, at least 20; -1 (all) from a million."""
    limit = descriptor_limit()
    return -1 if limit is None or limit >= _ENOUGH else max(limit // _SHARES, _FEWEST)


def advice() -> str:
    """What to do when descriptors ran out."""
    limit = descriptor_limit()
    now = "unlimited" if limit is None else str(limit)
    return (
        f"Raise this process's limit of open files (ulimit -n; it is {now}) or open fewer stores in it: "
        f"a store takes up to {FIXED_DESCRIPTORS} descriptors and one more for each file it reads"
    )


def opening_threads(path: Path) -> int:
    """``max_file_opening_threads`` for the database in a directory, by its number of files.

    RocksDB starts that many for each column family, regardless of its files: 45 threads, three quarters of the time to
    open a small database.
    """
    with os.scandir(path) as entries:
        files = sum(entry.name.endswith(".sst") for entry in entries)
    return min(_OPENING_THREADS, 1 + files // _FILES_OF_A_THREAD)


def is_crowded(path: Path, target_file_bytes: int) -> bool:
    """Whether level 0 may have too many files for writes; those of the last level have about ``target_file_bytes``."""
    small = 0
    for file in path.glob("*.sst"):
        small += file.stat().st_size < target_file_bytes // 2
    return small > CROWDED


def merge_in_steps(path: Path, families: Iterable[Any]) -> None:
    """Wait until level 0 of each family is no longer crowded, or RocksDB is idle or has failed."""
    for family in families:
        began, at_first, idle = time.monotonic(), _level0_files(family), 0
        while (files := _level0_files(family)) >= CROWDED and idle < 10:
            if family.property_value("rocksdb.background-errors") != "0":
                return
            busy = {
                family.property_value(f"rocksdb.{what}") for what in ("compaction-pending", "num-running-compactions")
            }
            idle = idle + 1 if busy == {"0"} else 0
            time.sleep(_POLL_SECONDS)
        if at_first >= CROWDED:
            took = time.monotonic() - began
            _log.warning("%s had %d files in level 0; compacted to %d in %.1f s", path, at_first, files, took)


def set_small_steps(options: Any) -> None:
    """Limit the files that one compaction of a family merges."""
    from rocksdict import UniversalCompactOptions

    universal = UniversalCompactOptions()
    universal.max_merge_width = _MERGED_AT_ONCE
    universal.max_size_amplification_percent = 1_000_000_000  # else it takes all files at once to save space
    options.set_universal_compaction_options(universal)


def _level0_files(family: Any) -> int:
    return int(family.property_value("rocksdb.num-files-at-level0") or 0)
