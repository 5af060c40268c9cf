"""The benchmark: the same changelog restored by real Kafka Streams and by statecore, side by side, in one run.

::

    make bench                                        2, 20 and 100 million records, then every kind of store
    python -m bench.restore --sizes 2 --rounds 1      a quick look
    python -m bench.restore --write                   puts the figures into bench/README.md

The sizes are of a timestamped key-value store; then each kind of store (``bench.kinds``) is measured at one size. Each
is measured in several rounds, one of 50 million records or more in one. The broker keeps all of them until the end.

Each round runs, one after another on the same broker: Kafka Streams with two threads, statecore, Kafka Streams with one
thread, plain Java consumers that read the topic and do nothing, and the ceiling (``bench.ceiling``). Every contender is
a process of its own, measured from outside with everything it starts (``bench.process``). The medians are printed.

*With start-up* is the wall time until the state is usable: for Kafka Streams from the start of its JVM to RUNNING, for
statecore the whole command, Spark's start and stop included. *Without start-up* is, for Kafka Streams, from the first
partition's start of restore to the last one's end; for statecore the phases read, build and place.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.ceiling import disk_rate
from bench.changelog import ChangelogSize, fill, start_broker
from bench.kinds import KINDS, BenchKind
from bench.process import Cost, measure
from bench.restoring import ENGINES, restore, write_spec
from bench.streams import STORE, changelog_topic, create_source

README = Path(__file__).with_name("README.md")
BEGIN, END = "<!-- figures -->", "<!-- /figures -->"
MILLION = 1_000_000
WITHOUT_SPARK = "statecore, 2 processes"
CEILING = "ceiling: bare sockets, 2 processes"
KIND_CONTENDERS = ("Kafka Streams, 2 threads", "statecore")
"""Who is compared for each kind of store."""
PEERS = ("Kafka Streams", "plain Java consumer")
"""How the names of those begin who are left out with ``--only``."""
LARGE = 50
"""Millions of records from which on a round takes many minutes, and there is one."""
LOG_BYTES, STATE_BYTES = 65, 130
"""Disk for each record: of its topic, which stays, and of a restore, whose state lies there twice for a while."""
_filled: set[str] = set()


@dataclass(frozen=True)
class Figure:
    """One run of one contender.

    Attributes:
        contender: who.
        with_startup: seconds until the state is usable, from the start of the process.
        without_startup: seconds of the work alone.
        cpu: CPU seconds of the whole process tree.
        peak_mb: its peak memory.
        phases: seconds of each phase, where there are any.
        work: seconds of all tasks added up, by what they did, where there are any.
        work_cpu: their CPU seconds.
        state_mb: MiB on disk of what was restored, where that is said.
    """

    contender: str
    with_startup: float
    without_startup: float
    cpu: float
    peak_mb: float
    phases: Mapping[str, float] = field(default_factory=dict)
    work: Mapping[str, float] = field(default_factory=dict)
    work_cpu: Mapping[str, float] = field(default_factory=dict)
    state_mb: float = 0.0


@dataclass(frozen=True)
class Setting:
    """What is restored in one comparison.

    Attributes:
        servers: ``host:port`` of the broker.
        size: millions of records.
        kind: the kind of store.
        scratch: a directory for state directories and specs.
    """

    servers: str
    size: int
    kind: BenchKind
    scratch: Path

    @property
    def application(self) -> str:
        """The application id."""
        return f"bench-{self.kind.kind}-{self.size}m"

    @property
    def records(self) -> int:
        """Records of the changelog."""
        return self.size * MILLION


def main() -> int:
    """Run the benchmark, print the figures."""
    parser = argparse.ArgumentParser(prog="python -m bench.restore", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--sizes", default="2,20,100", help="millions of records, with commas (default: 2,20,100)")
    parser.add_argument("--kinds", default=",".join(KINDS), help="kinds of store, with commas (default: all)")
    parser.add_argument(
        "--kinds-size", type=int, default=4, help="millions of records of each kind (default: 4; 0: none)"
    )
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each size below 50 (default: 3)")
    parser.add_argument("--only", choices=["statecore"], help="leave Kafka Streams and Java out")
    parser.add_argument(
        "--write", action="store_true", help="put the figures into bench/README.md, in place of all that are there"
    )
    given = parser.parse_args()
    sizes = [int(size) for size in given.sizes.split(",") if size]
    kinds = [KINDS[name] for name in given.kinds.split(",") if name and given.kinds_size]
    parts = [f"{_machine()}; medians of {given.rounds} rounds, from {LARGE} million records on one round.\n"]
    with tempfile.TemporaryDirectory(prefix="statecore-bench-") as scratch:
        every = [*sizes, *[given.kinds_size] * len(kinds)]
        wanted = (sum(every) * LOG_BYTES + max(every, default=0) * STATE_BYTES) * MILLION
        if wanted > shutil.disk_usage(scratch).free:
            parser.error(f"{scratch} needs room for {wanted >> 30} GiB; set TMPDIR, or ask for smaller sizes")
        broker = start_broker(Path(scratch, "broker"))
        try:
            for size in sizes:
                setting = Setting(broker.bootstrap_servers, size, next(iter(KINDS.values())), Path(scratch))
                figures = _measure(setting, given.rounds if size < LARGE else 1, given.only)
                parts.append(_markdown(size, figures, disk_rate(Path(scratch))))
                print(parts[-1], flush=True)
            if kinds:
                settings = [Setting(broker.bootstrap_servers, given.kinds_size, kind, Path(scratch)) for kind in kinds]
                found = {one.kind.kind: _measure(one, given.rounds, given.only, KIND_CONTENDERS) for one in settings}
                parts.append(_kinds_markdown(given.kinds_size, found))
                print(parts[-1], flush=True)
        finally:
            broker.stop()
    if given.write:
        before, _, rest = README.read_text().partition(BEGIN)
        after = rest.partition(END)[2]
        README.write_text(before + BEGIN + "\n" + "\n".join(parts) + END + after)
    return 0


def _measure(at: Setting, rounds: int, only: str | None, contenders: Sequence[str] | None = None) -> list[Figure]:
    if at.application not in _filled:
        _filled.add(at.application)
        create_source(at.servers, at.application)
        seconds = fill(at.servers, changelog_topic(at.application), ChangelogSize(at.records, kind=at.kind))
        _say(f"{at.size} M records of {at.kind.kind} produced in {seconds:.0f} s")
    figures: list[Figure] = []
    every = {
        "Kafka Streams, 2 threads": lambda: _streams(at, 2),
        "statecore": lambda: _statecore(at, "spark"),
        WITHOUT_SPARK: lambda: _statecore(at, "processes"),
        "Kafka Streams, 1 thread": lambda: _streams(at, 1),
        "plain Java consumer, 2 threads": lambda: _drain(at, 2),
        CEILING: lambda: _bare(at),
    }
    for turn in range(rounds):
        for name, run in every.items():
            if (only is None or not name.startswith(PEERS)) and (contenders is None or name in contenders):
                figures.append(run())
                one = figures[-1]
                _say(
                    f"{at.kind.kind}, {at.size} M, round {turn + 1}, {name}: {one.with_startup:.1f} s, "
                    f"CPU {one.cpu:.1f} s {one.phases}"
                )
    return figures


def _streams(at: Setting, threads: int) -> Figure:
    state = Path(at.scratch, "state-streams")
    shutil.rmtree(state, ignore_errors=True)
    command = [sys.executable, "-m", "bench.streams", "restore", "--bootstrap-servers", at.servers]
    command += ["--application-id", at.application, "--state-dir", str(state), "--threads", str(threads)]
    command += ["--kind", at.kind.kind]
    cost = _checked(measure(command))
    shutil.rmtree(state)
    result = json.loads(cost.stdout)
    plural = "s" if threads > 1 else ""
    return Figure(
        f"Kafka Streams, {threads} thread{plural}",
        result["running_seconds"],
        result["restore_seconds"],
        cost.cpu,
        cost.peak_mb,
    )


def _statecore(at: Setting, engine: str) -> Figure:
    spec = write_spec(Path(at.scratch, "stores.yaml"), at.servers, at.application, {STORE: at.kind.spec})
    state = Path(at.scratch, "state-statecore")
    found = restore(spec, state, "--versioned", "latest", *ENGINES[engine])
    shutil.rmtree(state)
    cost, report = found.cost, found.report
    if report["totals"]["records"] != at.records:
        raise RuntimeError(f"statecore read {report['totals']['records']} records, not {at.records}")
    phases = {name: round(seconds, 2) for name, seconds in report["phases"].items()}
    work = sum(phases[name] for name in ("read", "build", "place"))
    name = "statecore" if engine == "spark" else WITHOUT_SPARK
    state_mb = found.state_bytes / 2**20
    return Figure(name, cost.wall, work, cost.cpu, cost.peak_mb, phases, report["work"], report["cpu"], state_mb)


def _drain(at: Setting, threads: int) -> Figure:
    command = [sys.executable, "-m", "bench.streams", "drain", "--bootstrap-servers", at.servers]
    cost = _checked(measure([*command, "--application-id", at.application, "--threads", str(threads)]))
    result = json.loads(cost.stdout)
    name = f"plain Java consumer, {threads} threads"
    return Figure(name, cost.wall, result["seconds"], cost.cpu, cost.peak_mb)


def _bare(at: Setting) -> Figure:
    command = [sys.executable, "-m", "bench.ceiling", "--bootstrap-servers", at.servers]
    cost = _checked(measure([*command, "--topic", changelog_topic(at.application), "--processes", "2"]))
    result = json.loads(cost.stdout)
    if result["records"] != at.records:
        raise RuntimeError(f"the bare sockets brought {result['records']} records, not {at.records}")
    return Figure(CEILING, cost.wall, result["seconds"], cost.cpu, cost.peak_mb)


def _checked(cost: Cost) -> Cost:
    if cost.returncode != 0:
        raise RuntimeError(f"a contender failed with exit code {cost.returncode}: {cost.stdout}")
    return cost


def _markdown(size: int, figures: list[Figure], disk: float) -> str:
    lines = [
        f"**{size} million records** (16 + 100 bytes, {size / 4:g} M keys, 4 partitions, lz4)\n",
        "| | with start-up | × | without start-up | × | records/s, with start-up | CPU, whole tree | peak memory |",
        "|---|---|---|---|---|---|---|---|",
    ]
    names = list(dict.fromkeys(figure.contender for figure in figures))
    medians = {name: _median([figure for figure in figures if figure.contender == name]) for name in names}
    ours = medians["statecore"]
    for name, one in medians.items():
        lines.append(
            f"| {name} | {one.with_startup:.1f} s | {one.with_startup / ours.with_startup:.2f} "
            f"| {one.without_startup:.1f} s | {one.without_startup / ours.without_startup:.2f} "
            f"| {size * MILLION / one.with_startup:,.0f} | {one.cpu:.1f} s = {one.cpu / size:.2f} µs/record "
            f"| {one.peak_mb:,.0f} MiB |"
        )
    bare = medians[CEILING]
    own = {name: one for name, one in medians.items() if name in ("statecore", WITHOUT_SPARK)}
    shares = "; ".join(
        f"{name} {bare.without_startup / one.without_startup:.0%} without start-up and "
        f"{bare.without_startup / one.with_startup:.0%} with it"
        for name, one in own.items()
    )
    return "\n".join(
        [
            *lines,
            *(f"\n{name}: {_spent(one, size)}" for name, one in own.items()),
            f"\nOf the ceiling's records a second: {shares}. The disk takes {disk / MILLION:,.0f} MB/s in sequence, "
            f"fsync included: {ours.state_mb:,.0f} MiB of state would take it {ours.state_mb * 2**20 / disk:.1f} s.\n",
        ]
    )


def _spent(one: Figure, size: int) -> str:
    """Where the time went: the phases, and all tasks added up."""
    phases = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in one.phases.items())
    work = ", ".join(
        f"{name} {seconds:.1f} s = {seconds / size:.2f} µs/record ({one.work_cpu[name] / size:.2f} CPU)"
        for name, seconds in one.work.items()
    )
    return f"phases {phases}. Inside the tasks, added up: {work}."


def _kinds_markdown(size: int, found: dict[str, list[Figure]]) -> str:
    lines = [
        f"**Every kind of store, {size} million records each** (16 bytes and times + 100 bytes, {size / 4:g} M keys)\n",
        "| kind | statecore | Kafka Streams, 2 threads | × with start-up | × without | statecore, work of the tasks "
        "| against the first | CPU, whole tree |",
        "|---|---|---|---|---|---|---|---|",
    ]
    first = 0.0
    for kind, figures in found.items():
        ours = _median([figure for figure in figures if figure.contender == "statecore"])
        peers = [figure for figure in figures if figure.contender != "statecore"]
        theirs = _median(peers) if peers else None
        work = sum(ours.work.values()) / size
        first = first or work
        beside, cpu = "| | | ", f"{ours.cpu / size:.2f}"
        if theirs is not None:
            beside = (
                f"| {theirs.with_startup:.1f} s | {theirs.with_startup / ours.with_startup:.2f} "
                f"| {theirs.without_startup / ours.without_startup:.2f} "
            )
            cpu += f" against {theirs.cpu / size:.2f}"
        lines.append(
            f"| {kind} | {ours.with_startup:.1f} s {beside}| {work:.2f} µs/record | {work / first:.2f} "
            f"| {cpu} µs/record |"
        )
    return "\n".join([*lines, ""])


def _median(figures: list[Figure]) -> Figure:
    def middle(values: list[float]) -> float:
        return statistics.median(values)

    return Figure(
        figures[0].contender,
        middle([figure.with_startup for figure in figures]),
        middle([figure.without_startup for figure in figures]),
        middle([figure.cpu for figure in figures]),
        middle([figure.peak_mb for figure in figures]),
        {name: middle([figure.phases[name] for figure in figures]) for name in figures[0].phases},
        {name: middle([figure.work[name] for figure in figures]) for name in figures[0].work},
        {name: middle([figure.work_cpu[name] for figure in figures]) for name in figures[0].work_cpu},
        middle([figure.state_mb for figure in figures]),
    )


def _machine() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.partition(":")[2].strip() for line in lines if "model name" in line), platform.machine())
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    return f"{os.cpu_count()} cores ({model}), {memory:.0f} GiB"


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
