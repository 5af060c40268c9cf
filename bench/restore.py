"""The benchmark: the same changelog restored by real Kafka Streams and by statecore, side by side, in one run.

::

    make bench                                        2, 8 and 20 million records, 3 rounds each
    python -m bench.restore --sizes 2 --rounds 1      a quick look
    python -m bench.restore --write                   puts the figures into bench/README.md

Each round runs, one after another on the same broker: Kafka Streams with two threads, statecore, Kafka Streams with one
thread, and the ceiling (plain Java consumers that read the topic and do nothing). Every contender is a process of its
own, measured from outside with everything it starts (``bench.process``). The medians are printed.

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
from dataclasses import dataclass
from pathlib import Path

import yaml

from bench.changelog import ChangelogSize, fill, start_broker
from bench.process import Cost, measure
from bench.streams import STORE, changelog_topic, create_source

README = Path(__file__).with_name("README.md")
BEGIN, END = "<!-- figures -->", "<!-- /figures -->"
MILLION = 1_000_000


@dataclass(frozen=True)
class Figure:
    """One run of one contender.

    Attributes:
        contender: who.
        with_startup: seconds until the state is usable, from the start of the process.
        without_startup: seconds of the work alone.
        process: wall seconds of the whole process tree.
        cpu: CPU seconds of the whole process tree.
        peak_mb: its peak memory.
        phases: seconds of each phase, where there are any.
        work: seconds of all tasks added up, by what they did, where there are any.
    """

    contender: str
    with_startup: float
    without_startup: float
    process: float
    cpu: float
    peak_mb: float
    phases: dict[str, float]
    work: dict[str, float]


def main() -> int:
    """Run the benchmark, print the figures."""
    parser = argparse.ArgumentParser(prog="python -m bench.restore", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--sizes", default="2,8,20", help="millions of records, with commas (default: 2,8,20)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each size (default: 3)")
    parser.add_argument("--only", choices=["statecore"], help="leave the others out, to profile")
    parser.add_argument("--write", action="store_true", help="write the figures into bench/README.md")
    given = parser.parse_args()
    sizes = [int(size) for size in given.sizes.split(",")]
    parts = [f"{_machine()}; {given.rounds} rounds, medians.\n"]
    with tempfile.TemporaryDirectory(prefix="statecore-bench-") as scratch:
        broker = start_broker(Path(scratch, "broker"))
        try:
            for size in sizes:
                figures = _measure(broker.bootstrap_servers, size, given.rounds, Path(scratch), given.only)
                parts.append(_markdown(size, figures))
                print(parts[-1], flush=True)
        finally:
            broker.stop()
    if given.write:
        before, _, rest = README.read_text().partition(BEGIN)
        after = rest.partition(END)[2]
        README.write_text(before + BEGIN + "\n" + "\n".join(parts) + END + after)
    return 0


def _measure(servers: str, size: int, rounds: int, scratch: Path, only: str | None) -> list[Figure]:
    application = f"bench-{size}m"
    create_source(servers, application)
    seconds = fill(servers, changelog_topic(application), ChangelogSize(size * MILLION))
    _say(f"{size} M records produced in {seconds:.0f} s")
    figures: list[Figure] = []
    contenders = {
        "Kafka Streams, 2 threads": lambda: _streams(servers, application, scratch, 2),
        "statecore": lambda: _statecore(servers, application, scratch, size * MILLION),
        "Kafka Streams, 1 thread": lambda: _streams(servers, application, scratch, 1),
        "plain Java consumer, 2 threads": lambda: _drain(servers, application, 2),
    }
    for turn in range(rounds):
        for name, run in contenders.items():
            if only is None or name == only:
                figures.append(run())
                one = figures[-1]
                _say(f"{size} M, round {turn + 1}, {name}: {one.with_startup:.1f} s, CPU {one.cpu:.1f} s {one.phases}")
    return figures


def _streams(servers: str, application: str, scratch: Path, threads: int) -> Figure:
    state = Path(scratch, "state-streams")
    shutil.rmtree(state, ignore_errors=True)
    command = [sys.executable, "-m", "bench.streams", "restore", "--bootstrap-servers", servers]
    command += ["--application-id", application, "--state-dir", str(state), "--threads", str(threads)]
    cost = _checked(measure(command))
    result = json.loads(cost.stdout)
    plural = "s" if threads > 1 else ""
    return Figure(
        f"Kafka Streams, {threads} thread{plural}",
        result["running_seconds"],
        result["restore_seconds"],
        cost.wall,
        cost.cpu,
        cost.peak_mb,
        {},
        {},
    )


def _statecore(servers: str, application: str, scratch: Path, records: int) -> Figure:
    state = Path(scratch, "state-statecore")
    shutil.rmtree(state, ignore_errors=True)
    spec = Path(scratch, f"{application}.yaml")
    stores = {"0": {"stores": {STORE: {"kind": "timestamped-key-value"}}}}
    spec.write_text(
        yaml.safe_dump(
            {
                "application_id": application,
                "bootstrap_servers": servers,
                "processing_guarantee": "exactly_once_v2",
                "subtopologies": stores,
            }
        )
    )
    command = [str(Path(sys.executable).with_name("statecore")), "restore", "--spec", str(spec)]
    command += ["--state-dir", str(state), "--master", "local[2]", "--json"]
    cost = _checked(measure(command))
    report = json.loads(cost.stdout)
    if report["totals"]["records"] != records:
        raise RuntimeError(f"statecore read {report['totals']['records']} records, not {records}")
    phases = {name: round(seconds, 2) for name, seconds in report["phases"].items()}
    work = sum(phases[name] for name in ("read", "build", "place"))
    return Figure("statecore", cost.wall, work, cost.wall, cost.cpu, cost.peak_mb, phases, report["work"])


def _drain(servers: str, application: str, threads: int) -> Figure:
    command = [sys.executable, "-m", "bench.streams", "drain", "--bootstrap-servers", servers]
    cost = _checked(measure([*command, "--application-id", application, "--threads", str(threads)]))
    result = json.loads(cost.stdout)
    name = f"plain Java consumer, {threads} threads"
    return Figure(name, cost.wall, result["seconds"], cost.wall, cost.cpu, cost.peak_mb, {}, {})


def _checked(cost: Cost) -> Cost:
    if cost.returncode != 0:
        raise RuntimeError(f"a contender failed with exit code {cost.returncode}: {cost.stdout}")
    return cost


def _markdown(size: int, figures: list[Figure]) -> str:
    lines = [
        f"**{size} million records** (16 + 100 bytes, {size / 4:g} M keys, 4 partitions, lz4)\n",
        "| | with start-up | × | without start-up | × | records/s | CPU, whole tree | peak memory |",
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
    phases = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in ours.phases.items())
    work = ", ".join(f"{name} {seconds:.1f} s = {seconds / size:.2f} µs/record" for name, seconds in ours.work.items())
    return "\n".join([*lines, f"\nstatecore's phases: {phases}. Inside its tasks, added up: {work}.\n"])


def _median(figures: list[Figure]) -> Figure:
    def middle(values: list[float]) -> float:
        return statistics.median(values)

    return Figure(
        figures[0].contender,
        middle([figure.with_startup for figure in figures]),
        middle([figure.without_startup for figure in figures]),
        middle([figure.process for figure in figures]),
        middle([figure.cpu for figure in figures]),
        middle([figure.peak_mb for figure in figures]),
        {name: middle([figure.phases[name] for figure in figures]) for name in figures[0].phases},
        {name: middle([figure.work[name] for figure in figures]) for name in figures[0].work},
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
