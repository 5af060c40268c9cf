"""The model of ``stores.yaml``: an application and its declared stores, validated and immutable."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from statecore.formats.kinds import StoreKind
from statecore.formats.segments import ENDLESS_INTERVAL_MS, Segmentation, default_segment_interval
from statecore.formats.task_id import GLOBAL_TASK, TaskId
from statecore.isolation import IsolationLevel
from statecore.spec.spark_settings import SparkSettings
from statecore.words import number_of, shortened_list

NO_CHANGELOG = "none"
"""In place of a changelog's name: the application does not log the store (``withLoggingDisabled``)."""

UNKNOWN_CHANGELOG = "?"
"""In place of a changelog's name: not decided yet; ``restore`` refuses it."""

_NAMED = 5

CHECKPOINT_INTERVAL = "statestore.checkpoint.interval.ms"
"""Setting for the interval of an application's checkpoints in a repository; for a task of a Python processor, that of
its ``.checkpoint`` (``tasks/checkpoint_policy.py``). KIP-116 proposed the name; Kafka Streams has no such setting.
"""

MIN_CHECKPOINT_INTERVAL_MS, MAX_CHECKPOINT_INTERVAL_MS = 1_000, 365 * 86_400_000
"""Accepted range of the interval: less is probably minutes without a unit, and more exceeds timers."""

DEFAULT_CHECKPOINT_INTERVAL_MS = 300_000
"""Five minutes, the default of KIP-116."""

_GLOBAL_TABLE_KINDS = frozenset(
    {
        StoreKind.KEY_VALUE,
        StoreKind.TIMESTAMPED_KEY_VALUE,
        StoreKind.HEADERS_KEY_VALUE,
        StoreKind.IN_MEMORY,
        StoreKind.CUSTOM,
        StoreKind.UNKNOWN,
    }
)


class ProcessingGuarantee(StrEnum):
    """Kafka Streams' ``processing.guarantee``; determines the isolation of reads and which end offset counts."""

    AT_LEAST_ONCE = "at_least_once"
    EXACTLY_ONCE_V2 = "exactly_once_v2"

    @property
    def is_exactly_once(self) -> bool:
        """Whether offsets and records are committed in transactions."""
        return self is ProcessingGuarantee.EXACTLY_ONCE_V2

    @property
    def isolation(self) -> IsolationLevel:
        """Isolation of Kafka Streams' restore consumer: read_committed under exactly-once only."""
        return IsolationLevel.READ_COMMITTED if self.is_exactly_once else IsolationLevel.READ_UNCOMMITTED


@dataclass(frozen=True)
class StoreSpec:
    """One declared store.

    Attributes:
        subtopology: number printed by ``Topology.describe()``; -1 for a global store.
        changelog: the topic it is rebuilt from (global stores: the source topic), or :data:`NO_CHANGELOG`, or
            :data:`UNKNOWN_CHANGELOG`.
        retention_ms: the store's retention (history retention for versioned stores), or ``None``.
        segment_interval_ms: override of the interval derived from the retention, or ``None``.
        line: line in the spec file, for messages; not compared.
        reprocess: a global store filled through the application's own processor (``addGlobalStore``): its rows depend
            on that code, so only the application can rebuild it.
    """

    name: str
    kind: StoreKind
    subtopology: int
    changelog: str
    retention_ms: int | None = None
    segment_interval_ms: int | None = None
    line: int = field(default=0, compare=False)
    reprocess: bool = False

    @property
    def is_global(self) -> bool:
        """Whether this is a global store, which has no task and no changelog of its own."""
        return self.subtopology < 0

    @property
    def is_logged(self) -> bool:
        """Whether it has a topic to be rebuilt from, decided or not; otherwise its rows are only on disk."""
        return self.is_global or self.changelog != NO_CHANGELOG

    @property
    def is_restorable(self) -> bool:
        """Whether this library can restore it: Kafka Streams alone restores in-memory and custom stores."""
        return self.is_logged and self.kind not in (StoreKind.IN_MEMORY, StoreKind.CUSTOM)

    @property
    def is_undecided(self) -> bool:
        """Whether its kind or its changelog must be decided by a person before it can be restored."""
        if not self.is_logged or self.kind is StoreKind.IN_MEMORY:
            return False
        return self.kind is StoreKind.UNKNOWN or (not self.is_global and self.changelog == UNKNOWN_CHANGELOG)

    @property
    def is_filled_by_processor(self) -> bool:
        """Whether only the application can rebuild it: a global store with ``reprocess``, or not of a ``globalTable``.

        A ``globalTable`` is a key-value store; other global stores come from ``addGlobalStore``, with a processor that
        Kafka Streams runs again at every restore.
        """
        return self.reprocess or (self.is_global and self.kind not in _GLOBAL_TABLE_KINDS)


