"""What it costs to build an image of several overlapping runs: merged by statecore before the ingest, or by RocksDB.

    python -m bench.merge_before_ingest [--runs 8] [--keys 500000] [--value 100]

All runs have about the same keys. The other way is what statecore did before: all runs are ingested, RocksDB merges its
files, and all rows are read back for their digest. Both ways are measured in turns, each on the same runs.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median

from bench.runs import batches
from statecore.filesystem import file_sha256, link_or_copy, tree_bytes
from statecore.formats.kinds import StoreKind
from statecore.formats.topic_partition import TopicPartition
from statecore.images import runs, runs_digest
from statecore.images.digest import digest_rows
from statecore.images.image import build_image
from statecore.images.model import Below, RunFile
from statecore.stores.rocksdb.store import RocksDBStore
from statecore.stores.settings import KEEP_FILES, Durability

KIND = StoreKind.KEY_VALUE
RECORDS_A_KEY = 3
OFFSETS = {TopicPartition("t", 0): 1}


def overlapping_runs(directory: Path, count: int, keys: int, value: int) -> list[RunFile]:
    """So many runs, each of records with keys drawn from the same ones."""
    made: list[RunFile] = []
    for number in range(count):
        (directory / str(number)).mkdir(parents=True)
        start, end = (RECORDS_A_KEY * keys * at for at in (number, number + 1))
        builder = runs.RunBuilder(KIND, directory / str(number), below=Below(anything=number > 0), start=start)
        for batch in batches(end - start, keys + number, value, 0.05):
            builder.add(batch)
        made += builder.finish(end)
    return made


def by_rocksdb(directory: Path, made: list[RunFile]) -> str:
    """All runs ingested and hashed, merged by RocksDB, read back."""
    with RocksDBStore(
        directory, KIND, create=True, settings=replace(KEEP_FILES, durability=Durability.PROCESS)
    ) as store:
        staged = [directory / f"{number:05d}.ingest" for number in range(len(made))]
        for run, target in zip(made, staged, strict=True):
            link_or_copy(run.path, target)
        for file in store.ingest(staged):
            file_sha256(file)
        store.compact()
        digest = digest_rows(store.scan_lists()).digest
        store.commit(OFFSETS)
    return digest


def by_statecore(directory: Path, made: list[RunFile]) -> str | None:
    """The image as a job builds it."""
    return build_image(directory, KIND, made, OFFSETS).digest


Way = Callable[[Path, list[RunFile]], str | None]


def timed(action: Way, directory: Path, made: list[RunFile]) -> tuple[float, float]:
    """CPU and wall seconds."""
    before, wall = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    action(directory, made)
    wall = time.perf_counter() - wall
    after = resource.getrusage(resource.RUSAGE_SELF)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall


def main() -> None:
    """Measure both ways in turns, and print medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=8)
    parser.add_argument("--keys", type=int, default=500_000)
    parser.add_argument("--value", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    runs.warm()
    runs_digest.warm()
    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary)
        made = overlapping_runs(directory / "runs", arguments.runs, arguments.keys, arguments.value)
        rows, size = sum(run.rows for run in made), sum(run.file_bytes for run in made)
        print(f"{len(made)} runs, {rows} rows, {size >> 20} MiB")
        ways: dict[str, Way] = {"merged by RocksDB, read back": by_rocksdb, "merged by statecore": by_statecore}
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
        for turn in range(arguments.rounds):
            for name, way in ways.items():
                found[name].append(timed(way, directory / f"{way.__name__}-{turn}", made))
        digests = {way(directory / way.__name__, made) for way in ways.values()}
        assert len(digests) == 1, digests
        for name, way in ways.items():
            cpu, wall = (median(column) for column in zip(*found[name], strict=True))
            bytes_ = tree_bytes(directory / way.__name__) >> 20
            print(f"{name:32s} {cpu:7.2f} s CPU {wall:7.2f} s wall   image of {bytes_} MiB")


if __name__ == "__main__":
    main()
