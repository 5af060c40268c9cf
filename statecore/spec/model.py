"""An application's stores as declared: what ``stores.yaml`` says, checked and frozen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from statecore.formats.kinds import StoreKind


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
        changelog: the topic it is rebuilt from (global stores: the source topic).
        retention_ms: the store's retention (history retention for versioned stores), or ``None``.
        segment_interval_ms: override of the interval derived from the retention, or ``None``.
        line: line in the spec file, for messages.
    """

    name: str
    kind: StoreKind
    subtopology: int
    changelog: str
    retention_ms: int | None = None
    segment_interval_ms: int | None = None
    line: int = 0


@dataclass(frozen=True)
class ApplicationSpec:
    """An application and its declared stores.

    Attributes:
        application_id: Kafka Streams' ``application.id``.
        bootstrap_servers: ``host:port[,host:port...]``.
        processing_guarantee: the application's own setting.
        kafka: further client settings with kafka-python's names (``security_protocol``, ``sasl_mechanism``, ...).
        stores: the stores of the subtopologies, in the order of the file.
        global_stores: the global stores, in the order of the file.
        source: where the spec was read from, for messages.
    """

    application_id: str
    bootstrap_servers: str
    processing_guarantee: ProcessingGuarantee
    stores: tuple[StoreSpec, ...]
    global_stores: tuple[StoreSpec, ...] = ()
    kafka: Mapping[str, Any] = field(default_factory=dict)
    source: str = "<spec>"
