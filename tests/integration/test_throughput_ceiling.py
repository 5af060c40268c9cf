"""The ceiling of the benchmark reads what a restore would read, no record less."""

from __future__ import annotations

import uuid

import pytest

from bench.throughput_ceiling import drain
from tests.harness import topics
from tests.harness.broker import Broker
from tests.harness.topics import Record

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("processes", [1, pytest.param(3, marks=pytest.mark.full)])
def test_every_committed_record_is_counted_once_however_many_share_the_partitions(
    broker: Broker, processes: int
) -> None:
    servers, topic = broker.bootstrap_servers, f"ceiling-{uuid.uuid4().hex[:8]}"
    topics.create(servers, topic, 2, topics.UNCLEANED)
    records = [Record(b"k%d" % number, b"v" * 50, number % 2, 1000) for number in range(5000)]
    topics.produce(servers, topic, records[:2000], compression_type="lz4", batch_size=2000)
    topics.produce_aborted(servers, topic, records[:100])
    topics.produce_committed(servers, topic, records[2000:], compression_type="zstd")
    found = drain(servers, topic, processes)
    assert (found.records, found.processes) == (5000, processes)
    assert found.decompressed_bytes > 5000 * 50
    assert found.fetched_bytes < found.decompressed_bytes
