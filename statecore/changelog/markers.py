"""Whether all that lies in a piece of a log are markers of transactions: then nothing of it is missing in a store.

Under exactly-once the marker of the last transaction lies behind the offset that Kafka Streams stores.
"""

from __future__ import annotations

from collections.abc import Collection

from crc32c import crc32c

from statecore.changelog.cluster import Cluster
from statecore.changelog.model import OffsetRange
from statecore.changelog.peeks import PEEK_BYTES, batches_of, peek

_MARKER_BYTES = 100  # a batch of one control record has 78, and takes no more when more is said in it

MOST_OFFSETS = PEEK_BYTES // _MARKER_BYTES
"""So many markers are seen at one look. Of a longer piece it is not asked."""


def of_markers(cluster: Cluster, pieces: Collection[OffsetRange]) -> set[OffsetRange]:
    """Those of some pieces of logs in which every offset is a control record.

    Args:
        cluster: where the logs are.
        pieces: none of them empty.

    Returns:
        The pieces of which that was seen. Of others it may be so, too: they are longer than :data:`MOST_OFFSETS`, or a
        leader did not answer in time.
    """
    few = [piece for piece in pieces if piece.end - piece.start <= MOST_OFFSETS]
    return set(peek(cluster, few, _of_markers)) if few else set()


def _of_markers(data: bytes, piece: OffsetRange) -> bool | None:
    position = piece.start
    for batch in batches_of(data):
        whole = batch.is_control and batch.records == batch.following - batch.first
        # A gap is an offset that compaction has removed, and nobody knows what was there.
        if batch.first > position or not whole or crc32c(batch.checked) != batch.crc:
            return None
        position = max(position, batch.following)
        if position >= piece.end:
            return True
    return None
