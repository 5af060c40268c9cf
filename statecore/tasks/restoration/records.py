"""Batches of rows that both changelog readers yield to a restore."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from statecore.errors import Invalid, Retryable
from statecore.formats.kinds import StoreKind
from statecore.formats.topic_partition import TopicPartition


@dataclass(frozen=True)
class RestoredRows:
    """Some records of a changelog, as rows of the store."""

    # key and row, in offset order; None deletes. Records without a key are left out.
    rows: Iterable[tuple[bytes, bytes | None]]
    records: int  # number of records, without those that have no key
    next_offset: int  # everything below it is in these rows or in earlier ones


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
