"""What a hand-over is asked for: a warm copy takes the place of what an application has on this machine."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field

from statecore.jobs.field_types import FilePath, Flag, Text
from statecore.jobs.fields import declare
from statecore.jobs.restore.request import OWNER, PATIENCE, STATE_DIR, WHAT, OfSpec, check_request_id, check_state_dir
from statecore.jobs.task_names import only_tasks


@dataclass(frozen=True, kw_only=True)
class PromoteRequest(OfSpec):
    """A request to put the tasks of a warm copy into the state directory of an application that is down."""

    warm_dir: str = field(
        metadata=declare(
            FilePath(where="on the machine where the application runs"),
            title="Warm copy",
            help="the state directory that statecore standby has kept; it stays as it is",
            option="--from",
            check=check_state_dir,
        ),
    )
    state_dir: str = field(metadata=STATE_DIR)
    tasks: tuple[str, ...] = field(default=(), metadata=only_tasks("every task of the warm copy", global_too=False))
    apply: bool = field(
        default=False,
        metadata=declare(
            Flag(),
            title="Apply",
            help="do it; without it the plan is shown, and nothing is changed",
            section=WHAT,
        ),
    )
    offline: bool = field(
        default=False,
        metadata=declare(
            Flag(),
            title="Do not ask the brokers",
            help="do without the brokers: nobody looks whether the copy is still of the topics that there are",
            section=WHAT,
        ),
    )
    timeout: float = field(default=30.0, metadata=PATIENCE)
    owner: str | None = field(default=None, metadata=OWNER)
    request_id: str = field(
        default_factory=lambda: uuid.uuid4().hex,
        metadata=declare(
            Text("ID"),
            title="Request id",
            help="name of this request, in reports",
            section=WHAT,
            otherwise="a new one",
            in_form=False,
            check=check_request_id,
        ),
    )
