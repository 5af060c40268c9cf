"""Whose offsets a task's directory has: another application's directory is not migrated by mistake."""

from __future__ import annotations

from collections.abc import Iterable

from statecore.errors import Reason
from statecore.formats.topic_partition import TopicPartition
from statecore.spec.model import ApplicationSpec
from statecore.statedir.changelog_owner import other_owner


def of_another(
    application_id: str,
    stores: Iterable[str],
    offsets: Iterable[TopicPartition],
    spec: ApplicationSpec | None,
    topology: str | None = None,
) -> tuple[Reason, ...]:
    """Why a task's directory is not one of an application: its stores' offsets are of changelogs of another one.

    Under a wrong name nobody would find those offsets again: Kafka Streams drops them, and restores its own changelogs
    upon the rows of the other application.

    Args:
        application_id: whose directory it should be.
        stores: the names of the stores that the application has there.
        offsets: what the task has offsets of.
        spec: the application's declaration, if there is one; what is declared there is its own.
        topology: the task's named topology, if it has one.
    """
    known = (*spec.stores, *spec.global_stores) if spec is not None else ()
    declared = {store.changelog for store in known}
    names = {*stores, *(store.name for store in known)}
    found: dict[str, str] = {}
    for topic in sorted({partition.topic for partition in offsets} - declared):
        if other := other_owner(topic, application_id, names, topology):
            found.setdefault(other[0], topic)
    return tuple(
        Reason(
            f"it has offsets of {topic}: this is the state of {owner}, not of {application_id}. Give the id of the "
            "application whose directory it is; or declare its stores in a spec, if that is their changelog.",
            "task-directory-foreign",
            topic=topic,
            application_id=owner,
        )
        for owner, topic in sorted(found.items())
    )
