"""Runs written from dicts, and SST files forged block by block."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt

from statecore.images.digest import EMPTY
from statecore.images.key_table import Chunk
from statecore.images.model import RunFile, RunFormat
from statecore.images.run_writer import write_run
from tests.harness.reference_digest import xxh64

Rows = dict[bytes, bytes | None]


def columns(items: Sequence[bytes]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    offsets = np.zeros(len(items) + 1, np.int64)
    np.cumsum([len(item) for item in items], out=offsets[1:])
    return offsets, np.frombuffer(b"".join(items), np.uint8)


def chunks(rows: Rows, at_once: int) -> Iterator[Chunk]:
    keys = sorted(rows)
    for start in range(0, len(keys), at_once):
        part = keys[start : start + at_once]
        valid = np.array([rows[key] is not None for key in part], np.uint8)
        yield Chunk(*columns(part), *columns([rows[key] or b"" for key in part]), valid, np.zeros(len(part), np.int64))


def written(path: Path, rows: Rows, at_once: int = 1000) -> RunFile:
    return write_run(path, chunks(rows, at_once))


def files_of(runs: list[RunFile]) -> list[Path]:
    return [run.path for run in runs]


def varint(*numbers: int) -> bytes:
    encoded = bytearray()
    for rest in numbers:
        while rest >= 128:
            encoded.append(rest & 127 | 128)
            rest >>= 7
        encoded.append(rest)
    return bytes(encoded)


def entry(key: bytes, value: bytes = b"v", common: int = 0, kind: int = 1) -> bytes:
    return varint(common, len(key) + 8, len(value)) + key + struct.pack("<Q", kind) + value


def sealed(contents: bytes, compression: int = 0) -> bytes:
    whole = contents + bytes([compression])
    return whole + struct.pack("<I", xxh64(whole) & 0xFFFFFFFF)


def contents_of(*entries: bytes, restarts: int = 1) -> bytes:
    return b"".join(entries) + bytes(4) + struct.pack("<I", restarts)


GOOD = contents_of(entry(b"a"), entry(b"b", common=1))


def forged(path: Path, *blocks: bytes, index: bytes | None = None) -> RunFile:
    """A file with these blocks (trailers included), right in everything else."""
    ends = np.cumsum([0, *map(len, blocks)]).tolist()
    if index is None:
        handles = [varint(start, end - start - 5) for start, end in pairwise(ends)]
        index = contents_of(*(b"\0" + varint(1) + b"z" + handle for handle in handles))
    footer = (b"\3" + varint(0, 0, ends[-1], len(index))).ljust(41, b"\0") + struct.pack("<IQ", 5, 0x88E241B785F4CFF7)
    path.write_bytes(b"".join(blocks) + sealed(index) + footer)
    return RunFile("", RunFormat.SST, 2, 0, 4, path.stat().st_size, EMPTY, b"a".hex(), b"z".hex(), path=path)
