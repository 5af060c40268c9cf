"""What a plain consumer reads of a changelog: its errors have the offsets that their sentences name."""

from __future__ import annotations

from typing import Any, cast

import pytest

from statecore.changelog.cluster import Cluster
from statecore.changelog.model import LogOffsets, OffsetRange
from statecore.errors import Retryable
from statecore.formats.kinds import StoreKind
from statecore.formats.topic_partition import TopicPartition
from statecore.isolation import IsolationLevel
from statecore.tasks.restoration import consumer_records
from tests.harness.raising import raises

CHANGELOG = TopicPartition("app-s-changelog", 2)


class Consumer:
    """One that gets nothing, or an error."""

    def __init__(self, error: Exception | None) -> None:
        self.error = error

    def assign(self, partitions: list[Any]) -> None:
        pass

    def seek(self, partition: Any, offset: int) -> None:
        self.at = offset

    def poll(self, timeout_ms: int) -> dict[Any, Any]:
        if self.error is not None:
            raise self.error
        return {}

    def position(self, partition: Any) -> int:
        return self.at

    def close(self) -> None:
        pass


class Brokers:
    bootstrap_servers = "broker:9092"

    def log_offsets(self, partitions: list[TopicPartition]) -> dict[TopicPartition, LogOffsets]:
        return dict.fromkeys(partitions, LogOffsets(0, 30, 30, 1))


def read(monkeypatch: pytest.MonkeyPatch, error: Exception | None) -> None:
    monkeypatch.setattr(consumer_records, "_consumer", lambda *_: Consumer(error))
    list(
        consumer_records.read_rows(
            cast(Cluster, Brokers()),
            OffsetRange(*CHANGELOG, 40, 50),
            StoreKind.KEY_VALUE,
            IsolationLevel.READ_COMMITTED,
            topic_id=None,
            stall_timeout=0.0,
        )
    )


def test_an_offset_out_of_range_is_reported_with_the_log_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    from kafka.errors import OffsetOutOfRangeError

    where = {"topic": CHANGELOG.topic, "partition": 2, "offset": 40}
    with raises(Retryable, "offset-out-of-range", **where, log_start=0, log_end=30):
        read(monkeypatch, OffsetOutOfRangeError())


def test_a_stalled_read_is_reported_with_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    where = {"topic": CHANGELOG.topic, "partition": 2, "offset": 40}
    with raises(Retryable, "fetch-stalled", **where, end=50):
        read(monkeypatch, None)
