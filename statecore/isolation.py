"""Kafka's ``IsolationLevel``, for records of a topic and for rows of a store."""

from __future__ import annotations

from enum import StrEnum


class IsolationLevel(StrEnum):
    """Visibility of uncommitted writes (``org.apache.kafka.common.IsolationLevel``)."""

    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"
