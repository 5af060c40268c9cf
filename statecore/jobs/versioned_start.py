"""What versioned stores are to find when the application starts."""

from __future__ import annotations

from enum import StrEnum


class VersionedStart(StrEnum):
    """What a versioned store is to find when the application starts.

    Kafka Streams 4.3.1 registers the segments of a versioned store only while it writes to them
    (``LogicalKeyValueSegments.openExisting`` does nothing). A start that restores nothing finds the latest values, and
    no history although the rows are there; so history has to be restored by Kafka Streams, whatever lies on disk.
    """

    HISTORY = "history"
    """Queries of the past answer, because Kafka Streams restores the store itself: an empty database with offset -4 is
    placed. Not one with rows: a changelog that is replayed over rows whose segments are not registered changes them,
    and for some histories throws (``Timestamp is too large to be found in this segment``) at every start."""

    LATEST = "latest"
    """No record is restored; the application goes on as after any clean restart of its own: queries of the past answer
    for what is written from then on, and what comes late finds no predecessor."""
