"""Whether a range of a log holds only transaction markers, so that a store misses none of its records.

Under exactly-once the marker of the last transaction comes after the offset that Kafka Streams stores.
"""

from __future__ import annotations

from collections.abc import Collection

from crc32c import crc32c

from statecore.changelog.cluster import Cluster
from statecore.changelog.model import OffsetRange
from statecore.changelog.peeks import PEEK_BYTES, batches_of, peek

_MARKER_BYTES = 100  # a batch of one control record has 78; the margin covers larger ones

MOST_OFFSETS = PEEK_BYTES // _MARKER_BYTES
"""Largest range that one peek covers; longer ranges are not examined."""


def of_markers(cluster: Cluster, pieces: Collection[OffsetRange]) -> set[OffsetRange]:
    """Those of some non-empty ranges in which every offset is a control record.

    Returns:
        The ranges for which that was verified. A range is left out, too, where it is longer than :data:`MOST_OFFSETS`
        or its leader did not answer in time.
    """
    few = [piece for piece in pieces if piece.end - piece.start <= MOST_OFFSETS]
    return set(peek(cluster, few, _of_markers)) if few else set()


def _of_markers(data: bytes, piece: OffsetRange) -> bool | None:
    position = piece.start
    for batch in batches_of(data):
        whole = batch.is_control and batch.records == batch.following - batch.first
        # A gap is an offset that compaction removed; what it held is unknown.
        if batch.first > position or not whole or crc32c(batch.checked) != batch.crc:
            return None
        position = max(position, batch.following)
        if position >= piece.end:
            return True
    return None
