"""The identity of a store of a snapshot: what an image of it will have, known without building one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from statecore.formats.kinds import StoreKind
from statecore.formats.topic_partition import TopicPartition
from statecore.images.identity import image_identity
from statecore.repository.bases import base_identity
from statecore.repository.manifest import StoredDatabase


def store_identity(
    kind: StoreKind,
    databases: Iterable[StoredDatabase],
    offsets: Mapping[TopicPartition, int],
    segment: int | None = None,
) -> str:
    """The hash of what a store is made of (:mod:`statecore.images.identity`).

    Args:
        kind: its kind.
        databases: its databases.
        offsets: what they say.
        segment: where it has none, the one that an image has all the same: of its stream time, where it has segments.
    """
    made_of = {
        one.segment: (base_identity(one.base) if one.base else None, [stored.run for stored in one.runs])
        for one in databases
    }
    return image_identity(kind, made_of or {segment: (None, [])}, offsets)
