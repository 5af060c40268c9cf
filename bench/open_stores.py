"""What many open stores take: memory, descriptors, threads.

    python -m bench.open_stores                 10, 100 and 1,000 stores with default settings
    python -m bench.open_stores --shared 64 100

Each number of stores is measured in a process of its own: the stores are opened, written to, flushed, written to again
and read, turn by turn, until they hold several times what they may share. Memory is the process's resident set beyond
what it had before the first store, its peak included.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from statecore.formats.kinds import StoreKind
from statecore.formats.topic_partition import TopicPartition
from statecore.stores.rocksdb.memory import memory_of
from statecore.stores.rocksdb.store import RocksDBStore
from statecore.stores.settings import Durability, MemorySettings, StoreSettings

CHANGELOG = TopicPartition("bench-store-changelog", 0)
MIB = 1 << 20
TURNS = 3
VALUE_BYTES = 1000
WRITTEN = 2.5
"""How much is written, as a multiple of what is shared."""


def _status(name: str) -> float:
    with Path("/proc/self/status").open() as status:
        return next(int(line.split()[1]) for line in status if line.startswith(name)) / 1024


def _descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def measure(directory: Path, count: int, memory: MemorySettings) -> dict[str, float]:
    """Open so many stores, work with them, and say what they took."""
    settings = StoreSettings(Durability.PROCESS, memory=memory)
    stores = [
        RocksDBStore(directory / str(number), StoreKind.TIMESTAMPED_KEY_VALUE, create=True, settings=settings)
        for number in range(count)
    ]
    rows = max(int(WRITTEN * memory.total_bytes / VALUE_BYTES / count / TURNS), 1)
    dice = random.Random(count)
    before, descriptors = _status("VmRSS"), _descriptors()
    began = time.perf_counter()
    for store in stores:
        store.open()
    opened = time.perf_counter() - began
    idle, idle_descriptors = _status("VmRSS") - before, _descriptors() - descriptors
    for turn in range(TURNS):
        for store in stores:
            for number in range(rows):
                store.put(b"%03d-%012d" % (turn, number), dice.randbytes(VALUE_BYTES))
            store.commit({CHANGELOG: turn})
        for store in stores:
            if turn < TURNS - 1:
                store.flush()
            for _ in range(rows):
                store.get(b"%03d-%012d" % (dice.randrange(turn + 1), dice.randrange(rows)))
    found = {
        "stores": count,
        "shared_mib": memory.total_bytes / MIB,
        "written_mib": TURNS * rows * count * VALUE_BYTES / MIB,
        "open_ms": opened / count * 1e3,
        "idle_mib": idle,
        "rss_mib": _status("VmRSS") - before,
        "peak_mib": _status("VmHWM") - before,
        "cache_mib": memory_of(memory).cache.get_usage() / MIB,
        "idle_descriptors": idle_descriptors / count,
        "descriptors": (_descriptors() - descriptors) / count,
        "threads": float(sum(1 for _ in Path("/proc/self/task").iterdir())),
    }
    for store in stores:
        store.close()
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.open_stores", description=__doc__.splitlines()[0])
    parser.add_argument("stores", type=int, nargs="*", default=[10, 100, 1000])
    parser.add_argument("--shared", type=int, default=128, help="MiB that the stores share; half of it for writes")
    parser.add_argument("--directory", type=Path, default=None, help="where; a temporary directory")
    parser.add_argument("--json", action="store_true", help="measure one number of stores in this process")
    options = parser.parse_args(arguments)
    if options.json:
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 100_000), hard))
        memory = MemorySettings(options.shared * MIB, options.shared * MIB // 2)
        with tempfile.TemporaryDirectory(prefix="statecore-bench-", dir=options.directory) as scratch:
            print(json.dumps(measure(Path(scratch), options.stores[0], memory)))
        return 0
    print("| stores | open, each | idle | after work | peak | descriptors each: idle, after work | threads |")
    print("|---|---|---|---|---|---|---|")
    for count in options.stores:
        command = [sys.executable, "-m", "bench.open_stores", "--json", "--shared", str(options.shared), str(count)]
        if options.directory:
            command += ["--directory", str(options.directory)]
        one = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        print(
            f"| {count:,} | {one['open_ms']:.0f} ms | {one['idle_mib']:.0f} MiB | {one['rss_mib']:.0f} MiB"
            f" | {one['peak_mib']:.0f} MiB | {one['idle_descriptors']:.1f}, {one['descriptors']:.1f}"
            f" | {one['threads']:.0f} |"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
