"""What small restores cost, where all is overhead and nearly nothing data.

::

    python -m bench.small                                         both cases, both engines, 3 rounds
    python -m bench.small --case partitions --engine spark        one of each
    python -m bench.small --partitions 50 --rounds 1              a quick look

Two cases: 100,000 records in four partitions, from a fresh process; and hundreds of store partitions with a hundred
records each. What is printed is the wall time of the whole command and its CPU time, the seconds of each phase, those
inside its tasks, added up, by what they did, and both per store partition. ``outside`` is what lies outside the phases:
the interpreter, its imports, what is let go at the end.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.changelog import PARTITIONS, ChangelogSize, fill, start_broker
from bench.restoring import ENGINES, Restored, restore, write_spec
from tests.harness import topics
from tests.harness.topics import Record

APPLICATION = "bench-small"
RECORDS = 100_000

_TIME = 1_700_000_000_000


@dataclass(frozen=True)
class Case:
    """What is restored.

    Attributes:
        name: of the case, and the prefix of its application's id.
        said: what it is, in words.
        stores: names of the stores.
        store_partitions: of all stores together.
    """

    name: str
    said: str
    stores: Sequence[str]
    store_partitions: int

    @property
    def application(self) -> str:
        """The id of the application."""
        return f"{APPLICATION}-{self.name}"

    def spec(self, directory: Path, servers: str) -> Path:
        """Write the application's ``stores.yaml``."""
        stores = {name: {"kind": "timestamped-key-value"} for name in self.stores}
        return write_spec(directory / f"{self.name}.yaml", servers, self.application, stores)

    def changelog(self, store: str) -> str:
        """The changelog of one of the stores."""
        return f"{self.application}-{store}-changelog"


def main() -> int:
    """Run the benchmark, print the figures."""
    parser = argparse.ArgumentParser(prog="python -m bench.small", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--case", choices=("records", "partitions"), help="one case alone (default: both)")
    parser.add_argument("--engine", choices=tuple(ENGINES), help="one engine alone (default: both)")
    parser.add_argument("--partitions", type=int, default=200, help="partitions of each changelog (default: 200)")
    parser.add_argument("--stores", type=int, default=3, help="stores (default: 3)")
    parser.add_argument("--records", type=int, default=100, help="records of each store partition (default: 100)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds (default: 3)")
    given = parser.parse_args()
    stores = [f"store-{number}" for number in range(given.stores)]
    said = f"{given.partitions} partitions × {given.stores} stores, {given.records} records each"
    cases = [
        Case("records", f"{RECORDS:,} records in {PARTITIONS} partitions", ["store"], PARTITIONS),
        Case("partitions", said, stores, given.partitions * given.stores),
    ]
    with tempfile.TemporaryDirectory(prefix="statecore-bench-") as scratch:
        broker = start_broker(Path(scratch, "broker"))
        try:
            for case in cases:
                if given.case not in (None, case.name):
                    continue
                fill_case(broker.bootstrap_servers, case, given.partitions, given.records)
                spec = case.spec(Path(scratch), broker.bootstrap_servers)
                for engine, options in ENGINES.items():
                    if given.engine in (None, engine):
                        restores = [_restore(spec, Path(scratch, "state"), options) for _ in range(given.rounds)]
                        print(_figures(restores, case, engine), flush=True)
        finally:
            broker.stop()
    return 0


def fill_case(servers: str, case: Case, partitions: int, records: int) -> None:
    """Fill the changelogs of a case: with many records in a few partitions, or a few in each of many."""
    if case.name == "records":
        fill(servers, case.changelog("store"), ChangelogSize(RECORDS))
        return
    made = [
        Record(b"key-%d" % (number % (records // 2 or 1)), b"value %d of %d" % (number, partition), partition, _TIME)
        for partition in range(partitions)
        for number in range(records)
    ]
    for store in case.stores:
        topics.create(servers, case.changelog(store), partitions, topics.UNCLEANED)
        topics.produce(servers, case.changelog(store), made)


def _restore(spec: Path, state: Path, options: Sequence[str]) -> Restored:
    found = restore(spec, state, *options)
    print(f"{found.cost.wall:.1f} s", found.report["phases"], file=sys.stderr, flush=True)
    return found


def _figures(restores: Sequence[Restored], case: Case, engine: str) -> str:
    costs, reports = [one.cost for one in restores], [one.report for one in restores]

    def each(seconds: dict[str, float]) -> str:
        return ", ".join(
            f"{name} {one:.2f} s ({1000 * one / case.store_partitions:.1f} ms)" for name, one in seconds.items()
        )

    def middle(part: str) -> dict[str, float]:
        return {name: statistics.median(one[part][name] for one in reports) for name in reports[0][part]}

    wall, cpu, peak = (statistics.median(getattr(cost, name) for cost in costs) for name in ("wall", "cpu", "peak_mb"))
    outside = statistics.median(
        cost.wall - sum(one["phases"].values()) for cost, one in zip(costs, reports, strict=True)
    )
    return (
        f"**{case.said}, {engine}**: {wall:.1f} s, CPU {cpu:.1f} s, peak memory {peak:,.0f} MiB; each of the "
        f"{case.store_partitions} store partitions {1000 * wall / case.store_partitions:.1f} ms, CPU "
        f"{1000 * cpu / case.store_partitions:.1f} ms. Phases, in all and for each: "
        f"{each({'outside': outside} | middle('phases'))}. "
        f"Inside its tasks, added up: {each(middle('work'))}."
    )


if __name__ == "__main__":
    sys.exit(main())
