"""The changelogs that are measured are what their shapes say: read back by the product's own decoder."""

from __future__ import annotations

import struct

import numpy as np
import pyarrow as pa
import pytest

from bench.changelog import TOMBSTONE_SHARE, ChangelogSize, batches
from bench.codecs import CODECS
from bench.kinds import KINDS
from bench.shapes import KEY_BYTES, MOST_BYTES, SHAPES, Shape
from statecore.changelog.decoder import RangeDecoder
from statecore.changelog.model import IsolationLevel, OffsetRange
from tests.harness.case_selection import three_of

RECORDS = 10_000


def read(size: ChangelogSize, partition: int = 0) -> pa.Table:
    """The records of a partition, its batches numbered as a broker would."""
    framed, offset = [], 0
    for one in batches(size, partition):
        framed.append(struct.pack(">q", offset) + one[8:])
        offset += size.shape.batch_records
    decoder = RangeDecoder(OffsetRange("t", partition, 0, offset), IsolationLevel.READ_COMMITTED)
    decoder.scan(np.frombuffer(b"".join(framed), np.uint8), 0, np.empty((0, 2), np.int64))
    return pa.Table.from_batches(list(decoder.batches()))


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_a_shape_has_the_values_and_the_overwrites_that_it_names(shape: Shape) -> None:
    size = ChangelogSize(4 * RECORDS, shape=shape)
    found = read(size)
    assert found["offset"].to_pylist() == list(range(RECORDS))
    assert {len(key) for key in found["key"].to_pylist()} == {KEY_BYTES}
    assert {len(value) for value in found["value"].to_pylist() if value is not None} == {shape.value_bytes}
    assert found["value"].null_count == pytest.approx(RECORDS * TOMBSTONE_SHARE, rel=0.2)
    keys = len(set(found["key"].to_pylist()))
    assert keys <= size.keys // 4
    assert keys == pytest.approx(size.keys / 4, rel=0.03)
    assert keys == RECORDS or shape.overwrites


def test_partitions_share_no_key() -> None:
    found = [
        set(read(ChangelogSize(4 * RECORDS, shape=SHAPES["once"]), number)["key"].to_pylist()) for number in (0, 3)
    ]
    assert not found[0] & found[1]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("value_bytes", three_of([1, 63, 64, 100, 8_000]))
def test_values_of_any_size_are_laid_out_as_kafka_does(codec: str, value_bytes: int) -> None:
    size = ChangelogSize(20_000, shape=Shape("any", value_bytes=value_bytes, codec=codec), kind=KINDS["session"])
    found = read(size)
    assert found.num_rows == 5_000
    assert {len(value) for value in found["value"].to_pylist() if value is not None} == {value_bytes}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_a_topic_is_no_larger_than_it_may_be_and_in_whole_batches(shape: Shape) -> None:
    for wanted in (1, 100_000, 8_000_000):
        records = shape.records(wanted)
        assert records % (4 * shape.batch_records) == 0
        assert 0 < records * (KEY_BYTES + shape.value_bytes) <= MOST_BYTES * 1.01
    assert SHAPES["plain"].records(8_000_000) == 8_000_000


def test_what_cannot_be_made_is_refused() -> None:
    for wrong in ({"value_bytes": 9_000}, {"overwrites": 1.0}, {"codec": "brotli"}):
        with pytest.raises(ValueError, match="no such changelog"):
            Shape("wrong", **wrong)  # type: ignore[arg-type]


def test_a_tail_has_keys_of_the_changelog_that_it_belongs_to() -> None:
    whole = read(ChangelogSize(40 * RECORDS))
    tail = read(ChangelogSize(RECORDS, seed=8, whole=40 * RECORDS))
    keys = set(whole["key"].to_pylist())
    found = tail["key"].to_pylist()
    assert sum(key in keys for key in found) > 0.95 * len(found)
    assert len(set(found)) > 0.9 * len(found)
