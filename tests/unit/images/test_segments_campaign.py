"""Every kind with segments against a model of Kafka Streams' restore, over any ranges, batches, budgets and retentions.

The model is written from the Java sources, record by record, and shares nothing with the code under test but the names
of kinds: ``AbstractSegments`` (ids, what is live, what is dropped), ``getWriteBatches`` of the segmented stores (the
time of a batch is the greatest of all its records before the first is applied), ``WindowKeySchema``,
``SessionKeySchema``, ``PrefixedWindowKeySchemas``, ``PrefixedSessionKeySchemas`` and ``RecordConverters``.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statecore.changelog.decoder import CHANGELOG_SCHEMA, HEADERS_FIELD
from statecore.formats.kinds import WINDOWED_KINDS, StoreKind
from statecore.formats.segments import Segmentation, default_segment_interval
from statecore.formats.topic_partition import TopicPartition
from statecore.images.image import SegmentedRuns, build_image
from statecore.images.model import BaseDatabases, Image, Run
from statecore.images.runs import RunBuilder
from statecore.stores.rocksdb.store import RocksDBStore
from tests.harness.case_selection import three_of
from tests.harness.reference_digest import digest_of
from tests.harness.verify_image import verify_image
from tests.unit.changelog.build import header_bytes, varint
from tests.unit.images.changelog import CuttingRunBuilder

CHANGELOG = TopicPartition("app-s-changelog", 3)
KINDS = sorted({*WINDOWED_KINDS, StoreKind.GRACE_BUFFER})
MAX_LONG = (1 << 63) - 1
Header = tuple[bytes, bytes | None]
Rows = dict[bytes, bytes]


@dataclass(frozen=True)
class Entry:
    """A record: its application key (``None``: the record has none), times, and the rest."""

    key: bytes | None
    time: int
    earlier: int
    sequence: int
    value: bytes | None
    headers: tuple[Header, ...]
    timestamp: int


@dataclass(frozen=True)
class History:
    """Ranges of batches of records, and the store's settings."""

    ranges: list[list[list[Entry]]]
    retention: int
    interval: int | None
    budget: int
    maker: type[RunBuilder]


# ---- the changelog


def is_session(kind: StoreKind) -> bool:
    return kind.value.endswith("session")


def changelog_key(kind: StoreKind, entry: Entry) -> bytes | None:
    if entry.key is None:
        return None
    if kind is StoreKind.GRACE_BUFFER:
        return struct.pack(">bq", 0, entry.time) + entry.key + struct.pack(">i", entry.sequence)
    if is_session(kind):
        return entry.key + struct.pack(">qq", entry.time, entry.time - entry.earlier)
    return entry.key + struct.pack(">qi", entry.time, entry.sequence)


def changelog_value(kind: StoreKind, entry: Entry) -> bytes | None:
    if entry.value is None or kind is not StoreKind.GRACE_BUFFER:
        return entry.value
    context = struct.pack(">qqi2sii", entry.timestamp, 7, 2, b"in", 1, -1)
    return context + struct.pack(">iii", -1, -1, len(entry.value)) + entry.value + struct.pack(">q", 0)


def batch(kind: StoreKind, entries: list[Entry], first: int) -> pa.RecordBatch:
    columns = [
        pa.array([changelog_key(kind, entry) for entry in entries], pa.binary()),
        pa.array([changelog_value(kind, entry) for entry in entries], pa.binary()),
        pa.array(range(first, first + len(entries)), pa.int64()),
        pa.array([entry.timestamp for entry in entries], pa.int64()),
        pa.array([header_bytes(entry.headers) for entry in entries], pa.binary()),
    ]
    return pa.record_batch(columns, schema=CHANGELOG_SCHEMA.append(HEADERS_FIELD))


# ---- the model


