"""A day of checkpoints and the upkeep after it: what a repository comes to, and what a month of requests costs.

::

    python -m bench.repository_upkeep                     288 checkpoints of 100 store partitions: ten minutes
    python -m bench.repository_upkeep --checkpoints 60    a quick look
    python -m bench.repository_upkeep --write             puts the tables into bench/README.md

Broker and S3 server are real (``bench.checkpoint_testbed``), checkpoints are five minutes apart by a moved clock
(``bench.checkpoint_day``), and requests are counted in the server's own log. The repository is pruned after half of the
day and at its end, so the second run deletes what the first has listed, as every run of a daily schedule does.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from bench.checkpoint_day import small_steps
from bench.checkpoint_figures import APPLICATIONS, CHECKPOINTS, DAYS, Step, megabytes, price, requests, total
from bench.checkpoint_testbed import Testbed, testbed
from bench.figures import put_between
from bench.process import surroundings
from bench.s3_request_log import RequestLog
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.listing import list_application
from statecore.repository.maintenance.collection import Amount, Collector
from statecore.repository.maintenance.verification_record import Level
from statecore.repository.maintenance.verify import Subset, Verifier

README = Path(__file__).with_name("README.md")
PARTITIONS = 100
SUBSETS = 7


@dataclass(frozen=True)
class Upkeep:
    """A day of checkpoints of one application, and what came after it.

    Attributes:
        checkpoints: how many.
        snapshots: that the head names at the end.
        before: what the repository had of the application before the last prune.
        after: the same after it.
        needed: what the snapshots need.
        asked: requests by what asked them: the checkpoints, a prune, a verification.
    """

    checkpoints: int
    snapshots: int
    before: Amount
    after: Amount
    needed: Amount
    asked: Mapping[str, Mapping[str, int]]


def main() -> int:
    """Run the benchmark, print the figures."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.repository_upkeep", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--checkpoints", type=int, default=CHECKPOINTS, metavar="N", help=f"default: {CHECKPOINTS}")
    parser.add_argument("--partitions", type=int, default=PARTITIONS, metavar="N", help=f"default: {PARTITIONS}")
    parser.add_argument("--write", action="store_true", help="put the tables into bench/README.md")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="statecore-bench-") as scratch, testbed(Path(scratch)) as found:
        text = f"{surroundings()}\n\n{upkeep_table(measured(found, given.partitions, given.checkpoints))}"
    print(text)
    if given.write:
        put_between(README, "upkeep", text)
    return 0


def measured(testbed: Testbed, partitions: int, checkpoints: int) -> Upkeep:
    """A day of checkpoints of small store partitions, with its upkeep."""
    application, url, steps = small_steps(testbed, partitions, checkpoints)
    app_repository = ApplicationRepository.open(url, application)
    done: list[Step] = []
    for step in steps:
        done.append(step)
        if len(done) == checkpoints // 2:
            Collector(app_repository, min_age_ms=0).run()
    before = _amount(app_repository)
    pruned = _asked(testbed, lambda: Collector(app_repository, min_age_ms=0).run())
    after = _amount(app_repository)
    verifier = Verifier(app_repository, Level.BYTES, Subset(None, SUBSETS))
    verified = _asked(testbed, lambda: verifier.run(list_application(app_repository)))
    needed = Collector(app_repository).plan().needed
    asked = {
        f"{len(done)} checkpoints with their compactions": total(done),
        "`repo prune --apply`": pruned,
        f"`repo verify --subset /{SUBSETS}`": verified,
    }
    return Upkeep(len(done), len(app_repository.head().snapshots), before, after, needed, asked)


def _amount(app_repository: ApplicationRepository) -> Amount:
    found = Amount()
    for blob in app_repository.blobs.list(app_repository.names.root):
        found.add(blob.size)
    return found


def _asked(testbed: Testbed, work: Callable[[], object]) -> Mapping[str, int]:
    log = RequestLog(testbed.log)
    work()
    return log.counts()


def upkeep_table(upkeep: Upkeep) -> str:
    """What the repository comes to, and what requests cost; the checkpoints are those of one day."""
    lines = [f"| after {upkeep.checkpoints} checkpoints | objects | bytes |", "|---|---:|---:|"]
    for name, one in {
        "before the second prune": upkeep.before,
        "after it": upkeep.after,
        f"what the {upkeep.snapshots} snapshots need": upkeep.needed,
    }.items():
        lines.append(f"| {name} | {one.blobs:,} | {megabytes(one.bytes)} |")
    lines += ["", "| each day, of one application | requests | price of a thousand days |", "|---|---:|---:|"]
    for name, asked in upkeep.asked.items():
        lines.append(f"| {name} | {requests(asked)} | ${1000 * price(asked):.2f} |")
    month = APPLICATIONS * DAYS * sum(price(asked) for asked in upkeep.asked.values())
    lines.append(f"| **{APPLICATIONS} applications, a month** (goal: under $20) | | **${month:.2f}** |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    raise SystemExit(main())
