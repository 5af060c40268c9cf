"""Large logs are looked at: how many records there are to an offset, and how large they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import pytest
from kafka.protocol.consumer.fetch import FetchRequest

from statecore.changelog import record_density as shapes
from statecore.changelog.cluster import Cluster
from statecore.changelog.model import OffsetRange
from statecore.changelog.record_density import PartitionShape, Sample, sample_of, sample_shapes, unsampled_shapes
from statecore.formats.topic_partition import TopicPartition
from tests.unit.changelog.build import Record, batch, marker
from tests.unit.changelog.conftest import Connect
from tests.unit.changelog.scripted import CLOSE, NEWEST, SILENT, ScriptedBrokers, fetch_error, part

TP = TopicPartition("orders", 0)
SPAN = OffsetRange("orders", 0, 0, 1600)


@pytest.fixture
def compacted(brokers: ScriptedBrokers) -> ScriptedBrokers:
    """Every tenth record is left of the older half, all of the newer one. Ten records are more than is asked for."""
    offsets = [*range(0, 800, 10), *range(800, 1600)]
    records = [Record(offset, 1, b"k%04d" % offset, bytes(3995)) for offset in offsets]
    brokers.add("orders", [part([batch(records[at : at + 10]) for at in range(0, len(records), 10)])])
    return brokers


looked_at = partial(sample_shapes, min_offsets=1000)


def test_a_large_log_is_sampled_in_a_few_places(compacted: ScriptedBrokers, connect: Connect) -> None:
    cluster = connect(compacted)
    cluster.log_offsets([TP])
    connections = compacted.open_connections()
    found = looked_at(cluster, [PartitionShape.of_offsets(SPAN)])[TP]
    older, newer = found.records[:4], found.records[4:]
    assert len(found.records) == shapes.SAMPLED_PLACES == len(compacted.seen(FetchRequest))
    assert sum(older) == pytest.approx(80, rel=0.2)
    assert sum(newer) == pytest.approx(800, rel=0.2)
    assert found.bytes == pytest.approx(4000 * sum(found.records), rel=0.05)
    assert 800 < found.offset_at(0.5) < 1300
    assert compacted.open_connections() == connections


def test_the_largest_of_many_large_logs_are_sampled() -> None:
    asked: list[OffsetRange] = []

    def seen(_: Cluster, pieces: Sequence[OffsetRange]) -> dict[OffsetRange, Sample]:
        asked.extend(pieces)
        return dict.fromkeys(pieces, Sample(0.5, 100.0))

    spans = [OffsetRange("orders", number, 0, 1_000_000 + 1000 * (number * 7 % 40)) for number in range(40)]
    found = sample_shapes(Cluster("nowhere:1"), [PartitionShape.of_offsets(span) for span in spans], sample=seen)
    assert set(found) == {span.topic_partition for span in sorted(spans, key=lambda span: -span.end)[:16]}
    assert len(asked) == 16 * shapes.SAMPLED_PLACES


def test_a_small_log_is_not_sampled(compacted: ScriptedBrokers, connect: Connect) -> None:
    small = OffsetRange("orders", 0, 0, 999)
    shape = PartitionShape(small, (999.0,), 5000.0)
    assert unsampled_shapes([small], {TP: 5000}) == {TP: shape}
    assert unsampled_shapes([small], None) == {TP: PartitionShape(small, (999.0,), 99_900.0)}
    assert looked_at(connect(compacted), [shape]) == {}
    assert not compacted.seen(FetchRequest)


def test_an_unreadable_log_has_no_estimate(compacted: ScriptedBrokers, connect: Connect) -> None:
    gone = PartitionShape.of_offsets(OffsetRange("nowhere", 0, 0, 1600))
    assert looked_at(connect(compacted, timeout=0.5), [gone]) == {}
    cluster = connect(compacted)
    compacted.next(FetchRequest, fetch_error(1))  # the log's start has moved beyond the first place
    assert looked_at(cluster, [PartitionShape.of_offsets(SPAN)]) == {}


@pytest.mark.parametrize("newest", [4, 11, 12, 13])
def test_an_older_broker_is_sampled_with_its_own_version(
    start: Callable[..., ScriptedBrokers], connect: Connect, newest: int
) -> None:
    brokers = start(versions=NEWEST | {FetchRequest.API_KEY: (0, newest)})
    brokers.add("orders", [part([batch([Record(offset, 1, b"k", b"v" * 99) for offset in range(10)])])])
    piece = OffsetRange("orders", 0, 0, 10)
    found = shapes.sample_ranges(connect(brokers), [piece])
    assert found == {piece: Sample(1.0, pytest.approx(100, abs=4))}
    assert [request.API_VERSION for request in brokers.asked(FetchRequest)] == [newest]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "xerial", "lz4", "zstd"])
def test_records_are_weighed_decompressed_whatever_their_codec(codec: str) -> None:
    data = batch([Record(offset, 1, b"k" * 16, b"v" * 84) for offset in range(10, 60)], codec=codec)
    found = sample_of(data + data[:40], OffsetRange("orders", 0, 10, 100))
    assert found is not None
    assert found.density == 1.0
    assert found.record_bytes == pytest.approx(100, abs=4)


def test_markers_are_no_records_and_a_later_batch_shows_an_empty_piece() -> None:
    data = batch([Record(0, 1, b"k", b"v")], producer=7, transactional=True) + marker(1, 7, commit=True)
    found = sample_of(data, OffsetRange("orders", 0, 0, 100))
    assert found is not None
    assert found.density == 0.5
    behind = marker(0, 7, commit=True) + batch([Record(1, 1, b"k", b"v" * 199)])
    assert sample_of(behind, SPAN) == Sample(0.5, pytest.approx(200, abs=8)), "a marker says nothing of sizes"
    assert sample_of(batch([Record(100, 1, b"k", b"v")]), OffsetRange("orders", 0, 0, 100)) == Sample(0.0, 0.0)


def test_a_sample_without_a_complete_known_batch_gives_no_estimate() -> None:
    data = batch([Record(0, 1, b"k", b"v")])
    assert sample_of(data[:-1], SPAN) is None
    assert sample_of(b"", SPAN) is None
    assert sample_of(data[:16] + b"\1" + data[17:], SPAN) is None


@pytest.mark.parametrize("length", [-12, 0, 48])
def test_a_batch_with_an_impossible_length_is_ignored(length: int) -> None:
    data = batch([Record(0, 1, b"k", b"v")])
    assert sample_of(data[:8] + length.to_bytes(4, "big", signed=True) + data[12:], SPAN) is None


@pytest.mark.parametrize("count", [-1, 2, 1 << 30])
def test_a_batch_with_an_impossible_record_count_is_ignored(count: int) -> None:
    """Else ranges would begin before the log, or overlap."""
    assert sample_of(batch([Record(0, 1, b"k", b"v")], count=count), SPAN) is None


def test_a_batch_that_begins_before_the_piece_counts_with_all_of_its_offsets() -> None:
    data = batch([Record(offset, 1, b"k", b"v") for offset in range(100)])
    found = sample_of(data, OffsetRange("orders", 0, 80, 200))
    assert found is not None
    assert found.density == 1.0


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_records_that_cannot_be_decompressed_weigh_what_they_are_and_the_read_says_what_is_wrong(codec: str) -> None:
    data = batch([Record(offset, 1, b"k" * 16, b"v" * 84) for offset in range(50)], codec=codec)
    found = sample_of(data[:61] + b"\xff" * (len(data) - 61), OffsetRange("orders", 0, 0, 50))
    assert found == Sample(1.0, max(0.0, (len(data) - 61) / 50 - 8))


@pytest.mark.parametrize("answer", [SILENT, CLOSE])
def test_a_leader_that_does_not_answer_leaves_the_estimate_unchanged(
    compacted: ScriptedBrokers, connect: Connect, answer: object
) -> None:
    cluster = connect(compacted, timeout=2.0)
    cluster.log_offsets([TP])
    compacted.always(FetchRequest, answer)
    assert looked_at(cluster, [PartitionShape.of_offsets(SPAN)]) == {}
    assert compacted.seen(FetchRequest)


def test_offsets_without_a_record_before_the_first_batch_count() -> None:
    data = batch([Record(offset, 1, b"k", b"v") for offset in range(50, 60)])
    found = sample_of(data, OffsetRange("orders", 0, 0, 100))
    assert found is not None
    assert found.density == pytest.approx(10 / 60)