def rows_of(kind: StoreKind, entry: Entry) -> list[tuple[bytes, bytes | None]]:
    """What ``RecordConverters`` and the store's ``getWriteBatches`` put for a record; null deletes."""
    assert entry.key is not None
    key, value = changelog_key(kind, entry), changelog_value(kind, entry)
    assert key is not None
    name = kind.value
    if value is not None:
        block = header_bytes(entry.headers) if entry.headers else b""
        if kind is StoreKind.GRACE_BUFFER:
            value = value[:-8]
        elif name == "headers-session":
            value = varint(len(block)) + block + value
        elif name.startswith("headers-") and not is_session(kind):
            value = varint(len(block)) + block + struct.pack(">q", entry.timestamp) + value
        elif name in ("timestamped-window", "emit-final-window", "emit-final-sliding-window"):
            value = struct.pack(">q", entry.timestamp) + value
    if "emit-final" not in name:
        return [(key, value)]
    empty = None if value is None else b""
    if is_session(kind):
        times = struct.pack(">qq", entry.time, entry.time - entry.earlier)
        return [(b"\x01" + entry.key + times, empty), (b"\x00" + times + entry.key, value)]
    start, sequence = struct.pack(">q", entry.time), struct.pack(">i", entry.sequence)
    rows: list[tuple[bytes, bytes | None]] = [(b"\x00" + start + entry.key + sequence, value)]
    # RocksDbIndexedTimeOrderedWindowBytesStoreSupplier.determineStoreType: with headers always with an index.
    if name != "emit-final-window":
        rows.append((b"\x01" + entry.key + start + sequence, empty))
    return rows


def java_division(number: int, by: int) -> int:
    return number // by if number >= 0 else -(-number // by)


class Restored:
    """``AbstractSegments`` while ``restoreAllInternal`` is called with one batch after the other."""

    def __init__(self, kind: StoreKind, retention: int, interval: int) -> None:
        self.kind, self.retention, self.interval = kind, retention, interval
        self.segments: dict[int, Rows] = {}
        self.stream_time = -1

    def restore(self, entries: list[Entry]) -> None:
        entries = [entry for entry in entries if entry.key is not None]  # StoreChangelogReader skips null keys
        for entry in entries:
            self.stream_time = max(self.stream_time, entry.time)
        for entry in entries:
            segment = java_division(entry.time, self.interval)
            least = java_division(self.stream_time - self.retention, self.interval)
            if segment < least:
                continue
            rows = self.segments.setdefault(segment, {})
            for expired in [one for one in self.segments if one < least]:
                del self.segments[expired]
            for key, value in rows_of(self.kind, entry):
                if value is None:
                    rows.pop(key, None)
                else:
                    rows[key] = value


# ---- the code under test


