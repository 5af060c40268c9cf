"""Windows through runs and images: a database a segment, expired ones left out, never none at all."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statecore.changelog.decoder import CHANGELOG_SCHEMA
from statecore.errors import Invalid
from statecore.formats.kinds import StoreKind
from statecore.formats.segments import Segmentation
from statecore.formats.topic_partition import TopicPartition
from statecore.images.image import SegmentedRuns, build_image
from statecore.images.model import BaseDatabases, Image, Run
from statecore.images.runs import RunBuilder
from statecore.stores.rocksdb.store import RocksDBStore
from tests.harness.raising import raises
from tests.harness.reference_digest import digest_of
from tests.harness.verify_image import verify_image
from tests.unit.images.changelog import CuttingRunBuilder

CHANGELOG = TopicPartition("app-w-changelog", 3)
SEGMENTATION = Segmentation(retention_ms=100, interval_ms=50)
KIND = StoreKind.TIMESTAMPED_WINDOW
Write = tuple[bytes, int, bytes | None]


def window_key(key: bytes, start: int) -> bytes:
    return key + start.to_bytes(8, "big", signed=True) + bytes(4)


def batch(writes: list[Write], first: int = 0) -> pa.RecordBatch:
    return pa.record_batch(
        [
            pa.array([window_key(key, start) for key, start, _ in writes], pa.binary()),
            pa.array([value for _, _, value in writes], pa.binary()),
            pa.array(range(first, first + len(writes)), pa.int64()),
            pa.array([1000 + start for _, start, _ in writes], pa.int64()),
        ],
        schema=CHANGELOG_SCHEMA,
    )


def read_ranges(
    directory: Path, ranges: list[list[Write]], budget: int = 1 << 20, maker: type[RunBuilder] = RunBuilder
) -> tuple[list[Run], int, int]:
    """The runs of all ranges, the stream time over them, and the rows that the builders left out."""
    runs: list[Run] = []
    stream_time, expired, first = -1, 0, 0
    for number, writes in enumerate(ranges):
        (directory / str(number)).mkdir(parents=True)
        builder = maker(
            KIND,
            directory / str(number),
            memory_budget=budget,
            base=BaseDatabases(all_databases=number > 0),
            start=first,
            segmentation=SEGMENTATION,
            changelog=CHANGELOG,
        )
        for write in writes:
            builder.add(batch([write], first))
            first += 1
        runs += builder.finish()
        stream_time = max(stream_time, builder.statistics.stream_time)
        expired += builder.statistics.expired
    return runs, stream_time, expired


def build(directory: Path, runs: list[Run], stream_time: int) -> Image:
    segmented = SegmentedRuns("w", SEGMENTATION, stream_time)
    return build_image(directory, KIND, runs, {CHANGELOG: 9}, segmented=segmented)


def segments_of(directory: Path) -> dict[str, dict[bytes, bytes]]:
    found = {}
    for path in directory.iterdir():
        with RocksDBStore(path, KIND, read_only=True) as store:
            found[path.name] = dict(store.all())
            assert store.committed_offset(CHANGELOG) == 9
    return found


WRITES = st.lists(
    st.tuples(st.sampled_from([b"", b"a", b"ab"]), st.integers(0, 400), st.one_of(st.none(), st.binary(max_size=3))),
    max_size=25,
)


@settings(deadline=None, max_examples=40)
@given(
    st.lists(WRITES, min_size=1, max_size=3),
    st.sampled_from([1, 1 << 20]),
    st.sampled_from([RunBuilder, CuttingRunBuilder]),
)
def test_the_live_rows_of_any_ranges_are_those_of_a_dict(
    tmp_path_factory: pytest.TempPathFactory, ranges: list[list[Write]], budget: int, maker: type[RunBuilder]
) -> None:
    path = tmp_path_factory.mktemp("windows")
    runs, stream_time, left_out = read_ranges(path / "runs", ranges, budget, maker)
    image = build(path / "image", runs, stream_time)
    writes = [write for one in ranges for write in one]
    assert stream_time == max((start for _, start, _ in writes), default=-1)
    last = {(key, start): value for key, start, value in writes}
    first_live = max(0, stream_time - SEGMENTATION.retention_ms) // SEGMENTATION.interval_ms
    expected = {
        window_key(key, start): (1000 + start).to_bytes(8, "big") + value
        for (key, start), value in last.items()
        if value is not None and start // SEGMENTATION.interval_ms >= first_live
    }
    segments = segments_of(path / "image")
    assert {key: value for rows in segments.values() for key, value in rows.items()} == expected
    for name, rows in segments.items():
        begin = int(name.removeprefix("w."))
        assert all(begin <= int.from_bytes(key[-12:-4], "big") < begin + 50 for key in rows)
    assert (image.rows, image.digest) == (len(expected), digest_of(expected.items()))
    assert image.segments == len(segments) >= 1
    assert verify_image(path / "image", KIND, [CHANGELOG]).digest == image.digest
    assert image.expired + left_out >= 0


def test_a_store_without_rows_has_one_segment_that_carries_the_offset(tmp_path: Path) -> None:
    image = build(tmp_path / "image", [], -1)
    assert segments_of(tmp_path / "image") == {"w.0": {}}
    assert (image.rows, image.segments) == (0, 1)


def test_expired_rows_are_counted(tmp_path: Path) -> None:
    runs, stream_time, left_out = read_ranges(tmp_path / "runs", [[(b"a", 10, b"x")], [(b"a", 400, b"y")]])
    image = build(tmp_path / "image", runs, stream_time)
    assert (left_out, image.expired, image.rows) == (0, 1, 1)
    assert list(segments_of(tmp_path / "image")) == ["w.400"]


def test_a_tombstone_moves_stream_time_although_it_leaves_no_row(tmp_path: Path) -> None:
    runs, stream_time, left_out = read_ranges(tmp_path / "runs", [[(b"a", 10, b"x"), (b"b", 400, None)]])
    assert (stream_time, left_out, runs) == (400, 1, [])
    build(tmp_path / "image", runs, stream_time)
    assert segments_of(tmp_path / "image") == {"w.400": {}}


def test_a_key_too_short_for_a_window_is_refused_by_name(tmp_path: Path) -> None:
    builder = RunBuilder(KIND, tmp_path, base=BaseDatabases.NONE, segmentation=SEGMENTATION, changelog=CHANGELOG)
    columns = [pa.array([window_key(b"", 1), b"short"], pa.binary()), pa.array([b"", b""], pa.binary())]
    wrong = pa.record_batch([*columns, pa.array([41, 42]), pa.array([1, 1])], schema=CHANGELOG_SCHEMA)
    with raises(
        Invalid, "record-kind-mismatch", topic="app-w-changelog", partition=3, offset=42, kind="timestamped-window"
    ):
        builder.add(wrong)
