"""Stores of a placement: those it restores, and the declared ones beside them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from statecore.formats.kinds import StoreKind
from statecore.formats.task_id import TaskId
from statecore.formats.topic_partition import TopicPartition
from statecore.spec.model import UNKNOWN_CHANGELOG, ApplicationSpec, StoreSpec


@dataclass(frozen=True)
class SiblingStore:
    """A declared store of a task that this placement does not restore.

    Attributes:
        task: ``0_1``; ``global`` for a global store.
        changelog: its changelog partition; for a global store any partition of its source topic. ``None`` if the store
            is not logged, or its topic is not decided.
        logged: whether Kafka Streams logs it. An unlogged store needs no offset, is not restored, and is created empty
            if missing (``ProcessorStateManager.initializeStoreOffsets``).
    """

    task: str
    store: str
    kind: StoreKind
    changelog: TopicPartition | None
    logged: bool = field(default=True, kw_only=True)


@dataclass(frozen=True)
class StoreImage(SiblingStore):
    """A store to be placed.

    Attributes:
        path: the built database, or for a segmented kind the directory of its segments; ``None`` for planning only. It
            is moved, not copied.
        offsets: required content of its ``offsets`` family: changelog partition → last applied offset, or -4; of a
            global store partition of the source topic → next offset. ``None`` for planning only.
        advances: whether it was built from the live store, so that replacing that loses nothing.
    """

    path: Path | None = None
    offsets: Mapping[TopicPartition, int] | None = None
    advances: bool = field(default=False, kw_only=True)

    @property
    def topics(self) -> set[str]:
        known = [*(self.offsets or ()), *([self.changelog] if self.changelog else [])]
        return {partition.topic for partition in known}


def siblings_of(
    spec: ApplicationSpec, tasks: Iterable[str], restored: Collection[tuple[str, str]]
) -> list[SiblingStore]:
    """The declared stores of some tasks that are not restored, but share a task with those that are."""
    return [
        SiblingStore(task, store.name, store.kind, _changelog_of(store, task), logged=store.is_logged)
        for task in tasks
        for store in spec.stores_of(task)
        if store.kind is not StoreKind.IN_MEMORY and (task, store.name) not in restored
    ]


def _changelog_of(store: StoreSpec, task: str) -> TopicPartition | None:
    """Changelog partition of a store in a task; ``None`` if it has none, or none is decided."""
    if not store.is_logged or store.changelog == UNKNOWN_CHANGELOG:
        return None
    return TopicPartition(store.changelog, TaskId.parse(task).partition or 0)
