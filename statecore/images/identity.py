"""The identity of an image: a hash of its inputs, equal for equal runs in the same order on equal bases.

Its cost does not grow with the data, and it says nothing about the content; that is the digest. Images with the same
rows may have different identities: from other ranges, or on another base.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256

from statecore.formats.kinds import StoreKind
from statecore.formats.topic_partition import TopicPartition
from statecore.images.model import Run, segment_order

_VERSION = 1


def image_identity(
    kind: StoreKind,
    databases: Mapping[int | None, tuple[str | None, Sequence[Run]]],
    offsets: Mapping[TopicPartition, int],
) -> str:
    """The identity of an image, 64 hex digits."""
    document = {
        "version": _VERSION,
        "kind": kind.value,
        "databases": [
            [segment, databases[segment][0], [[run.sha256, run.start, run.end] for run in databases[segment][1]]]
            for segment in sorted(databases, key=segment_order)
        ],
        "offsets": sorted([str(partition), offset] for partition, offset in offsets.items()),
    }
    return sha256(json.dumps(document, separators=(",", ":")).encode()).hexdigest()
