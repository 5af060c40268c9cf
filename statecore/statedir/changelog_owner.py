"""Whose changelog a topic is, by its name: a directory under another application's name is told by it."""

from __future__ import annotations

from collections.abc import Iterable

_SUFFIX = "-changelog"


def other_owner(
    topic: str, application_id: str, stores: Iterable[str], topology: str | None = None
) -> tuple[str, str] | None:
    """The other application, and the store, whose changelog a topic is by its name.

    Kafka Streams calls it ``<application.id>-<store>-changelog``, with a named topology's name before the store's
    (``ProcessorStateManager.storeChangelogTopic``). Of stores whose names end alike the longest counts, so that
    ``orders-v2-day-changelog`` is of the application ``orders`` only where it has a store ``v2-day``, or a topology
    ``v2``; else it is of ``orders-v2``.

    Args:
        topic: its name.
        application_id: whose changelogs are none of another.
        stores: the names of the stores that there are.
        topology: the named topology of the task that has an offset of the topic, if it has one.

    Returns:
        The application's id and the store's name; ``None`` where it is no other application's changelog of one of them.
    """
    own = {application_id, f"{application_id}-{topology}" if topology else application_id}
    for store in sorted(stores, key=len, reverse=True):
        owner = topic.removesuffix(f"-{store}{_SUFFIX}")
        if owner not in ("", topic):
            return None if owner in own else (owner, store)
    return None
