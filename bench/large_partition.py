"""One large partition on one process and on two: what cutting it, and merging its runs by all, is worth.

    python -m bench.large_partition [--records 8000000] [--ranges 0] [--rounds 3]

The same changelog of one partition is restored by one process, by two of which one builds the image alone (as it was
before databases were divided by their keys), and by two that share both stages; in turns, on one broker. The digests
must be equal. ``--ranges`` cuts the partition into so many ranges whatever the workers: with four and more, runs have
to be merged. Printed are medians: wall seconds of the whole and of the phases, CPU seconds of the workers with their
start, and of each stage: ``write`` grows as the partition is cut, because each range writes the keys that it has.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import sys
import tempfile
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from unittest import mock

from bench.changelog import ChangelogSize, fill, start_broker
from statecore.changelog.model import OffsetRange
from statecore.changelog.ranges import split_range
from statecore.jobs.pipeline.stages import build_images
from statecore.jobs.processes import ProcessEngine
from statecore.jobs.restore.report import RestoreReport
from statecore.jobs.restore.request import RestoreRequest
from statecore.jobs.restore.run import run_restore

_NEVER = 1 << 60
_STAGES = ("decode", "collect", "write", "image")
_PRINTED = ("runs", "whole", "read", "build", "CPU of the workers", *(f"CPU of {stage}" for stage in _STAGES))


@dataclass(frozen=True)
class Way:
    """A way to restore it.

    Attributes:
        name: what it is called.
        processes: how many work.
        divided: whether databases are divided by their keys.
    """

    name: str
    processes: int
    divided: bool = True


WAYS = (Way("one process", 1), Way("two, one of them builds", 2, divided=False), Way("two", 2))


@contextmanager
def arranged(way: Way, ranges: int) -> Iterator[None]:
    """Have the partition cut, and its database divided, as it is asked for."""
    with ExitStack() as patches:
        if not way.divided:
            patches.enter_context(mock.patch.dict(build_images.__kwdefaults__, slice_bytes=_NEVER))
        if ranges:
            patches.enter_context(mock.patch("statecore.jobs.planning.plan.plan_ranges", partial(_cut, ranges)))
        yield


def _cut(ranges: int, partitions: Collection[OffsetRange], *_: object, **__: object) -> list[OffsetRange]:
    return [part for whole in partitions for part in split_range(whole, ranges)]


def restored(way: Way, servers: str, records: int, ranges: int, directory: Path) -> tuple[RestoreReport, float]:
    """The report of one restore, and the CPU seconds of its workers."""
    spec = {
        "application_id": "large",
        "bootstrap_servers": servers,
        "processing_guarantee": "at_least_once",
        "subtopologies": {"0": {"stores": {"store": {"kind": "timestamped-key-value"}}}},
    }
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with arranged(way, ranges):
        report = run_restore(RestoreRequest(state_dir=str(directory), spec=spec), ProcessEngine(way.processes))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert isinstance(report, RestoreReport)
    assert report.totals["records"] == records
    shutil.rmtree(directory)
    return report, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Measure all ways in turns, and print medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=8_000_000)
    parser.add_argument("--ranges", type=int, default=0, help="ranges of the partition (default: as a job cuts it)")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    found: dict[str, list[dict[str, float]]] = {way.name: [] for way in WAYS}
    digests: set[str] = set()
    with tempfile.TemporaryDirectory() as temporary:
        broker = start_broker(Path(temporary) / "broker")
        try:
            servers = broker.bootstrap_servers
            fill(servers, "large-store-changelog", ChangelogSize(arguments.records, partitions=1))
            for turn in range(arguments.rounds):
                for way in WAYS:
                    at = Path(temporary) / f"{turn}-{way.processes}-{way.divided}"
                    report, cpu = restored(way, servers, arguments.records, arguments.ranges, at)
                    print(turn, way.name, report.phases, f"{cpu:.1f} s CPU", file=sys.stderr)
                    digests.add(report.stores[0].digest)
                    runs = float(report.stores[0].runs)
                    stages = {f"CPU of {stage}": seconds for stage, seconds in report.cpu.items()}
                    whole = {"whole": report.seconds, "CPU of the workers": cpu, "runs": runs}
                    found[way.name].append({**report.phases, **stages, **whole})
        finally:
            broker.stop()
    assert len(digests) == 1, digests
    for name, figures in found.items():
        words = [f"{of} {median(one[of] for one in figures):.2f}" for of in _PRINTED]
        print(f"{name:26s}", "   ".join(words))


if __name__ == "__main__":
    main()
