"""Runs tests again and again in random orders beside processes that keep every core busy: ``make test-shaken``.

A test that passes alone and fails here waits for a time and not for a fact, or leans on another test. The seed of a
round that failed is printed; ``pytest --shuffle SEED`` gives the same order again.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

_BUSY = "while True: pass"


@contextmanager
def busy_cores() -> Iterator[None]:
    """One process a core that does nothing but compute."""
    busy = [subprocess.Popen([sys.executable, "-c", _BUSY]) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def main(arguments: list[str] | None = None) -> int:
    """Run the rounds; the exit code is 1 where one of them failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--seed", type=int, default=None, help="of the first round; the others count on")
    parser.add_argument("tests", nargs="*", default=["tests/unit", "tests/integration"])
    given = parser.parse_args(arguments)
    seed = random.randrange(10**6) if given.seed is None else given.seed
    failed = []
    with busy_cores():
        for number in range(given.rounds):
            begun = time.monotonic()
            command = [sys.executable, "-m", "pytest", "-q", "-m", "not long and not full"]
            command += ["-n", str(given.workers), "--dist", "loadfile", "--no-loadscope-reorder"]
            command += ["-o", "tmp_path_retention_policy=failed", "-o", "tmp_path_retention_count=1"]
            command += ["--shuffle", str(seed + number), *given.tests]
            code = subprocess.run(command, check=False).returncode
            print(
                f"round {number + 1} of {given.rounds}, seed {seed + number}: "
                f"{'passed' if code == 0 else f'exit code {code}'} in {time.monotonic() - begun:.0f} s",
                flush=True,
            )
            if code:
                failed.append(seed + number)
    if failed:
        print(f"failed with the seeds {', '.join(map(str, failed))}")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
