"""Counts a pointer up: ``python -m tests.unit.objectstore.swapping_process IMPLEMENTATION PLACE WHO TIMES``."""

from __future__ import annotations

import sys
from pathlib import Path

from statecore.objectstore.pointers import Pointers


def count_up(pointers: Pointers, who: str, times: int) -> None:
    """Add one so many times, however often another one is first."""
    for number in range(times):
        while True:
            found = pointers.read("counter")
            now = 0 if found is None else int(found.content.split()[0])
            mine = f"{now + 1} by {who} {number}".encode()
            if pointers.swap("counter", mine, None if found is None else found.version) is not None:
                break


if __name__ == "__main__":
    from tests.unit.objectstore.implementations import POINTERS

    count_up(POINTERS[sys.argv[1]](Path(sys.argv[2])), sys.argv[3], int(sys.argv[4]))
