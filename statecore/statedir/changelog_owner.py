"""The application that owns a changelog, derived from the topic's name; finds directories under another application's
name.
"""

from __future__ import annotations

from collections.abc import Iterable

_SUFFIX = "-changelog"


def other_owner(
    topic: str, application_id: str, stores: Iterable[str], topology: str | None = None
) -> tuple[str, str] | None:
    """Application id and store of a changelog that belongs to another application; ``None`` if it does not.

    Kafka Streams names it ``<application.id>-<store>-changelog``, with a named topology's name before the store's
    (``ProcessorStateManager.storeChangelogTopic``). The longest matching store name wins: ``orders-v2-day-changelog``
    belongs to ``orders`` only if that has a store ``v2-day`` or a topology ``v2``, else to ``orders-v2``.
    """
    own = {application_id, f"{application_id}-{topology}" if topology else application_id}
    for store in sorted(stores, key=len, reverse=True):
        owner = topic.removesuffix(f"-{store}{_SUFFIX}")
        if owner not in ("", topic):
            return None if owner in own else (owner, store)
    return None
