"""What hundreds of small store partitions cost: there a restore is all overhead and no data.

::

    python -m bench.partitions                                    200 partitions x 3 stores, 3 rounds
    python -m bench.partitions --partitions 50 --rounds 1         a quick look

Each store partition holds a hundred records. What is printed is the wall time of the whole command, its phases, and the
seconds inside its Spark tasks, added up, by what they did.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import yaml

from bench.changelog import start_broker
from bench.process import Cost, measure
from tests.harness import topics
from tests.harness.topics import Record

APPLICATION = "bench-partitions"
_TIME = 1_700_000_000_000


def main() -> int:
    """Run the benchmark, print the figures."""
    parser = argparse.ArgumentParser(prog="python -m bench.partitions", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--partitions", type=int, default=200, help="partitions of each changelog (default: 200)")
    parser.add_argument("--stores", type=int, default=3, help="stores (default: 3)")
    parser.add_argument("--records", type=int, default=100, help="records of each store partition (default: 100)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds (default: 3)")
    given = parser.parse_args()
    names = [f"store-{number}" for number in range(given.stores)]
    with tempfile.TemporaryDirectory(prefix="statecore-bench-") as scratch:
        broker = start_broker(Path(scratch, "broker"))
        try:
            for name in names:
                _fill(broker.bootstrap_servers, f"{APPLICATION}-{name}-changelog", given.partitions, given.records)
            spec = _spec(Path(scratch, "stores.yaml"), broker.bootstrap_servers, names)
            costs = [_restore(spec, Path(scratch, "state")) for _ in range(given.rounds)]
        finally:
            broker.stop()
    print(_figures(costs, f"{given.partitions} partitions × {given.stores} stores, {given.records} records each"))
    return 0


def _fill(servers: str, topic: str, partitions: int, records: int) -> None:
    topics.create(servers, topic, partitions, topics.UNCLEANED)
    made = [
        Record(b"key-%d" % (number % (records // 2 or 1)), b"value %d of %d" % (number, partition), partition, _TIME)
        for partition in range(partitions)
        for number in range(records)
    ]
    topics.produce(servers, topic, made)


def _spec(path: Path, servers: str, names: Sequence[str]) -> Path:
    stores = {name: {"kind": "timestamped-key-value"} for name in names}
    path.write_text(
        yaml.safe_dump(
            {
                "application_id": APPLICATION,
                "bootstrap_servers": servers,
                "processing_guarantee": "exactly_once_v2",
                "subtopologies": {"0": {"stores": stores}},
            }
        )
    )
    return path


def _restore(spec: Path, state: Path) -> Cost:
    shutil.rmtree(state, ignore_errors=True)
    command = [str(Path(sys.executable).with_name("statecore")), "restore", "--spec", str(spec)]
    cost = measure([*command, "--state-dir", str(state), "--master", "local[2]", "--json"])
    if cost.returncode != 0:
        raise RuntimeError(f"the restore failed with exit code {cost.returncode}: {cost.stdout}")
    print(f"{cost.wall:.1f} s", json.loads(cost.stdout)["phases"], file=sys.stderr, flush=True)
    return cost


def _figures(costs: Sequence[Cost], what: str) -> str:
    reports = [json.loads(cost.stdout) for cost in costs]

    def each(part: str) -> str:
        middle = {name: statistics.median(one[part][name] for one in reports) for name in reports[0][part]}
        return ", ".join(f"{name} {seconds:.1f} s" for name, seconds in middle.items())

    wall, cpu, peak = (statistics.median(getattr(cost, name) for cost in costs) for name in ("wall", "cpu", "peak_mb"))
    return (
        f"**{what}**: {wall:.1f} s, CPU {cpu:.1f} s, peak memory {peak:,.0f} MiB. Phases: {each('phases')}. "
        f"Inside its tasks, added up: {each('work')}."
    )


if __name__ == "__main__":
    sys.exit(main())
