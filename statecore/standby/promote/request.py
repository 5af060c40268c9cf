"""The request of a promotion: standby tasks replace an application's tasks on this machine."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field

from statecore.jobs.fields.catalog import (
    OWNER,
    PATIENCE,
    STATE_DIR,
    WHAT,
    OfSpec,
    check_state_dir,
    named_request,
    to_apply,
    without_brokers,
)
from statecore.jobs.fields.declaration import declare
from statecore.jobs.fields.tasks import only_tasks
from statecore.jobs.fields.types import FilePath


@dataclass(frozen=True, kw_only=True)
class PromoteRequest(OfSpec):
    """A request to put standby tasks into the state directory of a stopped application."""

    standby_dir: str = field(
        metadata=declare(
            FilePath(where="on the machine where the application runs"),
            title="Standby copy",
            help="the state directory of statecore standby; it is not changed",
            option="--standby-dir",
            check=check_state_dir,
        )
    )
    state_dir: str = field(metadata=STATE_DIR)
    tasks: tuple[str, ...] = field(default=(), metadata=only_tasks("every task of the standby copy", global_too=False))
    apply: bool = field(default=False, metadata=to_apply("promote"))
    offline: bool = field(
        default=False,
        metadata=without_brokers(
            "do not check with the brokers whether the copy still belongs to the current topics", section=WHAT
        ),
    )
    timeout: float = field(default=30.0, metadata=PATIENCE)
    owner: str | None = field(default=None, metadata=OWNER)
    request_id: str = field(
        default_factory=lambda: uuid.uuid4().hex, metadata=named_request("name of this request, in reports")
    )
