"""An application's stores as declared: what ``stores.yaml`` says, checked and frozen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from statecore.formats.kinds import StoreKind
from statecore.formats.task_id import TaskId
from statecore.spec.spark_settings import SparkSettings
from statecore.words import number_of, some_of

NO_CHANGELOG = "none"
"""In place of a changelog's name: the application does not log the store (``withLoggingDisabled``)."""

UNKNOWN_CHANGELOG = "?"
"""In place of a changelog's name: nobody has decided yet; ``restore`` refuses it."""

_NAMED = 5

CHECKPOINT_INTERVAL = "statestore.checkpoint.interval.ms"
"""The setting that says how often an application's state is checkpointed (KIP-116)."""

LEAST_CHECKPOINT_INTERVAL_MS, MOST_CHECKPOINT_INTERVAL_MS = 1_000, 365 * 86_400_000
"""What of an interval is taken: less is a number of minutes without its unit, and of more no timer knows."""

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
    """Kafka Streams' ``processing.guarantee``; decides the isolation of reads and which end offset counts."""

    AT_LEAST_ONCE = "at_least_once"
    EXACTLY_ONCE_V2 = "exactly_once_v2"


@dataclass(frozen=True)
class StoreSpec:
    """One declared store.

    Attributes:
        name: the store's name, as in the topology.
        kind: what it is.
        subtopology: number printed by ``Topology.describe()``; -1 for a global store.
        changelog: the topic it is rebuilt from (global stores: the source topic), or :data:`NO_CHANGELOG`, or
            :data:`UNKNOWN_CHANGELOG`.
        retention_ms: the store's retention (history retention for versioned stores), or ``None``.
        segment_interval_ms: override of the interval derived from the retention, or ``None``.
        line: line in the spec file, for messages; no part of what the store is, so it is not compared.
        topology: the named topology the store belongs to, or ``None`` (nearly always).
        reprocess: a global store that the application fills through a processor of its own (``addGlobalStore``): its
            rows are whatever that code makes of the topic, so only the application can rebuild it.
    """

    name: str
    kind: StoreKind
    subtopology: int
    changelog: str
    retention_ms: int | None = None
    segment_interval_ms: int | None = None
    line: int = field(default=0, compare=False)
    topology: str | None = None
    reprocess: bool = False

    @property
    def is_global(self) -> bool:
        """Whether this is a global store, which has no task and no changelog of its own."""
        return self.subtopology < 0

    @property
    def is_logged(self) -> bool:
        """Whether it has a topic to be rebuilt from, decided or not. The rows of one that has none are only on disk."""
        return self.is_global or self.changelog != NO_CHANGELOG

    @property
    def is_restorable(self) -> bool:
        """Whether this library can restore it from its topic, once it is decided: Kafka Streams alone restores stores
        in memory and those of the application's own classes.
        """
        return self.is_logged and self.kind not in (StoreKind.IN_MEMORY, StoreKind.CUSTOM)

    @property
    def is_undecided(self) -> bool:
        """Whether a person has to decide its kind or its changelog before it can be restored."""
        if not self.is_logged or self.kind is StoreKind.IN_MEMORY:
            return False
        return self.kind is StoreKind.UNKNOWN or (not self.is_global and self.changelog == UNKNOWN_CHANGELOG)

    @property
    def is_filled_by_processor(self) -> bool:
        """Whether only the application can rebuild it: a global store that says so, or is no ``globalTable``.

        A ``globalTable`` is a key-value store; global stores of other kinds come from ``addGlobalStore`` alone, with a
        processor that Kafka Streams runs again at every restore.
        """
        return self.reprocess or (self.is_global and self.kind not in _GLOBAL_TABLE_KINDS)


@dataclass(frozen=True)
class ApplicationSpec:
    """An application and its declared stores.

    Attributes:
        application_id: Kafka Streams' ``application.id``.
        bootstrap_servers: ``host:port[,host:port...]``.
        processing_guarantee: the application's own setting.
        kafka: further client settings with kafka-python's names (``security_protocol``, ``sasl_mechanism``, ...), with
            ``${NAME}`` expanded: they hold secrets and are therefore left out of ``repr``.
        stores: the stores of the subtopologies, in the order of the file.
        global_stores: the global stores, in the order of the file.
        source: where the spec was read from, for messages; not compared.
        kafka_declared: the same settings as they were written, ``${NAME}`` unexpanded: what is written and sent.
        kafka_connection: id of the Airflow connection that fills in ``${KAFKA_USERNAME}`` and ``${KAFKA_PASSWORD}``, or
            ``None``; of no meaning without Airflow.
        spark: how Spark is to run this application's jobs; no part of what the application is, so not compared.
        checkpoint_interval_ms: :data:`CHECKPOINT_INTERVAL`: least milliseconds between two checkpoints of the
            application; likewise.
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
    def undeclared(
        application_id: str, guarantee: ProcessingGuarantee = ProcessingGuarantee.EXACTLY_ONCE_V2
    ) -> ApplicationSpec:
        """An application of which nobody has declared anything."""
        return ApplicationSpec(application_id, "", guarantee, ())

    def store(self, name: str) -> StoreSpec | None:
        """The declared store of that name, global ones included; ``None`` if no store is called so."""
        return next((s for s in (*self.stores, *self.global_stores) if s.name == name), None)

    def stores_of(self, task: str) -> tuple[StoreSpec, ...]:
        """The declared stores of a task (``0_1``), or of ``global``, in the order of the file."""
        task_id = TaskId.parse(task)
        if task_id.is_global:
            return self.global_stores
        return tuple(s for s in self.stores if (s.topology, s.subtopology) == task_id.subtopology_id)


def undecided_kinds(spec: ApplicationSpec) -> tuple[str, ...]:
    """The stores of which nobody has decided the kind."""
    every = (*spec.stores, *spec.global_stores)
    return tuple(store.name for store in every if store.kind is StoreKind.UNKNOWN and store.is_logged)


def undecided_in_words(spec: ApplicationSpec) -> str:
    """Of how many stores the spec leaves the kind open, and of which; empty where it does of none."""
    names = undecided_kinds(spec)
    if not names:
        return ""
    count = number_of(len(names), "store")
    return f"{spec.source} leaves the kind of {count} undecided (?): {some_of(names, _NAMED)}"
