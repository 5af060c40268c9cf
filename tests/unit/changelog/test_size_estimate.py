"""Partitions are weighed by their bytes, and looked at only where something depends on it."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from statecore.changelog.cluster import Cluster
from statecore.changelog.model import OffsetRange
from statecore.changelog.ranges import ranges_of
from statecore.changelog.record_density import PartitionShape
from statecore.changelog.size_estimate import SizeEstimate, estimate_sizes
from statecore.formats.topic_partition import TopicPartition

MILLION = 1_000_000
BUDGET = 1 << 30


class Looks:
    """Which partitions were looked at; each turns out to have a share of the records that its offsets allow."""

    def __init__(self, share: float, sizes: dict[TopicPartition, int] | None) -> None:
        self.seen: list[list[int]] = []
        self.share, self.sizes = share, sizes
        self.asked = 0
        self.most = 16

    def look_at(self, _: Cluster, shapes: Iterable[PartitionShape]) -> dict[TopicPartition, PartitionShape]:
        spans = [shape.span for shape in shapes][: self.most]
        self.seen.append(sorted(span.partition for span in spans))
        records = {span: (span.end - span.start) * self.share for span in spans}
        return {span.topic_partition: PartitionShape(span, (n,), 100 * n) for span, n in records.items()}

    def log_sizes(self, *_: object) -> dict[TopicPartition, int] | None:
        self.asked += 1
        return self.sizes

    def weigh(self, *sizes: int, workers: int = 2, all_of_them: bool = False) -> SizeEstimate:
        spans = [OffsetRange("t", number, 0, size) for number, size in enumerate(sizes)]
        return estimate_sizes(
            Cluster("nowhere:1"),
            spans,
            workers,
            BUDGET,
            complete=all_of_them,
            sample=self.look_at,
            sizes_of=self.log_sizes,
        )


def test_one_unsplit_partition_of_each_topic_is_sampled() -> None:
    looks = Looks(1.0, {TopicPartition("t", 0): 5 * MILLION, TopicPartition("t", 1): 7 * MILLION})
    weights = looks.weigh(*[5 * MILLION] * 2)
    assert weights.log_bytes == 12 * MILLION
    assert (looks.seen, looks.asked) == ([[1]], 1)
    assert weights.shapes[TopicPartition("t", 1)].bytes == 500 * MILLION
    assert weights.shapes[TopicPartition("t", 0)].bytes == pytest.approx(5 / 7 * 500 * MILLION)


def test_a_partition_that_turns_out_large_is_sampled_before_it_is_split() -> None:
    compressed = {TopicPartition("t", number): 10 * MILLION - number for number in range(4)}
    looks = Looks(20.0, compressed)
    weights = looks.weigh(*[5 * MILLION] * 4, workers=16)
    spans = [shape.span for shape in weights.shapes.values()]
    cut = {span.partition for span, n in ranges_of(spans, 16, weights.shapes, memory_budget=BUDGET).items() if n > 1}
    assert cut == {0, 1, 2, 3}
    assert {number for look in looks.seen for number in look} == cut


def test_without_log_sizes_only_partitions_that_may_be_split_are_sampled() -> None:
    looks = Looks(1.0, None)
    assert looks.weigh(*[5 * MILLION] * 4).log_bytes is None
    assert (looks.seen, looks.asked) == ([], 1)


def test_an_estimate_samples_all_partitions_once() -> None:
    looks = Looks(0.5, None)
    weights = looks.weigh(*[5 * MILLION] * 4, all_of_them=True)
    assert weights.log_bytes is None
    assert sum(sum(shape.records) for shape in weights.shapes.values()) == 10 * MILLION
    assert looks.seen == [[0, 1, 2, 3]]


def test_an_estimate_of_unsampled_partitions_uses_others_of_their_topic() -> None:
    sizes = {TopicPartition("t", number): (3 - number) * 10 * MILLION for number in range(3)}
    looks = Looks(0.5, sizes)
    looks.most = 1
    shapes = looks.weigh(*[5 * MILLION] * 3, all_of_them=True).shapes
    ((number,),) = looks.seen
    seen = shapes[TopicPartition("t", number)]
    for tp, shape in shapes.items():
        share = sizes[tp] / sizes[seen.span.topic_partition]
        assert shape.bytes == pytest.approx(share * 250 * MILLION)
        assert sum(shape.records) == pytest.approx(share * 2.5 * MILLION)
        assert shape.span.partition == tp.partition


def test_a_partition_that_becomes_the_largest_is_sampled() -> None:
    looks = Looks(0.01, None)
    looks.weigh(40 * MILLION, 8 * MILLION)
    assert looks.seen == [[0], [1]]


def test_even_partitions_are_split_evenly_within_the_sampling_limit() -> None:
    even = {TopicPartition("t", number): 500 * MILLION for number in range(20)}
    looks = Looks(0.5, even)
    spans = [OffsetRange("t", number, 0, 10 * MILLION) for number in range(20)]
    shapes = looks.weigh(*[10 * MILLION] * 20, workers=40).shapes
    assert sum(map(len, looks.seen)) < 20
    assert {(shape.records, shape.bytes) for shape in shapes.values()} == {((5e6,), 5e8)}
    assert set(ranges_of(spans, 40, shapes, memory_budget=BUDGET).values()) == {2}


def test_of_nothing_that_is_read_nothing_is_asked() -> None:
    looks = Looks(1.0, None)
    assert looks.weigh() == SizeEstimate({}, 0)
    assert looks.asked == 0
