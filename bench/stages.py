"""What a record and a row cost at each stage of a restore, of any topic.

::

    make profile                                             4 million records on a broker of its own
    make profile SERVERS=broker:9092 TOPIC=orders-totals-changelog [KIND=key-value]
    python -m bench.stages --size 8 --options "--memory-budget 64m"

The stages are those of the report's ``work`` and ``cpu``, added up over all tasks of both processes. Fetch is what is
received and waited for, decode is CRC, decompression and columns, collect is the last write of each key and what the
memory budget makes of it, write is sort and SST, image is merge, ingest and commit, place is the swap. Wall
seconds of the stages are added up over tasks that ran at once. CPU is that of the process which did it, RocksDB's own
threads included; of an image it is that of the thread which built it. *The rest* is starting, planning, and the
driver. Beside it stands the ceiling: the same topic fetched, checked and decompressed, and nothing else
(``bench.throughput_ceiling``).

Offsets are only asked for and records only read: nothing of the cluster is changed. A changelog is restored as its
name says; a topic of another name is one that an application reuses as changelog, and its group says how far it goes.
"""

from __future__ import annotations

import argparse
import shlex
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.changelog import ChangelogSize, fill, start_broker
from bench.restoring import ENGINES, Restored, restore, write_spec
from bench.streams import STORE, changelog_topic
from bench.throughput_ceiling import Ceiling, drain
from statecore.errors import StatecoreError

MILLION = 1_000_000
APPLICATION = "bench-stages"
PROCESSES = 2
_CHANGELOG = "-changelog"


def main() -> int:
    """Restore, print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.stages", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--bootstrap-servers", help="of the topic's cluster (default: a broker of its own)")
    parser.add_argument("--topic", help="a topic there (default: one that is filled for this)")
    parser.add_argument(
        "--application-id", default=APPLICATION, help="the application that reuses the topic, where it is no changelog"
    )
    parser.add_argument("--kind", default="timestamped-key-value", help="the kind of store it is the changelog of")
    parser.add_argument("--retention", help="of a store of windows or sessions, as in the spec")
    parser.add_argument("--size", type=int, default=4, help="millions of records of a topic of its own (default: 4)")
    parser.add_argument("--engine", choices=list(ENGINES), default="processes", help="who works (default: processes)")
    parser.add_argument("--options", default="", help="further options of statecore restore, in one word")
    parser.add_argument("--rounds", type=int, default=1, help="rounds, of which medians are shown (default: 1)")
    given = parser.parse_args()
    if bool(given.bootstrap_servers) != bool(given.topic):
        parser.error("a topic and the servers of its cluster belong together")
    with tempfile.TemporaryDirectory(prefix="statecore-bench-") as scratch:
        try:
            if given.topic:
                _profile(given, given.bootstrap_servers, given.topic, Path(scratch))
            else:
                _profile_own(given, Path(scratch))
        except (RuntimeError, StatecoreError) as error:
            print(error, file=sys.stderr)
            return 1
    return 0


def _profile_own(given: argparse.Namespace, scratch: Path) -> None:
    broker = start_broker(scratch / "broker")
    try:
        topic = changelog_topic(APPLICATION)
        fill(broker.bootstrap_servers, topic, ChangelogSize(given.size * MILLION))
        _profile(given, broker.bootstrap_servers, topic, scratch)
    finally:
        broker.stop()


def _profile(given: argparse.Namespace, servers: str, topic: str, scratch: Path) -> None:
    application, store, more = named_by(topic, given.application_id)
    if given.retention:
        more = {**more, "retention": given.retention}
    spec = write_spec(scratch / "stores.yaml", servers, application, {store: {"kind": given.kind, **more}})
    options = [*ENGINES[given.engine], *shlex.split(given.options)]
    ceilings = [drain(servers, topic, PROCESSES) for _ in range(given.rounds)]
    found = [restore(spec, scratch / "state", *options) for _ in range(given.rounds)]
    print(f"**{topic}**, `statecore restore {shlex.join(options)}`\n")
    print(table(found, ceilings))


def named_by(topic: str, reused_by: str) -> tuple[str, str, dict[str, str]]:
    """Application id and store that have this changelog, and what the spec must say of the store besides.

    A changelog is named ``<application id>-<store>-changelog``; where the one ends and the other begins does not
    matter here.
    """
    application, dash, store = topic.removesuffix(_CHANGELOG).rpartition("-")
    if topic.endswith(_CHANGELOG) and application and dash and store:
        return application, store, {}
    return reused_by, STORE, {"changelog": topic}


def table(found: Sequence[Restored], ceilings: Sequence[Ceiling]) -> str:
    """The figures, medians of all rounds."""
    one = found[0]
    records, rows = one.report["totals"]["records"], one.report["totals"]["rows"]

    def middle(seconds: Callable[[Restored], float]) -> float:
        return statistics.median(map(seconds, found))

    def line(stage: str, wall: float | None, cpu: float) -> str:
        cells = [
            "| |" if seconds is None else f"{seconds:.2f} s | {_micro(seconds, records)} | {_micro(seconds, rows)}"
            for seconds in (wall, cpu)
        ]
        return f"| {stage} | {' | '.join(cells)} |"

    work = {name: middle(lambda it, name=name: it.report["work"][name]) for name in one.report["work"]}  # type: ignore[misc]
    work["place"] = middle(lambda it: it.report["phases"]["place"])
    cpu = {name: middle(lambda it, name=name: it.report["cpu"][name]) for name in work}  # type: ignore[misc]
    whole = middle(lambda it: it.cost.cpu)
    seconds, bare = (statistics.median(getattr(each, name) for each in ceilings) for name in ("seconds", "cpu_seconds"))
    return "\n".join(
        [
            f"{records:,} records, {rows:,} rows, {one.runs} runs, {one.state_bytes >> 20:,} MiB of state; peak memory "
            f"{middle(lambda it: it.cost.peak_mb):,.0f} MiB.\n",
            "| stage | wall | µs/record | µs/row | CPU | µs/record | µs/row |",
            "|---|---:|---:|---:|---:|---:|---:|",
            *(line(stage, work[stage], cpu[stage]) for stage in work),
            line("the rest", None, whole - sum(cpu.values())),
            line("whole command", middle(lambda it: it.cost.wall), whole),
            line("ceiling: fetch, CRC, decompression", seconds, bare),
        ]
    )


def _micro(seconds: float, count: int) -> str:
    return f"{seconds / count * MILLION:.3f}" if count else ""


if __name__ == "__main__":
    sys.exit(main())
