"""The request fields that planning reads."""

from __future__ import annotations

from typing import Protocol

from statecore.jobs.fields.catalog import VersionedStart


class PlanRequest(Protocol):
    """Fields of every request that reads changelogs (:mod:`statecore.jobs.restore.request`)."""

    @property
    def stores(self) -> tuple[str, ...]:
        """Only these stores; none for all."""

    @property
    def partitions(self) -> tuple[int, ...]:
        """Only these partitions; none for all."""

    @property
    def transaction_wait(self) -> float:
        """Seconds to wait for open transactions."""

    @property
    def memory_budget(self) -> int:
        """Bytes of records that a task may hold."""

    @property
    def plan_only(self) -> bool:
        """Whether only the plan is made."""

    @property
    def versioned(self) -> VersionedStart:
        """What versioned stores contain when the application starts."""
