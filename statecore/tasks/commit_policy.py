"""Decides when a processor's loop commits: at an interval, when stores request it, or on demand.

::

    policy = CommitPolicy(settings, stores)
    while running:
        process(...)
        if policy.due():
            commit()                    the Kafka transaction (or the producer's flush), then the stores
            policy.committed()
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from statecore.errors import Invalid
from statecore.progress import Clock
from statecore.spec.model import ProcessingGuarantee
from statecore.stores.base import StateStore, commit_requested
from statecore.stores.settings import NO_LIMIT, UNCOMMITTED_MAX_BYTES
from statecore.tasks.property_values import number

INTERVAL_PROPERTY = "commit.interval.ms"
UNCOMMITTED_PROPERTY = "statestore.uncommitted.max.bytes"
MAX_BLOCK_PROPERTY = "max.block.ms"
AT_LEAST_ONCE_INTERVAL_MS = 30_000  # Kafka Streams' default of commit.interval.ms under at-least-once
EXACTLY_ONCE_INTERVAL_MS = 100  # The same under exactly-once: readers of committed records wait that long for them


MAX_BLOCK_MS = 60_000  # The default of max.block.ms of Kafka's producer


@dataclass(frozen=True)
class CommitSettings:
    """Commit interval, and how long to wait for brokers.

    Attributes:
        interval_ms: ``commit.interval.ms``: milliseconds between two commits of a task; 0 is one in every round.
        uncommitted_max_bytes: ``statestore.uncommitted.max.bytes``: memory of staged writes of all stores of the task,
            in bytes, at which a commit is due before that; -1 for no limit.
        max_block_ms: ``max.block.ms``: milliseconds that one call of a commit may wait for brokers; there are three of
            them at most.

    Raises:
        Invalid: a value is out of range.
    """

    interval_ms: int = AT_LEAST_ONCE_INTERVAL_MS
    uncommitted_max_bytes: int = UNCOMMITTED_MAX_BYTES
    max_block_ms: int = MAX_BLOCK_MS

    def __post_init__(self) -> None:
        for name, value, least in (
            (INTERVAL_PROPERTY, self.interval_ms, 0),
            (UNCOMMITTED_PROPERTY, self.uncommitted_max_bytes, NO_LIMIT),
            (MAX_BLOCK_PROPERTY, self.max_block_ms, 1),
        ):
            if value < least:
                raise Invalid(
                    f"{name} cannot be {value}.", code="setting-invalid", action=f"Give {least} or more.", setting=name
                )

    @classmethod
    def from_properties(cls, properties: Mapping[str, object], guarantee: ProcessingGuarantee) -> CommitSettings:
        """The settings in an application's properties, with Kafka Streams' defaults.

        ``producer.max.block.ms`` takes precedence over ``max.block.ms``, as in Kafka Streams.

        Raises:
            Invalid: a value is not a whole number, or too small.
        """
        exactly_once = guarantee.is_exactly_once
        default = EXACTLY_ONCE_INTERVAL_MS if exactly_once else AT_LEAST_ONCE_INTERVAL_MS
        return cls(
            number(properties, INTERVAL_PROPERTY, default),
            number(properties, UNCOMMITTED_PROPERTY, UNCOMMITTED_MAX_BYTES),
            number(properties, f"producer.{MAX_BLOCK_PROPERTY}", number(properties, MAX_BLOCK_PROPERTY, MAX_BLOCK_MS)),
        )


class CommitPolicy:
    """Tells whether a commit is due.

    Args:
        settings: how often.
        stores: the stores of the task, which request a commit when much is staged.
        clock: seconds, monotonic.
    """

    def __init__(
        self, settings: CommitSettings | None = None, stores: Iterable[StateStore] = (), clock: Clock = time.monotonic
    ) -> None:
        self._settings = settings or CommitSettings()
        self._stores = tuple(stores)
        self._clock = clock
        self._requested = False
        self._last = clock()

    def request(self) -> None:
        """Make the next :meth:`due` true (``ProcessorContext.commit``)."""
        self._requested = True

    def due(self) -> bool:
        """Whether the interval has elapsed, a commit was requested, or the stores have staged too much."""
        return (
            self._requested
            or self._clock() - self._last >= self._settings.interval_ms / 1000
            or any(store.commit_requested for store in self._stores)
            or commit_requested(self._stores, self._settings.uncommitted_max_bytes)
        )

    def committed(self) -> None:
        """Begin the interval again, without a request."""
        self._requested = False
        self._last = self._clock()
