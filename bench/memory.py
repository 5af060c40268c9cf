"""What memory a restore takes at several budgets, and what no budget lowers.

::

    python -m bench.memory                                    8 million records, budgets of 32 MiB to 1 GiB, local[2]
    python -m bench.memory --size 2 --budgets 64,512          a quick look

Memory is the proportional set size (PSS) of every process of the tree, read ten times a second: a page that several
processes share, as the workers do with the daemon they were forked from, is counted once. By role: the driver (Python),
its JVM, the workers' daemon, and the workers, of which as many work at once as the master says.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from collections.abc import Set
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from bench.changelog import ChangelogSize, fill, start_broker
from bench.process import ProcessTree
from bench.restoring import restore, write_spec
from bench.streams import STORE, changelog_topic
from statecore.spark.session import DAEMON_MODULE

APPLICATION = "bench-memory"
FLOOR = 10_000
"""Records of the run that shows what is there without data."""

MEBIBYTE = 1 << 20


@dataclass
class Peaks:
    """The greatest memory that was seen, in bytes.

    Attributes:
        tree: of all processes together.
        roles: of the processes of each role, by process.
    """

    tree: int = 0
    roles: dict[str, dict[int, int]] = field(default_factory=dict)

    def of(self, role: str) -> int:
        """The greatest of one process of a role, MiB."""
        return max(self.roles.get(role, {}).values(), default=0) // MEBIBYTE


class MemoryWatch(ProcessTree):
    """Notes the PSS of each process of the tree."""

    def __init__(self, peaks: Peaks, root: int) -> None:
        self._peaks, self._root = peaks, root
        super().__init__(root)

    def looked(self, processes: Set[int]) -> None:
        """Add up what all of them have now."""
        total = 0
        for pid in processes:
            found = _pss(pid)
            total += found
            each = self._peaks.roles.setdefault(_role(pid, self._root), {})
            each[pid] = max(each.get(pid, 0), found)
        self._peaks.tree = max(self._peaks.tree, total)


def _pss(pid: int) -> int:
    try:
        found = re.search(r"^Pss:\s+(\d+) kB", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE)
    except OSError:
        return 0
    return 1024 * int(found[1]) if found else 0


def _role(pid: int, root: int) -> str:
    try:
        words = _words(pid)
        above = _words(int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]))
    except OSError:
        return "gone"
    if pid == root:
        return "driver"
    if words[0].endswith("java"):
        return "JVM"
    if DAEMON_MODULE in words:  # a worker is forked from the daemon
        return "worker" if DAEMON_MODULE in above and not above[0].endswith("java") else "daemon"
    return "other"


def _words(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")


def main() -> int:
    """Run the benchmark, print the figures."""
    parser = argparse.ArgumentParser(prog="python -m bench.memory", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--size", type=int, default=8, help="millions of records (default: 8)")
    parser.add_argument("--budgets", default="32,64,128,256,512,1024", help="memory budgets in MiB, with commas")
    parser.add_argument("--master", default="local[2]", help="Spark master (default: local[2])")
    given = parser.parse_args()
    lines = [
        "16 + 100 bytes, a quarter as many keys, 4 partitions; " + given.master + ":\n",
        "| records | memory budget | whole tree | driver | JVM | daemon | largest worker | runs | wall |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    with tempfile.TemporaryDirectory(prefix="statecore-bench-") as scratch:
        broker = start_broker(Path(scratch, "broker"))
        try:
            budgets = given.budgets.split(",")
            for records, wanted in ((FLOOR, budgets[:1]), (given.size * 1_000_000, budgets)):
                application = f"{APPLICATION}-{records}"
                fill(broker.bootstrap_servers, changelog_topic(application), ChangelogSize(records))
                stores = {STORE: {"kind": "timestamped-key-value"}}
                spec = write_spec(Path(scratch, "stores.yaml"), broker.bootstrap_servers, application, stores)
                for budget in wanted:
                    line = _restore(spec, Path(scratch, "state"), budget, given.master)
                    lines.append(f"| {records:,} {line}")
                    print(lines[-1], file=sys.stderr, flush=True)
        finally:
            broker.stop()
    print("\n".join(lines))
    return 0


def _restore(spec: Path, state: Path, budget: str, master: str) -> str:
    peaks = Peaks()
    found = restore(spec, state, "--master", master, "--memory-budget", f"{budget}m", watch=partial(MemoryWatch, peaks))
    roles = " | ".join(f"{peaks.of(role)} MiB" for role in ("driver", "JVM", "daemon", "worker"))
    return f"| {budget} MiB | {peaks.tree // MEBIBYTE:,} MiB | {roles} | {found.runs} | {found.cost.wall:.1f} s |"


if __name__ == "__main__":
    sys.exit(main())
