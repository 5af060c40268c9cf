"""Changelog batches for tests, and what a store must hold after them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from statecore.changelog.decoder import CHANGELOG_SCHEMA
from statecore.formats.kinds import StoreKind
from statecore.images.runs import RunBuilder
from statecore.stores.rocksdb.store import RocksDBStore

Record = tuple[bytes | None, bytes | None]

RECORDS: list[Record] = [
    (b"key-%05d" % (number * 31 % 2000), None if number % 17 == 0 else b"value-%d" % number) for number in range(6000)
]
"""Most keys several times, some deleted at the end."""


class CuttingRunBuilder(RunBuilder):
    """Makes several runs of any kind, which overlap, as users' builders do of kinds with index rows."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._cuts = True


def timestamp_of(offset: int) -> int:
    return 1_795_251_660_000 + 7 * offset


def batch(records: Sequence[Record], first_offset: int = 0) -> pa.RecordBatch:
    """Records at consecutive offsets; the timestamp follows from the offset."""
    offsets = range(first_offset, first_offset + len(records))
    return pa.record_batch(
        [
            pa.array([key for key, _ in records], pa.binary()),
            pa.array([value for _, value in records], pa.binary()),
            pa.array(offsets, pa.int64()),
            pa.array([timestamp_of(offset) for offset in offsets], pa.int64()),
        ],
        schema=CHANGELOG_SCHEMA,
    )


def batches(records: Sequence[Record], rows: int) -> list[pa.RecordBatch]:
    return [batch(records[start : start + rows], start) for start in range(0, len(records), rows)]


def expected_rows(kind: StoreKind, records: Sequence[Record]) -> dict[bytes, bytes]:
    """The rows of a store after these records: a plain dict is the model."""
    rows: dict[bytes, bytes] = {}
    for offset, (key, value) in enumerate(records):
        if key is None:
            continue
        if value is None:
            rows.pop(key, None)
        elif kind is StoreKind.TIMESTAMPED_KEY_VALUE:
            rows[key] = timestamp_of(offset).to_bytes(8, "big") + value
        else:
            rows[key] = value
    return rows


def stored_rows(path: Path, kind: StoreKind) -> list[tuple[bytes, bytes]]:
    with RocksDBStore(path, kind, read_only=True) as store:
        return list(store.all())
