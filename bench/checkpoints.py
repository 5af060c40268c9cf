"""What a checkpoint costs against its interval: the figures behind the default of five minutes.

::

    python -m bench.checkpoints                          three store sizes, eight intervals, 3 rounds; about 15 minutes
    python -m bench.checkpoints --rounds 1 --rows 0.1    a quick look
    python -m bench.checkpoints --write                  puts table and plot into docs/

A processor with one timestamped RocksDB store is played for twenty minutes of application time: once a second it
updates random keys and commits, and the task's checkpointer is asked after every commit. Only the clock is scaled: it
moves one second at each commit, whatever that took. Commits, flushes and files are real, the log is forced to the disk
at each commit (``durability=sync``).

Then reads of random keys are measured; and the processor goes on until a second before the next checkpoint would be
due, the worst moment to die: the directory is copied as it is, and the copy opened, which is what a restart costs.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from bench.plots import Panel, plot
from statecore.filesystem import tree_bytes
from statecore.formats.kinds import StoreKind
from statecore.formats.topic_partition import TopicPartition
from statecore.statedir.file_trees import link_tree
from statecore.stores.rocksdb.store import RocksDBStore
from statecore.tasks.checkpoint_policy import CheckpointSettings, TaskCheckpointer
from statecore.tasks.task_offsets import TaskOffsets, TaskStore

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGE, PLOT = DOCS / "checkpoints.md", DOCS / "checkpoints.svg"
BEGIN, END = "<!-- figures -->", "<!-- /figures -->"

KIND = StoreKind.TIMESTAMPED_KEY_VALUE
CHANGELOG = TopicPartition("bench-store-changelog", 0)
VALUE_BYTES = 100
APPLICATION_SECONDS = 1200
UPDATES_A_COMMIT = 500
READS = 5000
NEVER = None
INTERVALS: tuple[int | None, ...] = (0, 10, 30, 60, 120, 300, 600, NEVER)
"""Seconds; ``None`` never writes one."""
LONGEST = 600
"""How long the processor goes on when none is ever due."""


@dataclass(frozen=True)
class Figure:
    """One run.

    Attributes:
        commit_ms: median of a commit.
        commit_s: all commits.
        checkpoints: how many were written.
        checkpoint_ms: median of one.
        checkpoint_s: all of them, and asking whether one is due.
        files: SST files at the end.
        read_us: median of a read of a random key at the end.
        log_mb: what a restart has to replay after a crash just before the next checkpoint.
        reopen_ms: opening the store after such a crash.
    """

    commit_ms: float
    commit_s: float
    checkpoints: float
    checkpoint_ms: float
    checkpoint_s: float
    files: float
    read_us: float
    log_mb: float
    reopen_ms: float


class Clock:
    """Application time."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def key_of(number: int) -> bytes:
    """16 bytes."""
    return b"key-%012d" % number


def build_base(path: Path, rows: int) -> None:
    """A store of so many rows, compacted and closed."""
    value = os.urandom(VALUE_BYTES)
    with RocksDBStore(path, KIND, create=True) as store:
        for begin in range(0, rows, 50_000):
            for number in range(begin, min(begin + 50_000, rows)):
                store.put(key_of(number), value)
            store.commit({CHANGELOG: begin})
        store.flush()
        store.compact()


def run(base: Path, rows: int, interval: int | None, directory: Path) -> Figure:
    """Play the processor once on a copy of the base."""
    path = directory / "rocksdb" / "store"
    link_tree(base, path)
    clock, dice = Clock(), random.Random(rows)
    store = RocksDBStore(path, KIND)
    offsets = TaskOffsets(directory, [TaskStore("store", store, (CHANGELOG,))], exactly_once=False)
    checkpointer = TaskCheckpointer(
        offsets, CheckpointSettings(10**9 if interval is NEVER else interval * 1000), clock=clock
    )
    checkpointer.open()
    commits: list[float] = []
    asked: list[float] = []
    written: list[float] = []
    offset = rows

    def second() -> tuple[float, float, bool]:
        nonlocal offset
        for _ in range(UPDATES_A_COMMIT):
            store.put(key_of(dice.randrange(rows)), dice.randbytes(VALUE_BYTES))
            offset += 1
        began = time.perf_counter()
        store.commit({CHANGELOG: offset})
        committed = time.perf_counter()
        clock.now += 1.0
        was_written = checkpointer.committed()
        return committed - began, time.perf_counter() - committed, was_written

    for _ in range(APPLICATION_SECONDS):
        commit, checkpoint, was_written = second()
        commits.append(commit)
        (written if was_written else asked).append(checkpoint)
    reads = []
    for _ in range(READS):
        key = key_of(dice.randrange(rows))
        began = time.perf_counter()
        store.get(key)
        reads.append(time.perf_counter() - began)
    files = len(list(path.glob("*.sst")))
    for _ in range((LONGEST if interval is NEVER else interval) - 1):
        second()
    crashed = directory / "crashed"
    link_tree(path, crashed)
    log_bytes = sum(file.stat().st_size for file in crashed.glob("*.log"))
    began = time.perf_counter()
    again = RocksDBStore(crashed, KIND)
    again.open()
    reopen = time.perf_counter() - began
    lost = offset - (again.committed_offset(CHANGELOG) or 0)
    again.close()
    checkpointer.close()
    if lost:
        raise RuntimeError(f"{lost} offsets that were committed are gone")
    return Figure(
        commit_ms=statistics.median(commits) * 1e3,
        commit_s=sum(commits),
        checkpoints=len(written),
        checkpoint_ms=statistics.median(written) * 1e3 if written else 0.0,
        checkpoint_s=sum(written) + sum(asked),
        files=files,
        read_us=statistics.median(reads) * 1e6,
        log_mb=log_bytes / 2**20,
        reopen_ms=reopen * 1e3,
    )


