"""Whether a topic keeps the last record of every key, which is what a global store is rebuilt from.

A changelog that Kafka Streams makes is compacted; the topic of a global store is whatever its owner made it. Where
retention deletes records, a rebuild has fewer rows than the store had, and so has each restore of Kafka Streams' own.
"""

from __future__ import annotations

from statecore.changelog.model import TopicDescription
from statecore.errors import Invalid

NO_LIMIT = "-1"
"""Of ``retention.ms`` and ``retention.bytes``: nothing is deleted."""


def cleanup_policies(topic: TopicDescription) -> set[str]:
    """The words of a topic's ``cleanup.policy``."""
    return {policy.strip() for policy in topic.configs.get("cleanup.policy", "").split(",")} - {""}


def why_not_compacted(topic: TopicDescription) -> str:
    """What deletes the last records of keys, as a sentence; empty where nothing does.

    Args:
        topic: what the cluster says of it.
    """
    limits = [topic.configs.get(limit, NO_LIMIT) for limit in ("retention.ms", "retention.bytes")]
    if "delete" not in cleanup_policies(topic) or limits == [NO_LIMIT, NO_LIMIT]:
        return ""
    return (
        f"{topic.name} has cleanup.policy={topic.configs['cleanup.policy']}, retention.ms={limits[0]} and "
        f"retention.bytes={limits[1]}: its records are deleted whether or not they are a key's last."
    )


def check_compacted(topic: TopicDescription, store: str, *, accept: bool, how_to_accept: str) -> None:
    """Refuse to build a global store of a topic that loses rows.

    Args:
        topic: what the cluster says of its topic.
        store: the store.
        accept: whether somebody has said that fewer rows are right.
        how_to_accept: the option or the setting that says so.

    Raises:
        Invalid: the topic deletes last records of keys, and nobody has accepted that.
    """
    why = why_not_compacted(topic)
    if why and not accept:
        raise Invalid(
            f"The topic of the global store {store} is not compacted. {why} A rebuilt store has what is left of them.",
            code="topic-not-compacted",
            action=f"Set cleanup.policy=compact on {topic.name} and have its records written again; or accept a store "
            f"of what is left: {how_to_accept}.",
            store=store,
            topic=topic.name,
            cleanup_policy=topic.configs["cleanup.policy"],
        )
