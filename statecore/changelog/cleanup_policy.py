"""Whether a topic keeps the last record of every key, which rebuilding a global store needs.

Kafka Streams compacts the changelogs it creates; the topic of a global store is configured by its owner. Where
retention deletes records, a rebuilt store has fewer rows than before, as after a restore by Kafka Streams.
"""

from __future__ import annotations

from statecore.changelog.model import TopicDescription
from statecore.errors import Invalid

NO_LIMIT = "-1"  # No limit, for retention.ms and retention.bytes


def cleanup_policies(topic: TopicDescription) -> set[str]:
    """The policies in a topic's ``cleanup.policy``."""
    return {policy.strip() for policy in topic.configs.get("cleanup.policy", "").split(",")} - {""}


def why_not_compacted(topic: TopicDescription) -> str:
    """Sentence that says which settings delete the last records of keys; empty where none do."""
    limits = [topic.configs.get(limit, NO_LIMIT) for limit in ("retention.ms", "retention.bytes")]
    if "delete" not in cleanup_policies(topic) or limits == [NO_LIMIT, NO_LIMIT]:
        return ""
    return (
        f"{topic.name} has cleanup.policy={topic.configs['cleanup.policy']}, retention.ms={limits[0]} and "
        f"retention.bytes={limits[1]}: its records are deleted whether or not they are a key's last."
    )


def check_compacted(topic: TopicDescription, store: str, *, accept: bool, how_to_accept: str) -> None:
    """Refuse to build a global store from a topic that loses rows."""
    why = why_not_compacted(topic)
    if why and not accept:
        raise Invalid(
            f"The topic of the global store {store} is not compacted. {why} A rebuilt store lacks them.",
            code="topic-not-compacted",
            action=f"Set cleanup.policy=compact on {topic.name} and have its records written again; or accept a store "
            f"with the remaining rows: {how_to_accept}.",
            store=store,
            topic=topic.name,
            cleanup_policy=topic.configs["cleanup.policy"],
        )
