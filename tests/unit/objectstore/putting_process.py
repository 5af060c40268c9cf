"""Puts blobs until it is killed: ``python -m tests.unit.objectstore.putting_process IMPLEMENTATION PLACE``."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

from tests.unit.objectstore.implementations import IMPLEMENTATIONS

SIZE = 300_000


def content(number: int) -> bytes:
    return bytes([number % 251]) * SIZE


def main(implementation: str, place: str) -> None:
    blobs = IMPLEMENTATIONS[implementation](Path(place))
    source = Path(place, f"source-{implementation}")
    for number in itertools.count():
        if number % 2:
            source = source.with_suffix(f".{number}")
            source.write_bytes(content(number))
            blobs.put_if_absent(f"killed/{number}", source)
        else:
            blobs.put_if_absent(f"killed/{number}", content(number))
        print(number, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
