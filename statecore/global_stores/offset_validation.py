"""Validates the next offsets of a global store against its topic and the topic's logs. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from statecore.changelog.model import LogOffsets, TopicDescription
from statecore.formats.topic_partition import is_same_topic
from statecore.global_stores.state import RecoveryReason


@dataclass(frozen=True)
class InvalidOffsets:
    """Why a store cannot continue from its offsets."""

    reason: RecoveryReason
    text: str  # a sentence that names partition and offsets
    # whether the rows are intact, if old: of some earlier time of the topic, or of an earlier topic
    trusted: bool = True


def why_invalid(
    positions: Mapping[int, int], logs: Mapping[int, LogOffsets], epoch_ends: Mapping[int, int | None] = {}
) -> InvalidOffsets | None:
    """Why the store must be rebuilt; ``None`` where every position is within its log."""
    for partition, position in sorted(positions.items()):
        log = logs.get(partition)
        if log is None:
            return InvalidOffsets(
                RecoveryReason.PARTITION_GONE,
                f"it has offset {position} of partition {partition}, and the topic has {len(logs)} partitions",
            )
        if position < log.log_start:
            return InvalidOffsets(
                RecoveryReason.BELOW_LOG_START,
                f"partition {partition} begins at offset {log.log_start} now, and {position} was to be read next",
            )
        if position > log.log_end:
            return InvalidOffsets(
                RecoveryReason.BEYOND_LOG_END,
                f"partition {partition} ends at offset {log.log_end}, and {position} was to be read next",
            )
        end = epoch_ends.get(partition)
        if end is not None and end < position:
            return InvalidOffsets(
                RecoveryReason.LOG_DIVERGED,
                f"a new leader of partition {partition} has other records from offset {end} on, and {position} was to "
                "be read next",
            )
    return None


def why_recreated(built_of: str | None, topic: TopicDescription) -> InvalidOffsets | None:
    """Why the rows are not of this topic; ``None`` where they are, or the id they were built of is unknown."""
    if built_of is None or is_same_topic(built_of, topic.topic_id):
        return None
    return InvalidOffsets(
        RecoveryReason.TOPIC_RECREATED,
        f"topic {topic.name} was recreated: its id is {topic.topic_id}, and was {built_of}",
    )


def why_unknown(stored: Mapping[int, int]) -> InvalidOffsets | None:
    """Why a store's offsets cannot be validated, or ``None``; a partition without one may have been added later."""
    unknown = sorted(partition for partition, offset in stored.items() if offset < 0)
    if unknown:
        return InvalidOffsets(
            RecoveryReason.OFFSET_UNKNOWN,
            f"its offset of partition {unknown[0]} is {stored[unknown[0]]}, which is unknown",
            trusted=False,
        )
    if not stored:
        return InvalidOffsets(RecoveryReason.OFFSET_UNKNOWN, "it has no offset", trusted=False)
    return None
