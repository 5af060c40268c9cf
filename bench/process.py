"""What a command costs: wall seconds, CPU seconds and peak memory of its whole process tree.

The tree is looked at ten times a second through ``/proc``: every process that descends from the command, also when
its parent has gone meanwhile. CPU is user and system time of each process as last seen, so a process that ends between
two looks loses at most a tenth of a second; memory is the greatest sum over the tree of resident sets less pages of
files (``RssAnon`` + ``RssShmem``), so that libraries mapped by several processes are not counted several times.
"""

from __future__ import annotations

import os
import platform
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path

from tests.harness import jars

INTERVAL = 0.1
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Cost:
    """What a command cost.

    Attributes:
        wall: seconds from start to exit.
        cpu: user and system seconds of all its processes.
        peak_mb: greatest memory of all its processes together, MiB.
        stdout: what it printed.
        returncode: its exit code.
    """

    wall: float
    cpu: float
    peak_mb: float
    stdout: str
    returncode: int


class ProcessTree:
    """Watches a process and everything that descends from it, until ``stop``."""

    def __init__(self, root: int) -> None:
        self.peak_bytes = 0
        self._cpu: dict[tuple[int, int], float] = {}
        self._members = {root}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    @property
    def cpu(self) -> float:
        """CPU seconds so far."""
        return sum(self._cpu.values())

    def stop(self) -> None:
        """Look no more."""
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.is_set():
            self._look()
            self._stop.wait(INTERVAL)

    def _look(self) -> None:
        parents: dict[int, tuple[int, int, float]] = {}
        for entry in os.scandir("/proc"):
            if not entry.name.isdigit():
                continue
            try:
                stat = Path(entry.path, "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(entry.name)] = (int(stat[1]), int(stat[19]), (int(stat[11]) + int(stat[12])) / _TICKS)
        grown = True
        while grown:
            children = {pid for pid, (parent, _, _) in parents.items() if parent in self._members} - self._members
            self._members |= children
            grown = bool(children)
        memory = 0
        for pid in self._members & parents.keys():
            _, started, cpu = parents[pid]
            self._cpu[pid, started] = cpu
            memory += _memory(pid)
        self.peak_bytes = max(self.peak_bytes, memory)
        self.looked(self._members & parents.keys())

    def looked(self, processes: Set[int]) -> None:
        """Called after each look with the processes that live; for who wants to know more of them."""


def _memory(pid: int) -> int:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    return 1024 * sum(
        int(line.split()[1]) for line in status.splitlines() if line.startswith(("RssAnon:", "RssShmem:"))
    )


def measure(
    command: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    timeout: float = 1800,
    watch: Callable[[int], ProcessTree] = ProcessTree,
) -> Cost:
    """Run a command to its end and say what it cost; its stderr goes where ours goes."""
    began = time.monotonic()
    with subprocess.Popen(
        list(command), stdout=subprocess.PIPE, text=True, env={**os.environ, **(environment or {})}
    ) as process:
        tree = watch(process.pid)
        try:
            stdout, _ = process.communicate(timeout=timeout)
        finally:
            tree.stop()
            process.kill()
        wall = time.monotonic() - began
    return Cost(wall, tree.cpu, tree.peak_bytes / 2**20, stdout, process.returncode)


def checked(cost: Cost) -> Cost:
    """The cost of a command that went well.

    Raises:
        RuntimeError: it did not; why stands on stderr.
    """
    if cost.returncode != 0:
        raise RuntimeError(f"a contender failed with exit code {cost.returncode}: {cost.stdout}")
    return cost


def machine() -> str:
    """What this machine is."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.partition(":")[2].strip() for line in lines if "model name" in line), platform.machine())
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    return f"{os.cpu_count()} cores ({model}), {memory:.0f} GiB"


def surroundings() -> str:
    """This machine, and the release of the broker and of Kafka Streams that run beside."""
    return f"{machine()}; Kafka {jars.KAFKA_VERSION}"
