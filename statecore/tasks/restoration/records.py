"""Batches of rows that both changelog readers yield to a restore."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from statecore.errors import Corrupted, Invalid, Retryable
from statecore.formats.kinds import StoreKind
from statecore.formats.position import Position, decode_position, merge_position
from statecore.formats.rows.headers import Header
from statecore.formats.topic_partition import TopicPartition

_VERSION_HEADER, _POSITION_HEADER = "v", "c"


@dataclass(frozen=True)
class RestoredRows:
    """Some records of a changelog, as rows of the store."""

    # key and row, in offset order; None deletes. Records without a key are left out.
    rows: Iterable[tuple[bytes, bytes | None]]
    records: int  # number of records, without those that have no key
    next_offset: int  # everything below it is in these rows or in earlier ones
    # offsets of input topics from the records' headers, where requested
    position: Position = field(default_factory=dict)


def merge_position_header(position: Position, headers: Iterable[Header]) -> None:
    """Merge the position in a record's headers, written under ``__iq.consistency.offset.vector.enabled__``."""
    found = dict(headers)  # the last of a name counts, as in Kafka Streams
    version = found.get(_VERSION_HEADER)
    if version != b"\0":
        return
    encoded = found.get(_POSITION_HEADER)
    if encoded is None:
        raise Corrupted(
            "A record has the header v, which announces a position, and no header c.",
            code="position-header-invalid",
            action="Restore without positions.",
        )
    merge_position(position, decode_position(encoded))


def unfit_record(kind: StoreKind, partition: TopicPartition, offset: int, why: str) -> Invalid:
    """The error for a record that cannot belong to a store of the kind; ``why`` completes "the record ..."."""
    return Invalid(
        f"The record at offset {offset} of {partition} {why}: this is not the changelog of a {kind.value} store.",
        code="record-kind-mismatch",
        action="Check the changelog's name and the store's kind.",
        topic=partition.topic,
        partition=partition.partition,
        offset=offset,
        kind=kind.value,
    )


def log_start_moved(partition: TopicPartition, start: int) -> Retryable:
    """The error for records that were deleted before they were read."""
    return Retryable(
        f"The log of {partition} begins at {start} now: records were deleted while the store was being restored.",
        code="log-start-moved",
        action="Restore again; whether the store has to be wiped is decided then.",
        topic=partition.topic,
        partition=partition.partition,
        offset=start,
    )
