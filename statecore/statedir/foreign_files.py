"""Files in a database's directory that neither RocksDB nor this library creates."""

from __future__ import annotations

import re
from pathlib import Path

from statecore.stores.rocksdb.directory import CONFIG_FILE
from statecore.stores.rocksdb.manifest_guard import LOST_DIRECTORY, WITNESS_FILE

_OF_ROCKSDB = re.compile(
    r"CURRENT|IDENTITY|LOCK|LOG(\.old\.\d+)?|(MANIFEST|OPTIONS)-\d+|\d+\.(sst|log|blob|dbtmp)|OPTIONS-\d+\.dbtmp"
)
_OURS = frozenset({WITNESS_FILE, f"{WITNESS_FILE}.tmp", LOST_DIRECTORY})


def foreign_in(path: Path) -> tuple[str, ...]:
    """Names in a directory that neither creates, plus the settings file that rocksdict writes."""
    try:
        names = sorted(entry.name for entry in path.iterdir())
    except OSError:
        return ()
    return tuple(name for name in names if not is_of_rocksdb(name) or name == CONFIG_FILE)


def is_of_rocksdb(name: str) -> bool:
    """Whether a name is one of RocksDB's or of this library's files."""
    return name in _OURS or _OF_ROCKSDB.fullmatch(name) is not None
