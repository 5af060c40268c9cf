"""What an image was made of, as a hash: equal for equal runs, in the same order, on equal bases.

It costs nothing that grows with the data, and says nothing about what the image holds; that is its digest. Two images
of one identity hold the same rows. Two that hold the same rows may have two identities: cut otherwise, or on another
base.

The hash is SHA-256 over a JSON document: its version, the kind, for each database in order its segment, the identity of
its base, and hash and offsets of its runs as they were given, and the offsets.
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
    """The identity of an image, 64 hex digits.

    Args:
        kind: what the store is.
        databases: by segment (``None`` where the store has none) the identity of the base, if there is one
            (:func:`statecore.images.bases.base_identity`), and the runs above it, in the order they are applied.
        offsets: by changelog partition what the image says.
    """
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
