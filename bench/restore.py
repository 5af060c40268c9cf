"""The benchmark: the same changelog restored by real Kafka Streams and by statecore, side by side, in one run.

::

    make bench                                        2, 20 and 100 million records, every kind of store, every shape
    python -m bench.restore --sizes 2 --kinds "" --shapes "" --rounds 1      a quick look
    python -m bench.restore --write                   puts the figures into bench/README.md

The sizes are of a timestamped key-value store; then each kind of store (``bench.kinds``) and each shape of changelog
(``bench.shapes``) is measured at one size. Each is measured in several rounds, one of 50 million records or more in
one. A topic is deleted when it was measured.

Each round runs, one after another on the same broker: Kafka Streams with two threads, statecore under Spark and by two
processes, Kafka Streams with one thread, plain Java consumers that read the topic and do nothing, and the ceiling
(``bench.throughput_ceiling``); of kinds and shapes the first three. Every contender is a process of its own, measured
from outside with everything it starts (``bench.process``). The medians are printed.

*With start-up* is the wall time until the state is usable: for Kafka Streams from the start of its JVM to RUNNING, for
statecore the whole command, Spark's start and stop included. *Without start-up* is, for Kafka Streams, from the first
partition's start of restore to the last one's end; for statecore the phases read, build and place.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from bench.changelog import ChangelogSize, fill, start_broker
from bench.figures import (
    CEILING,
    MILLION,
    STATECORE,
    STREAMS,
    WITHOUT_SPARK,
    Figure,
    Row,
    comparison,
    put_between,
    size_table,
)
from bench.kinds import KINDS, BenchKind
from bench.process import checked, measure, surroundings
from bench.restoring import ENGINES, restore, write_spec
from bench.shapes import MOST_BYTES, PLAIN, SHAPES, Shape
from bench.streams import LONGEST, STORE, changelog_topic, create_source, source_topic
from bench.throughput_ceiling import disk_rate
from tests.harness import topics

README = Path(__file__).with_name("README.md")
FEW_CONTENDERS = (STREAMS, STATECORE, WITHOUT_SPARK)
"""Who is compared for each kind of store and each shape of changelog."""
PEERS = ("Kafka Streams", "plain Java consumer")
"""How the names of those begin who are left out with ``--only``."""
LARGE = 50 * MILLION
"""Records from which on a round takes many minutes, and there is one."""

_T = TypeVar("_T")


@dataclass(frozen=True)
class Setting:
    """What is restored in one comparison.

    Attributes:
        records: of the changelog.
        kind: the kind of store.
        shape: of the changelog.
    """

    records: int
    kind: BenchKind = KINDS["timestamped-key-value"]
    shape: Shape = PLAIN

    @property
    def name(self) -> str:
        """What is said of it meanwhile."""
        return f"{self.records / MILLION:g} M of {self.kind.kind}, {self.shape.name}"


@dataclass(frozen=True)
class Filled:
    """A setting whose changelog is there.

    Attributes:
        setting: which one.
        servers: ``host:port`` of the broker.
        application: the application id.
        scratch: a directory for state directories and specs.
    """

    setting: Setting
    servers: str
    application: str
    scratch: Path


def main() -> int:
    """Run the benchmark, print the figures."""
    parser = argparse.ArgumentParser(prog="python -m bench.restore", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--sizes", default="2,20,100", help="millions of records, with commas (default: 2,20,100)")
    parser.add_argument("--kinds", default=",".join(KINDS), help="kinds of store, with commas (default: all)")
    parser.add_argument(
        "--kinds-size", type=float, default=4, help="millions of records of each kind (default: 4; 0: none)"
    )
    parser.add_argument(
        "--shapes", default=",".join(SHAPES), help=f"shapes of changelog, with commas (default: {','.join(SHAPES)})"
    )
    parser.add_argument(
        "--shapes-size",
        type=float,
        default=8,
        help=f"millions of records of each shape, fewer where they were more than {MOST_BYTES >> 30} GiB "
        "(default: 8; 0: none)",
    )
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each size below 50 (default: 3)")
    parser.add_argument("--only", choices=["statecore"], help="leave Kafka Streams and Java out")
    parser.add_argument(
        "--few", action="store_true", help="leave Kafka Streams with one thread and plain Java consumers out"
    )
    parser.add_argument(
        "--write", action="store_true", help="put the figures into bench/README.md, in place of all that are there"
    )
    given = parser.parse_args()
    try:
        sizes = [Setting(round(float(size) * MILLION)) for size in given.sizes.split(",") if size]
        kinds = [Setting(round(given.kinds_size * MILLION), kind) for kind in _chosen(given.kinds, KINDS)]
        wanted = round(given.shapes_size * MILLION)
        shapes = [Setting(one.records(wanted), shape=one) for one in _chosen(given.shapes, SHAPES)]
    except ValueError as error:
        parser.error(str(error))
    kinds, shapes = kinds if given.kinds_size else [], shapes if wanted else []
    rounds = f"medians of {given.rounds} rounds, from {LARGE // MILLION} million records on one round"
    parts = [f"{surroundings()}; {'one round' if given.rounds == 1 else rounds}.\n"]
    with tempfile.TemporaryDirectory(prefix="statecore-bench-") as scratch:
        room = max((one.shape.room(one.records) for one in (*sizes, *kinds, *shapes)), default=0)
        if room > shutil.disk_usage(scratch).free:
            parser.error(f"{scratch} needs room for {room / 2**30:.1f} GiB; set TMPDIR, or ask for smaller sizes")
        broker = start_broker(Path(scratch, "broker"))
        try:
            run = Run(broker.bootstrap_servers, Path(scratch), given.rounds, given.only, given.few)
            for part in run.tables(sizes, kinds, shapes):
                parts.append(part)
                print(part, flush=True)
        finally:
            broker.stop()
    if given.write:
        put_between(README, "figures", "\n".join(parts))
    return 0


@dataclass(frozen=True)
class Run:
    """A run of the benchmark on one broker.

    Attributes:
        servers: ``host:port`` of the broker.
        scratch: a directory for state directories and specs.
        rounds: of each setting that is not large.
        only: ``statecore`` where the peers are left out.
        few: whether only the contenders are measured that are compared for each kind and shape, and the ceiling.
    """

    servers: str
    scratch: Path
    rounds: int
    only: str | None
    few: bool = False

    def tables(self, sizes: Sequence[Setting], kinds: Sequence[Setting], shapes: Sequence[Setting]) -> Iterator[str]:
        """The tables in Markdown, each as soon as it is known."""
        for one in sizes:
            yield size_table(
                one.records,
                self._measure(one, (*FEW_CONTENDERS, CEILING) if self.few else None),
                disk_rate(self.scratch),
            )
        if kinds:
            records = kinds[0].records / MILLION
            yield comparison(
                f"**Every kind of store, {records:g} million records each** (16 bytes and times + 100 bytes, "
                f"{records / 4:g} M keys, 4 partitions, lz4)",
                "kind",
                [Row(one.kind.kind, one.records, self._measure(one, FEW_CONTENDERS)) for one in kinds],
            )
        if shapes:
            yield comparison(
                "**Shapes of changelog** (16-byte keys, timestamped key-value store, 4 partitions; each differs from "
                f"{PLAIN.name} in one thing, and has no more records than make {MOST_BYTES >> 30} GiB)",
                "shape",
                [Row(one.shape.name, one.records, self._measure(one, FEW_CONTENDERS)) for one in shapes],
            )

    def _measure(self, setting: Setting, contenders: Sequence[str] | None = None) -> list[Figure]:
        """All runs of the contenders that are wanted, on a changelog that is made for them and deleted again."""
        application = f"bench-{setting.kind.kind}-{list(SHAPES.values()).index(setting.shape)}-{setting.records}"
        at = Filled(setting, self.servers, application, self.scratch)
        create_source(self.servers, application)
        size = ChangelogSize(setting.records, kind=setting.kind, shape=setting.shape)
        seconds = fill(self.servers, changelog_topic(application), size)
        _say(f"{setting.name}: produced in {seconds:.0f} s")
        every: dict[str, Callable[[], Figure]] = {
            STREAMS: lambda: streams(at, 2),
            STATECORE: lambda: _statecore(at, "spark"),
            WITHOUT_SPARK: lambda: _statecore(at, "processes"),
            "Kafka Streams, 1 thread": lambda: streams(at, 1),
            "plain Java consumer, 2 threads": lambda: _drain(at, 2),
            CEILING: lambda: _bare(at),
        }
        figures: list[Figure] = []
        for turn in range(self.rounds if setting.records < LARGE else 1):
            for name, run in every.items():
                if (self.only and name.startswith(PEERS)) or (contenders and name not in contenders):
                    continue
                one = run()
                figures.append(one)
                _say(
                    f"{setting.name}, round {turn + 1}, {name}: {one.with_startup:.1f} s, CPU {one.cpu:.1f} s "
                    f"{one.phases}"
                )
        for topic in (changelog_topic(application), source_topic(application)):
            topics.delete(self.servers, topic)
        return figures


def _chosen(words: str, of: Mapping[str, _T]) -> list[_T]:
    """What is meant by words with commas.

    Raises:
        ValueError: one of them is not known.
    """
    names = [word for word in words.split(",") if word]
    if unknown := [name for name in names if name not in of]:
        raise ValueError(f"{', '.join(unknown)}: choose of {', '.join(of)}")
    return [of[name] for name in names]


def streams(at: Filled, threads: int) -> Figure:
    """A restore by Kafka Streams into a directory of its own, which is deleted afterwards."""
    state = Path(at.scratch, "state-streams")
    shutil.rmtree(state, ignore_errors=True)
    command = [sys.executable, "-m", "bench.streams", "restore", "--bootstrap-servers", at.servers]
    command += ["--application-id", at.application, "--state-dir", str(state), "--threads", str(threads)]
    command += ["--kind", at.setting.kind.kind]
    cost = checked(measure(command, timeout=LONGEST))
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


def _statecore(at: Filled, engine: str) -> Figure:
    spec = write_spec(Path(at.scratch, "stores.yaml"), at.servers, at.application, {STORE: at.setting.kind.spec})
    state = Path(at.scratch, "state-statecore")
    found = restore(spec, state, "--versioned", "latest", *ENGINES[engine])
    shutil.rmtree(state)
    cost, report = found.cost, found.report
    if report["totals"]["records"] != at.setting.records:
        raise RuntimeError(f"statecore read {report['totals']['records']} records, not {at.setting.records}")
    phases = {name: round(seconds, 2) for name, seconds in report["phases"].items()}
    work = sum(phases[name] for name in ("read", "build", "place"))
    name = STATECORE if engine == "spark" else WITHOUT_SPARK
    state_mb = found.state_bytes / 2**20
    return Figure(name, cost.wall, work, cost.cpu, cost.peak_mb, phases, report["work"], report["cpu"], state_mb)


def _drain(at: Filled, threads: int) -> Figure:
    command = [sys.executable, "-m", "bench.streams", "drain", "--bootstrap-servers", at.servers]
    cost = checked(measure([*command, "--application-id", at.application, "--threads", str(threads)]))
    result = json.loads(cost.stdout)
    name = f"plain Java consumer, {threads} threads"
    return Figure(name, cost.wall, result["seconds"], cost.cpu, cost.peak_mb)


def _bare(at: Filled) -> Figure:
    command = [sys.executable, "-m", "bench.throughput_ceiling", "--bootstrap-servers", at.servers]
    cost = checked(measure([*command, "--topic", changelog_topic(at.application), "--processes", "2"]))
    result = json.loads(cost.stdout)
    if result["records"] != at.setting.records:
        raise RuntimeError(f"the bare sockets brought {result['records']} records, not {at.setting.records}")
    return Figure(CEILING, cost.wall, result["seconds"], cost.cpu, cost.peak_mb)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