@dataclass(frozen=True)
class ApplicationSpec:
    """An application and its declared stores.

    Attributes:
        bootstrap_servers: ``host:port[,host:port...]``.
        kafka: further client settings with kafka-python's names (``security_protocol``, ``sasl_mechanism``, ...), with
            ``${NAME}`` expanded: they contain secrets and are therefore left out of ``repr``.
        source: where the spec was read from, for messages; not compared.
        kafka_declared: the same settings as declared, ``${NAME}`` unexpanded: the form that is written and sent.
        kafka_connection: id of the Airflow connection for ``${KAFKA_USERNAME}`` and ``${KAFKA_PASSWORD}``, or ``None``;
            ignored without Airflow.
        checkpoint_interval_ms: :data:`CHECKPOINT_INTERVAL`: minimum milliseconds between two checkpoints of the
            application; not compared.
        transactional_state_stores: the application's ``enable.transactional.statestores`` (Kafka Streams 4.4, KIP-892):
            rows reach RocksDB only with the commit, together with their offset.
    """

    application_id: str
    bootstrap_servers: str
    processing_guarantee: ProcessingGuarantee
    stores: tuple[StoreSpec, ...]
    global_stores: tuple[StoreSpec, ...] = ()
    kafka: Mapping[str, Any] = field(default_factory=dict, repr=False)
    source: str = field(default="<spec>", compare=False)
    kafka_declared: Mapping[str, Any] = field(default_factory=dict)
    kafka_connection: str | None = None
    spark: SparkSettings = field(default_factory=SparkSettings, compare=False)
    checkpoint_interval_ms: int = field(default=DEFAULT_CHECKPOINT_INTERVAL_MS, compare=False)
    transactional_state_stores: bool = False

    @staticmethod
    def undeclared(application_id: str) -> ApplicationSpec:
        """An application without a spec."""
        return ApplicationSpec(application_id, "", ProcessingGuarantee.EXACTLY_ONCE_V2, ())

    def store(self, name: str) -> StoreSpec | None:
        """The declared store of that name, including global ones; ``None`` if there is none."""
        return next((s for s in (*self.stores, *self.global_stores) if s.name == name), None)

    def stores_of(self, task: str) -> tuple[StoreSpec, ...]:
        """The declared stores of a task (``0_1``) or of ``global``, in file order."""
        task_id = TaskId.parse(task)
        if task_id.is_global:
            return self.global_stores
        return tuple(s for s in self.stores if s.subtopology == task_id.subtopology)


def undecided_kinds(spec: ApplicationSpec) -> tuple[str, ...]:
    """Names of the logged stores without a decided kind."""
    every = (*spec.stores, *spec.global_stores)
    return tuple(store.name for store in every if store.kind is StoreKind.UNKNOWN and store.is_logged)


def undecided_note(spec: ApplicationSpec) -> str:
    """A sentence about the stores without a decided kind; empty if there are none."""
    names = undecided_kinds(spec)
    if not names:
        return ""
    count = number_of(len(names), "store")
    return f"{spec.source} leaves the kind of {count} undecided (?): {shortened_list(names, _NAMED)}"


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


def segmentation_of(store: StoreSpec) -> Segmentation | None:
    """How the rows of a declared store are segmented; ``None`` where it is one database."""
    return Segmentation.of(retention_of(store), segment_interval_of(store)) if store.kind.is_segmented else None


def is_source(spec: ApplicationSpec, store: StoreSpec) -> bool:
    """Whether a store's changelog is a source topic; a global store, which is always read whole, has none."""
    return not store.is_global and store.changelog != default_changelog(spec.application_id, store.name)


def default_changelog(application_id: str, store: str) -> str:
    """The changelog topic of a store (``ProcessorStateManager.storeChangelogTopic``)."""
    return f"{application_id}-{store}-changelog"
