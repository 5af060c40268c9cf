"""Combines restored store partitions, from any number of restores, into stores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from statecore.jobs.history.report_head import RestoredPartition, combined_digest, known_sum


@dataclass(frozen=True)
class RestoredStore:
    """One store of an instance over its partitions.

    Attributes:
        rows: live rows; -1 unless all partitions were counted.
        offsets: known committed offsets: of each partition, for a global store of each partition of its topic.
        unknown: number of partitions with an unknown offset.
        tail_left: offsets that the application had left to restore.
        digest: digest over those of the partitions; empty unless all were counted.
        oldest: time of the oldest restore of a partition (ISO 8601, UTC).
        newest: time of the newest one.
        request_ids: requests that restored them, the latest first.
    """

    store: str
    kind: str
    partitions: int
    rows: int
    records: int
    offsets: tuple[int, ...]
    unknown: int
    tail_left: int
    digest: str
    oldest: str
    newest: str
    request_ids: tuple[str, ...]


def restored_stores(partitions: Sequence[RestoredPartition]) -> list[RestoredStore]:
    """Stores of an instance, by name."""
    grouped: dict[str, list[RestoredPartition]] = {}
    for part in partitions:
        grouped.setdefault(part.store, []).append(part)
    return [_store(store, parts) for store, parts in sorted(grouped.items())]


def _store(store: str, parts: Sequence[RestoredPartition]) -> RestoredStore:
    latest = sorted(parts, key=lambda part: part.when, reverse=True)
    all_offsets = [offset for part in parts for offset in (part.offsets.values() or [part.committed_offset])]
    return RestoredStore(
        store=store,
        kind=latest[0].kind,
        partitions=len(parts),
        rows=known_sum(part.rows for part in parts),
        records=sum(part.records for part in parts),
        offsets=tuple(offset for offset in all_offsets if offset >= 0),
        unknown=sum(offset < 0 for offset in all_offsets),
        tail_left=sum(part.tail_left for part in parts),
        digest=combined_digest([(part.partition, part.digest) for part in parts]),
        oldest=latest[-1].when,
        newest=latest[0].when,
        request_ids=tuple(dict.fromkeys(part.request_id for part in latest)),
    )