def built(
    directory: Path, kind: StoreKind, history: History, segmentation: Segmentation
) -> tuple[dict[int, Rows], Image]:
    """The rows of every database by its segment, and the image."""
    runs: list[Run] = []
    stream_time, offset = -1, 0
    for number, batches in enumerate(history.ranges):
        (directory / f"range-{number}").mkdir()
        builder = history.maker(
            kind,
            directory / f"range-{number}",
            memory_budget=history.budget,
            base=BaseDatabases(all_databases=number > 0),
            start=offset,
            segmentation=segmentation,
            changelog=CHANGELOG,
        )
        for entries in batches:
            builder.add(batch(kind, entries, offset))
            offset += len(entries)
        runs += builder.finish()
        stream_time = max(stream_time, builder.statistics.stream_time)
    segmented = SegmentedRuns("s", segmentation, stream_time)
    image = build_image(directory / "s", kind, runs, {CHANGELOG: offset}, segmented=segmented)
    found: dict[int, Rows] = {}
    for path in (directory / "s").iterdir():
        start = int(path.name.removeprefix("s."))
        assert start % segmentation.interval_ms == 0
        with RocksDBStore(path, kind, read_only=True) as store:
            assert store.committed_offset(CHANGELOG) == offset
            found[start // segmentation.interval_ms] = dict(store.all())
    return found, image


def holds_what_kafka_streams_holds(directory: Path, kind: StoreKind, history: History) -> None:
    retention = MAX_LONG if kind is StoreKind.GRACE_BUFFER else history.retention
    interval = MAX_LONG if kind is StoreKind.GRACE_BUFFER else history.interval or max(retention // 2, 60_000)
    assert history.interval or default_segment_interval(kind, retention) == interval
    model = Restored(kind, retention, interval)
    for batches in history.ranges:
        for entries in batches:
            model.restore(entries)
    found, image = built(directory, kind, history, Segmentation(retention, interval))
    assert {segment: rows for segment, rows in found.items() if rows} == {
        segment: rows for segment, rows in model.segments.items() if rows
    }
    assert found, "without a segment there is no place for the offset"
    # What is there without rows is a segment that Kafka Streams would have made, or the one of an empty store.
    assert set(found) <= (set(model.segments) or {0})
    every = [row for rows in found.values() for row in rows.items()]
    assert (image.rows, image.digest, image.segments) == (len(every), digest_of(every), len(found))
    assert verify_image(directory / "s", kind, [CHANGELOG]).digest == image.digest


# ---- the histories

KEYS = (b"", b"a", b"ab", b"ab\x00", b"\x00" * 9, b"\xff", b"\x01key", b"k" * 250, None)
HEADERS: tuple[tuple[Header, ...], ...] = ((), ((b"h", b"1"), (b"h", None)), ((b"", b""), ("ä".encode(), b"x" * 200)))
RETENTIONS = (0, 1, 59_999, 60_000, 120_001, 600_000, 3_600_000)


@st.composite
def histories(draw: Callable[..., Any]) -> History:
    retention, interval = draw(st.sampled_from(RETENTIONS)), draw(st.sampled_from((None, None, 1, 7_000, 90_000_000)))
    length = interval or max(retention // 2, 60_000)
    base = draw(st.sampled_from((0, 1_795_251_660_000))) // length * length
    # Around the borders of segments; at ``last`` the first segment is still kept, a millisecond later it is not.
    last = length - 1 + retention
    steps = (0, 1, length - 1, length, 2 * length, retention, last, last + 1, last + length, 3 * last)
    newest = draw(st.sampled_from((last, last + 1, *steps)))
    some = draw(st.lists(st.sampled_from([step for step in steps if step <= newest]), max_size=5))
    times = [base + step for step in (0, newest, *some)]
    entry = st.builds(
        Entry,
        st.sampled_from(KEYS),
        st.sampled_from(times),
        st.sampled_from([0, min(times)]),
        st.sampled_from((0, 1, 0x7FFFFFFF)),
        st.one_of(st.none(), st.binary(max_size=3), st.just(b"v" * 5000)),
        st.sampled_from(HEADERS),
        st.integers(0, 3).map(lambda late: base + late),
    )
    ranges = draw(st.lists(st.lists(st.lists(entry, max_size=6), max_size=4), min_size=1, max_size=4))
    return History(
        ranges,
        retention,
        interval,
        draw(st.sampled_from((1, 20_000, 1 << 20))),
        draw(st.sampled_from([RunBuilder, CuttingRunBuilder])),
    )


@pytest.mark.parametrize("kind", three_of(KINDS))
def test_live_rows_are_those_that_kafka_streams_restores(
    tmp_path_factory: pytest.TempPathFactory, kind: StoreKind
) -> None:
    @settings(deadline=None, max_examples=12)
    @given(histories())
    def of_any_history(history: History) -> None:
        holds_what_kafka_streams_holds(tmp_path_factory.mktemp("segments"), kind, history)

    of_any_history()


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_live_rows_are_those_that_kafka_streams_restores_very_often(
    tmp_path_factory: pytest.TempPathFactory, kind: StoreKind
) -> None:
    @settings(deadline=None, max_examples=300)
    @given(histories())
    def of_any_history(history: History) -> None:
        holds_what_kafka_streams_holds(tmp_path_factory.mktemp("segments"), kind, history)

    of_any_history()
