"""Which writes a reader sees: Kafka's ``IsolationLevel``, for records of a topic and for rows of a store alike."""

from __future__ import annotations

from enum import StrEnum


class IsolationLevel(StrEnum):
    """What a reader sees (``org.apache.kafka.common.IsolationLevel``)."""

    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"
