"""What a database shows of several runs, told from their files: rows, bytes and digest, without a scan by RocksDB.

Scanning makes two ``bytes`` objects a row. The files in a database are proven to be the runs by their SHA-256, and the
runs are SST files of our own layout (:mod:`statecore.images.sst`), so a kernel reads them where they lie, merges them
key by key as RocksDB would (the later run wins, a delete hides what is below it) and adds up the digest
(:mod:`statecore.images.digest`).

Only runs whose ranges of keys overlap are merged. Others keep the digest that they were written with, and digests of
stores that have no key in common add up::

    keys      a ──────────────────────────────────────────▶ z
    run 0     ├────────┤
    run 1           ├─────────┤                                 merged with run 0
    run 2                         ├───────┤                     as it was written

Which files can be read so is said by their footers: format version 5 with XXH64 is what the columnar writer writes,
and RocksDB, through rocksdict, writes version 6 with XXH3 here. Their rows have to be scanned.
"""

from __future__ import annotations

import statecore.extras.pipeline

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from statecore.errors import Corrupted
from statecore.images import kernel, merged_kernel
from statecore.images.addresses import address_of
from statecore.images.digest import EMPTY, SEEDS, StoreDigest, combined
from statecore.images.merged_kernel import CURSOR, DAMAGE, KEY_ROOM, MORE, STATE, Cursor, State
from statecore.images.model import Run, RunFile
from statecore.images.sst import FORMAT_VERSION

_MAGIC = 0x88E241B785F4CFF7
_XXH64 = 3
_FOOTER_BYTES = 53
_TRAILER_BYTES = 5
# A second of work at most, so that an interrupt is heard.
_ROWS_AT_ONCE = 4 << 20


class _Table(NamedTuple):
    """A run's file: its bytes, and where its index entries begin (data blocks lie before) and end."""

    data: npt.NDArray[np.uint8]
    entries: int
    entries_end: int


def merged_digest(runs: Sequence[RunFile], files: Sequence[Path]) -> StoreDigest | None:
    """What a database shows into which these runs, and nothing else, were ingested.

    Args:
        runs: the runs in the order they were applied.
        files: their files in that order, already proven to be what the runs say (their SHA-256).

    Returns:
        Rows, bytes and digest; ``None`` where runs overlap and one of them was not written column by column, so that
        its rows have to be scanned.

    Raises:
        Corrupted: a run is not in the format that its footer says.
    """
    groups = overlapping(runs)
    tables: dict[int, _Table] = {}
    for number in (number for group in groups if len(group) > 1 for number in group):
        table = _open(runs[number], files[number])
        if table is None:
            return None
        tables[number] = table
    found = StoreDigest(0, 0, EMPTY)
    for group in groups:
        run = runs[group[0]]
        of_group = StoreDigest(run.rows, run.bytes, run.digest)
        if len(group) > 1:
            of_group = _merge([runs[number] for number in group], [tables.pop(number) for number in group])
        found = combined(found, of_group)
    return found


def overlapping(runs: Sequence[Run]) -> list[list[int]]:
    """The numbers of the runs, ascending in each group; runs of different groups share no range of keys."""
    ranges = sorted((bytes.fromhex(run.min_key), bytes.fromhex(run.max_key), at) for at, run in enumerate(runs))
    groups: list[list[int]] = []
    end = b""
    for first, last, at in ranges:
        if groups and first <= end:
            groups[-1].append(at)
            end = max(end, last)
        else:
            groups.append([at])
            end = last
    return [sorted(group) for group in groups]


def _merge(runs: Sequence[RunFile], tables: Sequence[_Table]) -> StoreDigest:
    count = len(runs)
    cursors, state = np.zeros((count, len(CURSOR)), np.int64), np.array(State(), np.int64)
    keys, heap, last = np.zeros((count, KEY_ROOM), np.uint8), np.zeros(count, np.int64), np.zeros(KEY_ROOM, np.uint8)
    for cursor, table, key in zip(cursors, tables, keys, strict=True):
        start = address_of(table.data)
        cursor[:] = Cursor(
            file=start,
            limit=table.entries,
            index_at=start + table.entries,
            index_end=start + table.entries_end,
            key=address_of(key),
        )
    result = merged_kernel.run("begin", cursors=cursors, count=count, heap=heap, state=state)
    while result == MORE:
        result = merged_kernel.run(
            "merge",
            cursors=cursors,
            heap=heap,
            state=state,
            last=last,
            limit=_ROWS_AT_ONCE,
            seed_a=SEEDS[0],
            seed_b=SEEDS[1],
        )
    found = State(*state.tolist())
    if result == merged_kernel.DAMAGED:
        place = int(cursors[found.damaged, CURSOR.next_block])
        raise damaged(runs[found.damaged], f"{DAMAGE[found.damage]} (near byte {place})")
    for run, entries in zip(runs, cursors[:, CURSOR.entries].tolist(), strict=True):
        if entries != run.rows + run.deletes:
            raise damaged(run, f"has {entries} entries instead of {run.rows + run.deletes}")
    sums = state[[STATE.sum_a, STATE.sum_b]].view(np.uint64).tolist()
    return StoreDigest(found.rows, found.bytes, "".join(f"{total:016x}" for total in sums))


def _open(run: RunFile, path: Path) -> _Table | None:
    """Map a file and find its index; ``None`` when it is not one of the columnar writer."""
    if path.stat().st_size < _FOOTER_BYTES:
        raise damaged(run, "is too short for an SST file")
    data = np.memmap(path, np.uint8, "r")
    footer = data[-_FOOTER_BYTES:].tobytes()
    version, magic = struct.unpack_from("<IQ", footer, 41)
    if magic != _MAGIC:
        raise damaged(run, "does not end as an SST file does")
    if (version, footer[0]) != (FORMAT_VERSION, _XXH64):
        return None
    _, _, offset, size = _numbers(run, footer[1:41])
    room = len(data) - _FOOTER_BYTES - _TRAILER_BYTES
    if size < 8 or offset > room or size > room - offset:
        raise damaged(run, "has an index outside of the file")
    whole = data[offset : offset + size + 1]
    (checksum,) = struct.unpack("<I", data[offset + size + 1 : offset + size + _TRAILER_BYTES].tobytes())
    if whole[-1] or kernel.run("xxh64", address=whole, length=len(whole), seed=0) & 0xFFFFFFFF != checksum:
        raise damaged(run, "has an index whose checksum differs")
    (blocks,) = struct.unpack("<I", whole[-5:-1].tobytes())
    if not 0 < blocks <= (size - 4) // 4:
        raise damaged(run, "has an index without entries or with too many")
    return _Table(data, offset, offset + size - 4 - 4 * blocks)


def _numbers(run: RunFile, data: bytes) -> list[int]:
    """The four numbers of a footer's handles."""
    numbers, number, shift = [], 0, 0
    for byte in data:
        number |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            numbers.append(number)
            number = shift = 0
    if len(numbers) < 4:
        raise damaged(run, "has a footer without handles")
    return numbers[:4]


def damaged(run: RunFile, how: str) -> Corrupted:
    """The error for a run that is not what it was or must be."""
    return Corrupted(
        f"The run {run.path} {how}.",
        action="Build the run again; if it happens twice, check the disk and memory of this host.",
        path=str(run.path),
    )


def warm() -> None:
    """Load the kernels (compile them on the first use of an installation), so that a first image does not wait."""
    kernel.warm()
    merged_kernel.warm()
