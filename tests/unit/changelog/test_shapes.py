"""Large logs are sampled: how many records there are to an offset, and how large they are."""

from __future__ import annotations

import pytest
from kafka.protocol.consumer.fetch import FetchRequest

from statecore.changelog import shapes
from statecore.changelog.model import OffsetRange
from statecore.changelog.shapes import PartitionShape, shapes_of
from statecore.formats.topic_partition import TopicPartition
from tests.unit.changelog.build import Record, batch
from tests.unit.changelog.conftest import Connect
from tests.unit.changelog.scripted import ScriptedBrokers, part

TP = TopicPartition("orders", 0)
SPAN = OffsetRange("orders", 0, 0, 1600)


@pytest.fixture
def compacted(brokers: ScriptedBrokers, monkeypatch: pytest.MonkeyPatch) -> ScriptedBrokers:
    """Every tenth record is left of the older half, all of the newer one; a key and a value have ten bytes."""
    offsets = [*range(0, 800, 10), *range(800, 1600)]
    records = [Record(offset, 1, b"k%04d" % offset, b"value") for offset in offsets]
    brokers.add("orders", [part([batch(records[at : at + 10]) for at in range(0, len(records), 10)])])
    monkeypatch.setattr(shapes, "WORTH_A_LOOK", 1000)
    monkeypatch.setattr(shapes, "_SAMPLE_BYTES", len(batch(records[:10])))
    return brokers


def test_a_large_log_is_looked_at_in_a_few_places(compacted: ScriptedBrokers, connect: Connect) -> None:
    found = shapes_of(connect(compacted), [SPAN], {TP: 1 << 20})[TP]
    older, newer = found.records[:4], found.records[4:]
    assert len(found.records) == shapes.PLACES
    assert sum(older) == pytest.approx(80, rel=0.2)
    assert sum(newer) == pytest.approx(800, rel=0.2)
    assert found.bytes == pytest.approx(10 * sum(found.records))
    assert 800 < found.offset_at(0.5) < 1300


def test_a_small_log_is_not_looked_at(compacted: ScriptedBrokers, connect: Connect) -> None:
    small = OffsetRange("orders", 0, 0, 999)
    assert shapes_of(connect(compacted), [small], {TP: 5000}) == {TP: PartitionShape(small, (999.0,), 5000.0)}
    assert shapes_of(connect(compacted), [small], None) == {TP: PartitionShape(small, (999.0,), 99_900.0)}
    assert not compacted.seen(FetchRequest)


def test_a_log_that_cannot_be_read_now_has_the_shape_of_its_offsets(
    compacted: ScriptedBrokers, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shapes, "_PATIENCE", 0.2)
    gone = OffsetRange("nowhere", 0, 0, 1600)
    assert shapes_of(connect(compacted, timeout=1.0), [gone], {}) == {
        gone.topic_partition: PartitionShape.of_offsets(gone)
    }
