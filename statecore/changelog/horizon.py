"""How long a compacted topic keeps its deletes: what every look at a tail behind an older state goes by.

Compaction takes a delete (tombstone) out of the log, too, ``delete.retention.ms`` after it was written at the earliest.
Whoever reads the rest of the log after that, upon a state that still has the row, keeps the row for ever.
"""

from __future__ import annotations

from collections.abc import Iterable

from statecore.changelog.model import TopicDescription

CLOCK_MARGIN_MS = 300_000
"""What the clocks of the machines that take part may differ by: five minutes, as much as Kerberos lets them."""

_DEFAULT_DELETE_RETENTION_MS = 86_400_000


def is_purely_compacted(topic: TopicDescription) -> bool:
    """Whether compaction alone removes records of a topic: what its whole log does not have was deleted.

    A topic whose policy nobody told does not count as one.
    """
    return topic.configs.get("cleanup.policy", "").strip() == "compact"


def horizon_ms(topic: TopicDescription) -> int | None:
    """How long deletes stay in a topic at least, in ms; ``None`` where it is not compacted, and they stay.

    A topic whose policy nobody told counts as compacted.
    """
    if "compact" not in topic.configs.get("cleanup.policy", "compact"):
        return None
    return delete_retention_ms(topic)


def delete_retention_ms(topic: TopicDescription) -> int:
    """What a topic says of how long deletes are kept, in ms, whether it is compacted or not."""
    return int(topic.configs.get("delete.retention.ms", _DEFAULT_DELETE_RETENTION_MS))


def shortest_horizon_ms(topics: Iterable[TopicDescription]) -> int | None:
    """The shortest of some topics' horizons, in ms; ``None`` where deletes stay in all of them."""
    return min((found for topic in topics if (found := horizon_ms(topic)) is not None), default=None)
