"""What versioned stores contain when the application starts."""

from __future__ import annotations

from enum import StrEnum


class VersionedStart(StrEnum):
    """What a versioned store contains when the application starts.

    Kafka Streams 4.3.1 registers the segments of a versioned store only while it writes to them
    (``LogicalKeyValueSegments.openExisting`` does nothing). Without a restore by Kafka Streams only the latest values
    are found, and no history, although the rows are on disk.
    """

    HISTORY = "history"
    """Queries of the past work, because Kafka Streams restores the store itself: an empty database with offset -4 is
    placed. Not one with rows: a changelog replayed over rows whose segments are not registered changes them,
    and for some histories throws (``Timestamp is too large to be found in this segment``) at every start.
    """

    LATEST = "latest"
    """No record is restored; the application continues as after any clean restart: queries of the past work for what
    is written from then on, and late records find no predecessor.
    """
