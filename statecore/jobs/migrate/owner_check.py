"""Refuses to migrate a task directory with offsets of another application."""

from __future__ import annotations

from collections.abc import Iterable

from statecore.errors import Reason
from statecore.formats.topic_partition import TopicPartition
from statecore.spec.model import ApplicationSpec
from statecore.statedir.store_places import changelog_owner


def of_another(
    application_id: str, stores: Iterable[str], offsets: Iterable[TopicPartition], spec: ApplicationSpec | None
) -> tuple[Reason, ...]:
    """Reasons why a task's directory belongs to another application: its offsets are of that one's changelogs.

    Under the wrong name those offsets would not be found: Kafka Streams drops them, and restores its own changelogs
    over the rows of the other application.
    """
    known = (*spec.stores, *spec.global_stores) if spec is not None else ()
    declared = {store.changelog for store in known}
    names = {*stores, *(store.name for store in known)}
    found: dict[str, str] = {}
    for topic in sorted({partition.topic for partition in offsets} - declared):
        if other := changelog_owner(topic, application_id, names):
            found.setdefault(other[0], topic)
    return tuple(
        Reason(
            f"it has offsets of {topic}: this is the state of {owner}, not of {application_id}. Give the id of the "
            "owning application; or declare the stores in a spec, if that is their changelog.",
            "task-directory-foreign",
            topic=topic,
            application_id=owner,
        )
        for owner, topic in sorted(found.items())
    )
