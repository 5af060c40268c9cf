"""Request of an advance: a restore whose stores have the state directory as their only base."""

from __future__ import annotations

from dataclasses import dataclass, field

from statecore.jobs.field_types import FilePath
from statecore.jobs.fields import declare
from statecore.jobs.restore.request import (
    HERE,
    OWNER,
    Budgeted,
    OfApplication,
    Planned,
    Reading,
    RestoreRequest,
    Staged,
)


@dataclass(frozen=True, kw_only=True)
class AdvanceRequest(OfApplication, Staged, Budgeted, Reading, Planned):
    """A request to bring the stores of a state directory to the end of their changelogs."""

    state_dir: str = field(
        default="",
        metadata=declare(
            FilePath(where="on the machine where the Spark driver runs"),
            title="State directory",
            help="the application's state.dir",
            option_required=True,
        ),
    )
    owner: str | None = field(default=None, metadata=OWNER)

    def restore(self) -> RestoreRequest:
        """The equivalent restore."""
        return RestoreRequest(
            spec_path=self.spec_path,
            spec=self.spec,
            state_dir=self.state_dir,
            stores=self.stores,
            partitions=self.partitions,
            staging_dir=self.staging_dir,
            memory_budget=self.memory_budget,
            transaction_wait=self.transaction_wait,
            timeout=self.timeout,
            plan_only=self.plan_only,
            request_id=self.request_id,
            owner=self.owner,
            start_from=HERE,
        )
