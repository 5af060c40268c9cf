"""Properties derived from the declaration of a store: task, retention, segment interval."""

from __future__ import annotations

from statecore.formats.kinds import StoreKind
from statecore.formats.segments import ENDLESS_INTERVAL_MS, default_segment_interval
from statecore.formats.task_id import GLOBAL_TASK, TaskId
from statecore.spec.model import ApplicationSpec, StoreSpec
from statecore.spec.reader import default_changelog


def task_of(store: StoreSpec, partition: int) -> str:
    """The task of a store's partition, by its directory: ``0_1``, or ``global``."""
    return str(GLOBAL_TASK if store.is_global else TaskId(store.subtopology, partition))


def retention_of(store: StoreSpec) -> int | None:
    """Retention of a store's rows in ms; ``None`` if they do not expire."""
    return ENDLESS_INTERVAL_MS if store.kind is StoreKind.GRACE_BUFFER else store.retention_ms


def segment_interval_of(store: StoreSpec) -> int | None:
    """Interval of one segment in ms: declared, or derived as in Kafka Streams; ``None`` for other stores."""
    retention = retention_of(store)
    if retention is None or not (store.kind.is_segmented or store.kind.is_versioned):
        return None
    return store.segment_interval_ms or default_segment_interval(store.kind, retention)


def is_source(spec: ApplicationSpec, store: StoreSpec) -> bool:
    """Whether a store's changelog is a source topic: any name other than that of Kafka Streams' changelog.

    Global stores are always read completely, whatever offsets the group has committed.
    """
    return not store.is_global and store.changelog != default_changelog(spec.application_id, store.name)
