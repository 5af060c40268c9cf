"""What Kafka Streams 4.3 leaves of a database when it is killed while it creates it.

``RocksDBStore.openRocksDB`` opens the database with ``default`` alone, so that the first ``OPTIONS`` names that, and it
has the other families added to the MANIFEST one by one, ``offsets`` last. Another ``OPTIONS`` names all of them then.
"""

from __future__ import annotations

from pathlib import Path

import rocksdict


def interrupt_creation(path: Path, *families: str) -> Path:
    """Make a database in which no row was ever put: ``default``, and of the others these that had been added."""
    path.mkdir(parents=True)
    options = rocksdict.Options(raw_mode=True)
    options.create_if_missing(True)
    database = rocksdict.Rdict(str(path), options)
    (first,) = path.glob("OPTIONS-*")
    said = first.read_bytes()
    for name in families:
        database.create_column_family(name, rocksdict.Options(raw_mode=True)).close()
    database.close()
    for file in path.iterdir():
        if file.name.startswith(("OPTIONS-", "rocksdict-config", "LOG")):
            file.unlink()
    first.write_bytes(said)
    assert not list(path.glob("*.sst"))
    return path
