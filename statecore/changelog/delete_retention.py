"""How long a compacted topic keeps its deletes (tombstones), which bounds the age of a tail that may be appended to a
base.

Compaction removes a delete ``delete.retention.ms`` after it was written at the earliest. A reader that reads the tail
later than that and appends it to a state that still has the row keeps the row for ever.

Brokers report only the current configuration. So a reader of a base's end records the delete retention in force at that
time, and its tail is validated against the smallest recorded one: compaction may have run before the policy was changed
or the retention raised. What was in force only between two readings is unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from statecore.changelog.model import TopicDescription

CLOCK_MARGIN_MS = 300_000
"""Allowed difference between the clocks of the machines involved: five minutes, as in Kerberos."""

ENDLESS_MS = (1 << 63) - 1  # Recorded delete retention of a topic that is not compacted: Kafka's largest time
_DEFAULT_DELETE_RETENTION_MS = 86_400_000


def is_purely_compacted(topic: TopicDescription) -> bool:
    """Whether only compaction removes records, so that one missing from the whole log was deleted; false if unknown."""
    return topic.configs.get("cleanup.policy", "").strip() == "compact"


def current_retention_ms(topic: TopicDescription) -> int | None:
    """Least ms that deletes stay in a topic that is compacted or of unknown policy; else ``None``, for ever."""
    if "compact" not in topic.configs.get("cleanup.policy", "compact"):
        return None
    return delete_retention_ms(topic)


def recorded_retention_ms(topic: TopicDescription) -> int:
    """Current delete retention of a topic in the recorded form: :data:`ENDLESS_MS` where deletes stay for ever."""
    found = current_retention_ms(topic)
    return ENDLESS_MS if found is None else found


def with_shorter_retention(
    before: Mapping[str, TopicDescription], after: Mapping[str, TopicDescription]
) -> dict[str, TopicDescription]:
    """Topics that were described twice, each with the description that had the shorter delete retention."""
    return {name: min(topic, after[name], key=recorded_retention_ms) for name, topic in before.items()}


def delete_retention_ms(topic: TopicDescription) -> int:
    """``delete.retention.ms`` of a topic, compacted or not."""
    return int(topic.configs.get("delete.retention.ms", _DEFAULT_DELETE_RETENTION_MS))


def min_current_retention_ms(topics: Iterable[TopicDescription]) -> int | None:
    """Shortest current delete retention of some topics, in ms; ``None`` where deletes stay for ever in all of them."""
    return min((found for topic in topics if (found := current_retention_ms(topic)) is not None), default=None)
