"""How long a compacted topic keeps its deletes: what every look at a tail behind an older state goes by.

Compaction takes a delete (tombstone) out of the log, too, ``delete.retention.ms`` after it was written at the earliest.
Whoever reads the rest of the log after that, upon a state that still has the row, keeps the row for ever.

The brokers tell the configuration of now, and nobody that of a moment ago. So whoever reads the end of a state records
the horizon that was in force then, and a tail behind it is judged by the least of all that were seen: compaction may
have run before the policy was changed, and before the retention was raised. What was in force between two looks, and
at neither of them, nobody knows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from statecore.changelog.model import TopicDescription

CLOCK_MARGIN_MS = 300_000
"""What the clocks of the machines that take part may differ by: five minutes, as much as Kerberos lets them."""

ENDLESS_MS = (1 << 63) - 1
"""The horizon of a topic that is not compacted, where it is recorded: Kafka's largest time."""

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


def horizon_seen(topic: TopicDescription) -> int:
    """The horizon that is in force in a topic, as it is recorded: :data:`ENDLESS_MS` where deletes stay."""
    found = horizon_ms(topic)
    return ENDLESS_MS if found is None else found


def least_horizon_ms(seen: Iterable[int | None]) -> int | None:
    """The least of some recorded horizons, in ms; ``None`` where one is not known, or there is none."""
    known = list(seen)
    return None if None in known else min((one for one in known if one is not None), default=None)


def stricter(
    before: Mapping[str, TopicDescription], after: Mapping[str, TopicDescription]
) -> dict[str, TopicDescription]:
    """Topics that were described twice, each as it was when it kept its deletes for a shorter time.

    Args:
        before: the first descriptions.
        after: the second ones, of the same topics.
    """
    return {name: min(topic, after[name], key=horizon_seen) for name, topic in before.items()}


def delete_retention_ms(topic: TopicDescription) -> int:
    """What a topic says of how long deletes are kept, in ms, whether it is compacted or not."""
    return int(topic.configs.get("delete.retention.ms", _DEFAULT_DELETE_RETENTION_MS))


def shortest_horizon_ms(topics: Iterable[TopicDescription]) -> int | None:
    """The shortest of some topics' horizons, in ms; ``None`` where deletes stay in all of them."""
    return min((found for topic in topics if (found := horizon_ms(topic)) is not None), default=None)
