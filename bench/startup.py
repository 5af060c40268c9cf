"""What a start on many task directories takes: memory and time, by how many databases may be open at once.

    python -m bench.startup                     1,000 tasks of two stores each
    python -m bench.startup --tasks 100

The directories are real: a database of 200 rows and one with no rows for each task, with an offset each; and so are the
standby tasks, which ask no broker before the group is joined. Every bound is
measured in a process of its own, with the files in the system's cache. Memory is the greatest resident set of the
process during the start, beyond what it had before.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from statecore.changelog.cluster import Cluster
from statecore.formats.kinds import StoreKind
from statecore.formats.topic_partition import TopicPartition
from statecore.spec.model import ApplicationSpec, ProcessingGuarantee, StoreSpec
from statecore.statedir.state_directory import StateDirectory
from statecore.stores.legacy_offsets import write_offsets
from statecore.stores.rocksdb.store import RocksDBStore
from statecore.stores.settings import Durability, StoreSettings
from statecore.tasks.offset_sums import read_offset_sums
from statecore.tasks.standby_task import StandbyTask
from statecore.tasks.startup_tasks import StartupSettings, StartupTasks
from statecore.tasks.task_stores import TaskStores

APPLICATION = "bench"
STORES = ("orders", "totals")
ROWS = 200
QUICK = StoreSettings(Durability.PROCESS)


def spec() -> ApplicationSpec:
    """Two stores of one subtopology."""
    stores = tuple(StoreSpec(name, StoreKind.KEY_VALUE, 0, f"{APPLICATION}-{name}-changelog") for name in STORES)
    return ApplicationSpec(APPLICATION, "nowhere:9092", ProcessingGuarantee.AT_LEAST_ONCE, stores)


def changelog(store: str, task: str) -> TopicPartition:
    """The changelog partition of a store of a task."""
    return TopicPartition(f"{APPLICATION}-{store}-changelog", int(task.rpartition("_")[2]))


def make(directory: StateDirectory, tasks: int) -> None:
    """Make the task directories."""
    for number in range(tasks):
        task = f"0_{number}"
        for name in STORES:
            path = directory.store_path(task, name, StoreKind.KEY_VALUE)
            with RocksDBStore(path, StoreKind.KEY_VALUE, create=True, settings=QUICK) as store:
                for row in range(ROWS if name == STORES[0] else 0):
                    store.put(b"key-%06d" % row, b"value %060d" % row)
                store.commit({changelog(name, task): 1000 + number})


def leave(directory: StateDirectory, what: str) -> None:
    """Leave ``.checkpoint`` beside each task, or ``nothing``, as a close for Kafka Streams 4.3 and later does."""
    for task in directory.task_directories():
        offset = 1000 + int(task.rpartition("_")[2])
        said = {changelog(name, task): offset for name in STORES}
        write_offsets(directory.task_path(task) / ".checkpoint", said if what == ".checkpoint" else {})


def _status(name: str) -> float:
    with Path("/proc/self/status").open() as status:
        return next(int(line.split()[1]) for line in status if line.startswith(name)) / 1024


def measure(state_dir: Path, bound: int) -> dict[str, float]:
    """Start with a bound; -1 only reads the sums, without the lock and what a start looks at besides."""
    directory = StateDirectory(state_dir, APPLICATION)
    Path("/proc/self/clear_refs").write_text("5")  # VmHWM is counted from here on
    before = _status("VmRSS")
    began = time.perf_counter()
    if bound < 0:
        sums = read_offset_sums(directory, spec())
        taken = time.perf_counter() - began
        return {"tasks": len(sums), "sum": sum(one.sum for one in sums.values()), "seconds": taken, "open": 0,
                "peak_mib": _status("VmHWM") - before, "close_s": 0.0}  # fmt: skip
    cluster = Cluster(spec().bootstrap_servers)

    def open_task(name: str) -> StandbyTask:
        task = StandbyTask(TaskStores(spec(), directory, name), cluster, spec().processing_guarantee.isolation)
        task.open()
        return task

    with directory.lock():
        tasks = StartupTasks(directory, spec(), open_task, settings=StartupSettings(max_open_databases=bound))
        sums = dict(tasks.start())
        assert not tasks.refused, next(iter(tasks.refused.items()))
        taken, memory, opened = time.perf_counter() - began, _status("VmHWM") - before, len(tasks.open_tasks)
        began = time.perf_counter()
        tasks.close_rest()
    return {"tasks": len(sums), "sum": sum(one.sum for one in sums.values()), "seconds": taken, "open": opened,
            "peak_mib": memory, "close_s": time.perf_counter() - began}  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> None:
    """Make the directories, measure each bound in a process of its own, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=1000)
    parser.add_argument("--bounds", type=int, nargs="*", default=[0, 256, 1000, 2000])
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.measure:
        sys.stdout.write(json.dumps(measure(Path(given.measure[0]), int(given.measure[1]))) + "\n")
        return
    wanted = sum(len(STORES) * (1001 + number) for number in range(given.tasks))
    sys.stdout.write("       left  bound  databases open    start s  MiB more  close s\n")
    for left in (".checkpoint", "nothing"):
        with tempfile.TemporaryDirectory() as scratch:  # of its own: a database has a file more each time it was open
            directory = StateDirectory(Path(scratch), APPLICATION)
            make(directory, given.tasks)
            for bound in (-1, *given.bounds):
                leave(directory, left)  # whoever opened the tasks meanwhile has closed them with another
                command = [sys.executable, "-m", "bench.startup", "--measure", scratch, str(bound)]
                found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
                assert found["sum"] == wanted, found
                sys.stdout.write(
                    f"{left:>11}  {bound if bound >= 0 else 'read':>5}  {found['open']:>14}  "
                    f"{found['seconds']:>9.2f}  {found['peak_mib']:>8.0f}  {found['close_s']:>7.2f}\n"
                )
                sys.stdout.flush()


if __name__ == "__main__":
    main()
