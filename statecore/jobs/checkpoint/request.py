"""Request of a checkpoint."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from statecore.jobs.fields.catalog import (
    TRANSACTION_WAIT,
    VERSIONED,
    WHERE,
    Budgeted,
    OfSpec,
    Planned,
    Reading,
    Selected,
    VersionedStart,
    repository_url,
)
from statecore.jobs.fields.declaration import declare
from statecore.jobs.fields.types import Choice, Duration, Flag, Text
from statecore.objectstore.base import DEFAULT_RETRIES, SCHEDULED_RETRIES, RetryPolicy

POLICY = "Stores that cannot be advanced"

DEFAULT_VERSIONED_MS = 86_400_000
"""How long a versioned store stays as the snapshot has it."""


class WhenRefused(StrEnum):
    """Policy for a store for which no snapshot can be advanced to the end of its changelog."""

    REBUILD = "rebuild"
    """Its whole changelog is read."""

    RECONCILE = "reconcile"
    """If deletes may be missing and nothing else is wrong, the whole log is compared with the newest snapshot, and
    only the difference is published; all other stores are rebuilt.
    """

    REFUSE = "refuse"
    """Nothing is published. A store that is found damaged after the publication is reported, and not rebuilt."""


@dataclass(frozen=True, kw_only=True)
class CheckpointRequest(OfSpec, Selected, Budgeted, Reading, Planned):
    """A request to advance the newest snapshot of one application by the tails of its changelogs."""

    repository: str = field(
        metadata=repository_url("where the snapshots are: s3://bucket/prefix, or file:///path", section=WHERE)
    )
    when_refused: WhenRefused = field(
        default=WhenRefused.REBUILD,
        metadata=declare(
            Choice(WhenRefused),
            title="If no snapshot can be advanced",
            help="what is done with a store whose snapshots do not fit its changelog any more, are damaged, or may "
            "have missed deletes. rebuild: its whole changelog is read. reconcile: where only deletes may be missing, "
            "the whole log is compared with the snapshot and the difference published. refuse: nothing is published",
            section=POLICY,
        ),
    )
    transaction_wait: float = field(default=0.0, metadata=TRANSACTION_WAIT)
    versioned: VersionedStart = field(default=VersionedStart.HISTORY, metadata=VERSIONED)
    versioned_interval: int = field(
        default=DEFAULT_VERSIONED_MS,
        metadata=declare(
            Duration(),
            title="Rebuild versioned stores after",
            help="with versioned latest: how long a versioned store stays as the snapshot has it, before it is rebuilt "
            "from its whole changelog; its rows depend on every record, so a tail cannot advance it",
            section=POLICY,
        ),
    )
    compact: bool = field(
        default=True,
        metadata=declare(
            Flag(),
            title="Compact afterwards",
            help="compact databases with many runs after the checkpoint is published",
            section=POLICY,
            on_command_line=False,
        ),
    )
    decided_upon: str | None = field(
        default=None,
        metadata=declare(
            Text("SNAPSHOT"),
            title="Last snapshot at the decision",
            help="by schedule: the last snapshot when this checkpoint was found to be due; if there is a newer one by "
            "now, another job was faster, and nothing is done",
            section=POLICY,
            on_command_line=False,
            in_form=False,
        ),
    )

    @property
    def retries(self) -> RetryPolicy:
        """How long the object store may let the job wait; of one by schedule the next tick makes another."""
        return DEFAULT_RETRIES if self.decided_upon is None else SCHEDULED_RETRIES
