"""The identity of a store in a snapshot (what an image of it will have, without building one), and of a base."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from hashlib import sha256

from statecore.formats.kinds import StoreKind
from statecore.formats.topic_partition import TopicPartition
from statecore.images.identity import image_identity
from statecore.repository.manifest import BaseFile, StoredDatabase


def base_identity(files: Iterable[BaseFile]) -> str:
    """The identity of a base (``files:…``): a hash over the names and hashes of its files."""
    listed = sorted([file.name, file.sha256] for file in files)
    return f"files:{sha256(json.dumps(listed, separators=(',', ':')).encode()).hexdigest()}"


def store_identity(
    kind: StoreKind,
    databases: Iterable[StoredDatabase],
    offsets: Mapping[TopicPartition, int],
    segment: int | None = None,
) -> str:
    """The hash of what a store is made of; ``segment`` is that of an image without databases, by its stream time."""
    made_of = {
        one.segment: (base_identity(one.base) if one.base else None, [stored.run for stored in one.runs])
        for one in databases
    }
    return image_identity(kind, made_of or {segment: (None, [])}, offsets)
