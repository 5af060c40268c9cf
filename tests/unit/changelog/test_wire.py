"""Fetch responses, encoded by kafka-python, taken apart by the wire."""

from __future__ import annotations

import struct
import uuid
from typing import Any

import numpy as np
import pytest
from kafka.protocol.consumer.fetch import FetchResponse

from statecore.changelog.wire import Fetched, parse_response

VERSIONS = [4, 5, 7, 10, 11, 12, 13, 16, 18]
CORRELATION = 77


def encoded(version: int, *, throttle_ms: int = 0, topics: int = 1, **partition: Any) -> bytes:
    topic = FetchResponse.FetchableTopicResponse
    part = topic.PartitionData
    aborted = [part.AbortedTransaction(producer_id=n, first_offset=10 * n) for n in (5, 6)]
    values = {
        "partition_index": 0,
        "error_code": 0,
        "high_watermark": 900,
        "last_stable_offset": 800,
        "log_start_offset": 3,
        "aborted_transactions": aborted,
        "preferred_read_replica": -1,
        "records": b"the records",
        **partition,
    }
    one = topic(topic="orders", topic_id=uuid.UUID(int=9), partitions=[part(**values)])
    response = FetchResponse(
        version=version, throttle_time_ms=throttle_ms, error_code=0, session_id=0, responses=[one] * topics
    )
    header = struct.pack(">i", CORRELATION) + (b"\0" if version >= 12 else b"")
    return header + bytes(response.encode())


def parsed(data: bytes, version: int) -> Fetched:
    return parse_response(np.frombuffer(data, np.uint8), version, CORRELATION)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_partition_is_read_whole(version: int) -> None:
    fetched = parsed(encoded(version, throttle_ms=1500), version)
    assert (fetched.error, fetched.throttle) == (0, 1.5)
    assert (fetched.high_watermark, fetched.last_stable) == (900, 800)
    assert fetched.aborted.tolist() == [[5, 50], [6, 60]]
    assert fetched.records.tobytes() == b"the records"
    assert fetched.diverges is None


@pytest.mark.parametrize("version", VERSIONS)
def test_a_throttled_response_without_topics_is_waited_for(version: int) -> None:
    fetched = parsed(encoded(version, throttle_ms=2500, topics=0), version)
    assert (fetched.error, fetched.throttle, len(fetched.records)) == (0, 2.5, 0)
    with pytest.raises(ValueError, match="not one topic"):
        parsed(encoded(version, topics=0), version)


@pytest.mark.parametrize("version", [version for version in VERSIONS if version >= 12])
def test_a_diverging_log_is_detected(version: int) -> None:
    epoch = FetchResponse.FetchableTopicResponse.PartitionData.EpochEndOffset(epoch=4, end_offset=200)
    assert parsed(encoded(version, diverging_epoch=epoch, records=b""), version).diverges == 200


@pytest.mark.parametrize("version", [4, 11, 12, 18])
def test_a_truncated_response_is_never_accepted(version: int) -> None:
    whole = encoded(version)
    records_end = whole.index(b"the records") + len(b"the records")
    for size in range(records_end):
        with pytest.raises((ValueError, IndexError, struct.error)):
            parsed(whole[:size], version)
    with pytest.raises(ValueError, match="another request"):
        parse_response(np.frombuffer(whole, np.uint8), version, CORRELATION + 1)
