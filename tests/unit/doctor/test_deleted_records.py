"""Logs whose first records were deleted: whether a rebuild from them would lose live rows."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from statecore.changelog.cluster import Cluster
from statecore.changelog.model import LogOffsets
from statecore.changelog.reader import ChangelogReader
from statecore.doctor.changelog_comparison import ReadLimits
from statecore.doctor.deleted_records import is_row_deleted
from statecore.doctor.logged_store_offsets import DatabasePath
from statecore.formats.kinds import StoreKind
from statecore.formats.topic_partition import TopicPartition
from tests.unit.changelog.build import Record, batch
from tests.unit.changelog.scripted import ScriptedBrokers, part
from tests.unit.doctor.stored import write_database

LOG = TopicPartition("changelog", 0)
START = 7
"""The first offset of the log."""


@pytest.fixture
def brokers() -> Iterator[ScriptedBrokers]:
    with ScriptedBrokers() as made:
        yield made


def window(name: bytes, start: int, sequence: int = 0) -> bytes:
    return name + start.to_bytes(8) + sequence.to_bytes(4)


def final(name: bytes, start: int) -> bytes:
    """The row of a window of a store that emits only final results."""
    return b"\x00" + start.to_bytes(8) + name + bytes(4)


def deleted(
    brokers: ScriptedBrokers,
    kind: StoreKind,
    records: Sequence[Record],
    databases: Sequence[DatabasePath] = (),
    *,
    log_start: int = START,
    seconds: float = 300.0,
    retention_ms: int | None = 600_000,
) -> bool:
    brokers.add("changelog", [part([batch([one]) for one in records], log_start=log_start)])
    end = log_start + len(records)
    with Cluster(brokers.address, timeout=60) as cluster:
        reader, log = ChangelogReader(cluster), LogOffsets(log_start, end, end)
        limits = ReadLimits(time.monotonic() + seconds)
        return is_row_deleted(reader, LOG, log, kind, retention_ms, databases, limits)


def test_a_log_that_is_only_compacted_begins_at_0_unless_records_were_deleted(brokers: ScriptedBrokers) -> None:
    records = [Record(START, 1, b"k", b"v")]
    assert deleted(brokers, StoreKind.KEY_VALUE, records, retention_ms=None)
    assert not deleted(brokers, StoreKind.KEY_VALUE, records, log_start=0, retention_ms=None)


@pytest.mark.parametrize(
    ("times", "rows", "lost"),
    [
        ((300_000, 900_000, 950_000), (900_000, 950_000), False),  # it begins before the retention does
        ((900_000, 950_000), (900_000, 950_000), False),  # no record before came within the retention
        ((900_000, 950_000), (800_000, 900_000, 950_000), True),
        ((900_000, 950_000), (900_000, 900_001), True),  # in the segment of the first record
        ((900_000, 950_000), (350_000, 900_000), False),  # expired, in a segment that has not
        ((900_000, 950_000), (350_001, 900_000), True),
    ],
)
@pytest.mark.parametrize("kind", [StoreKind.WINDOW, StoreKind.JOIN_WINDOW, StoreKind.EMIT_FINAL_WINDOW])
def test_windows_that_are_live_are_looked_for_in_a_log_that_begins_within_their_retention(
    tmp_path: Path, brokers: ScriptedBrokers, kind: StoreKind, times: Sequence[int], rows: Sequence[int], lost: bool
) -> None:
    sequence = int(kind is StoreKind.JOIN_WINDOW)
    row = final if kind is StoreKind.EMIT_FINAL_WINDOW else window
    value = bytes(8) + b"v"
    keys = sorted((row(b"k", time), value) for time in rows)
    index = [(b"\x01k" + (800_000).to_bytes(8) + bytes(4), b"")] if kind is StoreKind.EMIT_FINAL_WINDOW else []
    write_database(tmp_path / "w.300000", {kind.data_column_family: [*keys, *index]})
    records = [Record(START + n, time, window(b"k", time, sequence), b"v") for n, time in enumerate(times)]
    assert deleted(brokers, kind, records, [DatabasePath(tmp_path / "w.300000", 300_000, 1_200_000)]) == lost


def test_what_cannot_be_looked_for_may_be_lost(tmp_path: Path, brokers: ScriptedBrokers) -> None:
    write_database(tmp_path / "w.900000", {"default": [(b"short", b"v"), (window(b"k", 900_000), b"v")]})
    there = [DatabasePath(tmp_path / "w.900000", 900_000, 1_200_000)]
    records = [Record(START, 900_000, window(b"k", 900_000), b"v")]
    assert not deleted(brokers, StoreKind.WINDOW, records, there)
    assert deleted(brokers, StoreKind.WINDOW, records, there, seconds=0)
    assert deleted(brokers, StoreKind.WINDOW, records, [*there, DatabasePath(tmp_path / "w.1200000", 1_200_000)])
    (tmp_path / "w.900000" / "CURRENT").write_bytes(b"MANIFEST-999999\n")
    assert deleted(brokers, StoreKind.WINDOW, records, there)
    assert deleted(brokers, StoreKind.WINDOW, [Record(START, 900_000, b"k", b"v")], there)
