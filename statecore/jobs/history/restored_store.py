"""What reports say of a store over its partitions, whichever restores they come from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from statecore.jobs.history.report_head import RestoredPartition, combined_digest, known_sum


@dataclass(frozen=True)
class RestoredStore:
    """One store of an instance over its partitions.

    Attributes:
        store: the store.
        kind: its kind.
        partitions: how many were restored.
        rows: live rows; -1 where nobody has counted those of all partitions.
        records: changelog records read.
        offsets: the committed offsets that are known: of each partition, of a global store each of its topic's.
        unknown: partitions whose offset is unknown.
        tail_left: offsets that the application had left to restore itself.
        digest: one digest over those of the partitions; empty likewise.
        oldest: when the partition was restored that was not restored for the longest time (ISO 8601, UTC).
        newest: when the latest one was.
        request_ids: the requests that restored them, the latest first.
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
    """The stores of an instance, by name."""
    grouped: dict[str, list[RestoredPartition]] = {}
    for part in partitions:
        grouped.setdefault(part.store, []).append(part)
    return [_store(store, parts) for store, parts in sorted(grouped.items())]


def _store(store: str, parts: Sequence[RestoredPartition]) -> RestoredStore:
    latest = sorted(parts, key=lambda part: part.when, reverse=True)
    said = [offset for part in parts for offset in (part.offsets.values() or [part.committed_offset])]
    return RestoredStore(
        store=store,
        kind=latest[0].kind,
        partitions=len(parts),
        rows=known_sum(part.rows for part in parts),
        records=sum(part.records for part in parts),
        offsets=tuple(offset for offset in said if offset >= 0),
        unknown=sum(offset < 0 for offset in said),
        tail_left=sum(part.tail_left for part in parts),
        digest=combined_digest([(part.partition, part.digest) for part in parts]),
        oldest=latest[-1].when,
        newest=latest[0].when,
        request_ids=tuple(dict.fromkeys(part.request_id for part in latest)),
    )
