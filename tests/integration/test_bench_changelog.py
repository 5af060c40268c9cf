"""A real broker takes what fills the benchmark's topics, whatever the codec, and brings all of it back."""

from __future__ import annotations

import uuid

import pytest

from bench.changelog import ChangelogSize, fill
from bench.codecs import CODECS
from bench.shapes import Shape
from bench.throughput_ceiling import drain
from tests.harness.broker import Broker

pytestmark = pytest.mark.integration


@pytest.mark.parametrize(
    "codec", [pytest.param(codec, marks=() if codec == "zstd" else pytest.mark.full) for codec in CODECS]
)
def test_a_topic_of_any_codec_is_taken_and_read_back(broker: Broker, codec: str) -> None:
    servers, topic = broker.bootstrap_servers, f"bench-{codec}-{uuid.uuid4().hex[:8]}"
    fill(servers, topic, ChangelogSize(20_000, shape=Shape(codec, codec=codec)))
    found = drain(servers, topic, 1)
    assert found.records == 20_000
    assert (found.decompressed_bytes > 20_000 * 100) == (codec != "none")
    assert (found.fetched_bytes < 20_000 * 100) == (codec != "none")