def median_of(figures: Sequence[Figure]) -> Figure:
    """Each field's median."""
    return Figure(*(statistics.median(getattr(one, field.name) for one in figures) for field in fields(Figure)))


def name_of(interval: int | None) -> str:
    """As a person says it."""
    if interval is NEVER:
        return "never"
    if interval == 0:
        return "every commit"
    return f"{interval} s" if interval < 60 else f"{interval // 60} min"


def report(measured: dict[tuple[int, int | None], Figure], sizes: dict[int, int], rounds: int) -> str:
    """The tables, in Markdown."""
    hour = 3600 / APPLICATION_SECONDS
    lines = [
        f"{os.cpu_count()} cores ({_processor()}), {rounds} round{'s' if rounds > 1 else ''}, medians. One commit a"
        f" second of {UPDATES_A_COMMIT} updates (16 + {VALUE_BYTES} bytes), {APPLICATION_SECONDS // 60} minutes of"
        f" application time. Load of the machine at the end: {os.getloadavg()[0]:.1f}.",
    ]
    for rows, size in sizes.items():
        lines += [
            "",
            f"**{rows / 1e6:g} million rows** ({size / 2**20:,.0f} MiB)",
            "",
            "| interval | a commit | checkpoints | one takes | per hour | of the commits' time | files | a read |"
            " log to replay | reopen |",
            "|---|---|---|---|---|---|---|---|---|---|",
        ]
        for (of, interval), one in measured.items():
            if of == rows:
                lines.append(
                    f"| {name_of(interval)} | {one.commit_ms:.1f} ms | {one.checkpoints:.0f}"
                    f" | {one.checkpoint_ms:.1f} ms | {one.checkpoint_s * hour:.2f} s"
                    f" | {one.checkpoint_s / one.commit_s:.1%} | {one.files:.0f} | {one.read_us:.1f} µs"
                    f" | {one.log_mb:.1f} MiB | {one.reopen_ms:.0f} ms |"
                )
    return "\n".join(lines)


def draw(measured: dict[tuple[int, int | None], Figure], rows: Iterable[int]) -> str:
    """The plot, as SVG."""
    hour = 3600 / APPLICATION_SECONDS
    labels = [name_of(interval) for interval in INTERVALS]

    def lines(value: str, scale: float = 1.0) -> dict[str, list[float]]:
        return {
            f"{count / 1e6:g} million rows": [getattr(measured[count, at], value) * scale for at in INTERVALS]
            for count in rows
        }

    return plot(
        labels,
        [
            Panel("checkpoints, seconds per hour", lines("checkpoint_s", hour), logarithmic=True),
            Panel("a read of a random key, µs", lines("read_us"), logarithmic=True),
            Panel("log to replay after a crash, MiB", lines("log_mb")),
        ],
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and with ``--write`` document."""
    parser = argparse.ArgumentParser(prog="python -m bench.checkpoints", description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=float, nargs="+", default=[0.1, 1, 4], help="store sizes, millions of rows")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--directory", type=Path, default=None, help="where; a temporary directory")
    parser.add_argument("--write", action="store_true", help="put table and plot into docs/")
    options = parser.parse_args(arguments)
    counts = [round(one * 1e6) for one in options.rows]
    figures: dict[tuple[int, int | None], list[Figure]] = {(rows, at): [] for rows in counts for at in INTERVALS}
    sizes: dict[int, int] = {}
    with tempfile.TemporaryDirectory(prefix="statecore-bench-", dir=options.directory) as scratch:
        for rows in counts:
            base = Path(scratch, f"base-{rows}")
            build_base(base, rows)
            sizes[rows] = tree_bytes(base)
        for turn in range(options.rounds):
            for rows, interval in figures:
                directory = Path(scratch, "run")
                directory.mkdir()
                figure = run(Path(scratch, f"base-{rows}"), rows, interval, directory)
                shutil.rmtree(directory)
                figures[rows, interval].append(figure)
                print(f"round {turn + 1}  {rows:>9,} rows  {name_of(interval):>12}  {figure}", file=sys.stderr)
    measured = {at: median_of(of) for at, of in figures.items()}
    text = report(measured, sizes, options.rounds)
    print(text)
    if options.write:
        page = PAGE.read_text()
        before, after = page.split(BEGIN)[0], page.split(END)[1]
        PAGE.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}")
        PLOT.write_text(draw(measured, counts))
    return 0


def _processor() -> str:
    with Path("/proc/cpuinfo").open() as info:
        names = [line.partition(":")[2].strip() for line in info if line.startswith("model name")]
    return names[0] if names else platform.processor()


if __name__ == "__main__":
    sys.exit(main())
