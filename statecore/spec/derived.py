"""What follows from the declaration of a store: its tasks, how long rows are kept, what a segment spans."""

from __future__ import annotations

from statecore.formats.kinds import StoreKind
from statecore.formats.segments import ENDLESS_INTERVAL_MS, default_segment_interval
from statecore.formats.task_id import GLOBAL_TASK, TaskId
from statecore.spec.model import ApplicationSpec, StoreSpec
from statecore.spec.reader import default_changelog


def task_of(store: StoreSpec, partition: int) -> str:
    """The task a store's partition belongs to, by its directory: ``0_1``, ``__north__/0_1``, or ``global``."""
    return str(GLOBAL_TASK if store.is_global else TaskId(store.subtopology, partition, store.topology))


def retention_of(store: StoreSpec) -> int | None:
    """How long the rows of a store are kept, in ms; ``None`` where they do not expire."""
    return ENDLESS_INTERVAL_MS if store.kind is StoreKind.GRACE_BUFFER else store.retention_ms


def segment_interval_of(store: StoreSpec) -> int | None:
    """The time one segment of a store spans, in ms: declared, or derived as Kafka Streams does it."""
    retention = retention_of(store)
    if retention is None or not (store.kind.is_segmented or store.kind.is_versioned):
        return None
    return store.segment_interval_ms or default_segment_interval(store.kind, retention)


def is_source(spec: ApplicationSpec, store: StoreSpec) -> bool:
    """Whether a store's changelog is a source topic: Kafka Streams gives its own changelogs no other name.

    Global stores are read whole from their source topic, whatever the group has committed.
    """
    return not store.is_global and store.changelog != default_changelog(spec.application_id, store.name, store.topology)
