"""Declarations and settings of global stores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from statecore.changelog.model import IsolationLevel
from statecore.errors import Invalid
from statecore.formats.integers import whole_number
from statecore.formats.kinds import StoreKind
from statecore.spec.model import ApplicationSpec, ProcessingGuarantee
from statecore.stores.settings import StoreSettings

KINDS = (StoreKind.KEY_VALUE, StoreKind.TIMESTAMPED_KEY_VALUE, StoreKind.HEADERS_KEY_VALUE)
"""The kinds of a ``globalTable`` on disk."""


@dataclass(frozen=True)
class GlobalTable:
    """A global store whose rows are the last records of its topic (``StreamsBuilder.globalTable``)."""

    name: str
    kind: StoreKind
    topic: str  # the topic, all partitions of which are in the one database

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise Invalid(
                f"The global store {self.name} is a {self.kind.value} store, which a globalTable cannot be.",
                code="kind-unsupported",
                action="Leave stores in memory, and those that a processor fills, to the application.",
                store=self.name,
                kind=self.kind.value,
            )


def tables_of(spec: ApplicationSpec) -> tuple[GlobalTable, ...]:
    """The global tables of a spec, without those in memory and those that a processor fills."""
    return tuple(
        GlobalTable(store.name, store.kind, store.changelog)
        for store in spec.global_stores
        if store.kind in KINDS and not store.is_filled_by_processor
    )


@dataclass(frozen=True)
class GlobalSettings:
    """How global stores are kept."""

    # processing.guarantee is exactly_once_v2: only committed records are read, and a store that was not closed is
    # rebuilt
    exactly_once: bool = False
    # keep stores of topics whose retention deletes last records of keys. A rebuilt store has what is left, without the
    # rows it had before.
    accept_uncompacted: bool = False
    # seconds for which a topic may be absent, as while it is deleted and recreated, before the store is given up
    topic_gone_timeout: float = 300.0
    metadata_interval: float = 1.0  # seconds between two requests for a topic's id and partitions
    poll_interval: float = 0.1  # seconds between two rounds of the thread when nothing came (poll.ms)
    # seconds before brokers that did not answer are asked again, doubled each time (retry.backoff.ms)
    retry_backoff: float = 0.1
    retry_backoff_max: float = 10.0  # its bound, in seconds (retry.backoff.max.ms)
    # how often in a row a store may fail in a way that another read or a rebuild may repair (its log is truncated while
    # it is read, it does not verify) before it is given up
    recovery_attempts: int = 8
    stall_timeout: float = 10.0  # seconds without progress after which a read is given up until the next round
    round_offsets: int = 1_000_000  # offsets of a partition that one round reads at most; a round is one commit
    memory_budget: int = 64 << 20  # bytes of records in memory before a round writes them to the disk
    store: StoreSettings = field(default_factory=StoreSettings)  # settings of each store

    def __post_init__(self) -> None:
        if min(self.round_offsets, self.memory_budget, self.recovery_attempts) < 1:
            raise Invalid(
                "round_offsets, memory_budget and recovery_attempts must be at least 1.",
                code="setting-invalid",
                action="Give positive numbers for round_offsets, memory_budget and recovery_attempts.",
            )

    @property
    def isolation(self) -> IsolationLevel:
        """The isolation level of reads."""
        return IsolationLevel.READ_COMMITTED if self.exactly_once else IsolationLevel.READ_UNCOMMITTED

    @classmethod
    def from_properties(cls, properties: Mapping[str, object], *, accept_uncompacted: bool = False) -> Self:
        """The settings under Kafka Streams' names (guarantee, ``poll.ms``, back-off); others are ignored."""
        text = str(properties.get("processing.guarantee", ProcessingGuarantee.AT_LEAST_ONCE.value)).strip()
        try:
            guarantee = ProcessingGuarantee(text)
        except ValueError as error:
            raise Invalid(
                f"processing.guarantee is {text!r}.",
                code="setting-invalid",
                action=f"Give one of {', '.join(one.value for one in ProcessingGuarantee)}.",
                setting="processing.guarantee",
            ) from error
        return cls(
            exactly_once=guarantee.is_exactly_once,
            accept_uncompacted=accept_uncompacted,
            poll_interval=_seconds(properties, "poll.ms", cls.poll_interval),
            retry_backoff=_seconds(properties, "retry.backoff.ms", cls.retry_backoff),
            retry_backoff_max=_seconds(properties, "retry.backoff.max.ms", cls.retry_backoff_max),
        )


def _seconds(properties: Mapping[str, object], name: str, default: float) -> float:
    value = properties.get(name)
    if value is None:
        return default
    found = whole_number(value, text=True)
    if found is None or found < 0:
        raise Invalid(
            f"{name} is {value!r}, which is not a number of milliseconds.",
            code="setting-invalid",
            action="Correct it.",
            setting=name,
        )
    return found / 1000
