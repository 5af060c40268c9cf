"""A process that works on a store of an application and holds its lock no more."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

from statecore.statedir.state_directory import StateDirectory

LOSES_THE_LOCK = """
    import os, sys
    from pathlib import Path
    from statecore.formats.kinds import StoreKind
    from statecore.statedir.state_directory import StateDirectory
    from statecore.stores.rocksdb.store import RocksDBStore
    directory = StateDirectory(Path(sys.argv[1]), sys.argv[4])
    lock = directory.lock()
    store = RocksDBStore(Path(sys.argv[2]), StoreKind.KEY_VALUE, create=True)
    store.open()
    if sys.argv[3] == "lost":
        os.close(os.open(directory.path / ".lock", os.O_RDONLY))  # as the garbage collector of a JVM does
    else:
        lock.release()
    print("ready", flush=True)
    sys.stdin.read()
    store.close()
"""


@contextlib.contextmanager
def at_work(directory: StateDirectory, store: Path, how: str) -> Iterator[int]:
    """The process while it works; its id.

    Args:
        directory: the application's.
        store: the directory of the store, a key-value store; made where there is none.
        how: ``lost``: as a Kafka Streams whose lock has fallen; ``released``: as who has let go of it.
    """
    store.parent.mkdir(parents=True, exist_ok=True)
    run = [sys.executable, "-c", textwrap.dedent(LOSES_THE_LOCK), directory.state_dir, store, how]
    with subprocess.Popen(
        [*run, directory.application_id], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process.pid
        process.communicate()
