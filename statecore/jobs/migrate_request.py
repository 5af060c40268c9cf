"""What a migration of a state directory is asked for."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field

from statecore.errors import Invalid
from statecore.jobs.declaration import Request, declare
from statecore.jobs.request import OWNER, WHAT, check_request_id
from statecore.jobs.target_release import TargetRelease
from statecore.jobs.task_names import check_tasks
from statecore.jobs.values import Choice, FilePath, Flag, Several, Text
from statecore.spec.model import ProcessingGuarantee


def check_state_dir(_: str, path: str) -> None:
    """Refuse an empty path."""
    if not path:
        raise Invalid("No state directory was given.", action="Give Kafka Streams' state.dir as state_dir.")


@dataclass(frozen=True, kw_only=True)
class MigrateRequest(Request):
    """A request to make a state directory what another release of Kafka Streams opens."""

    application_id: str = field(
        metadata=declare(Text("ID"), title="Application id", help="Kafka Streams' application.id"),
    )
    state_dir: str = field(
        metadata=declare(
            FilePath(where="on the machine where the application runs"),
            title="State directory",
            help="the application's state.dir",
            check=check_state_dir,
        ),
    )
    to: TargetRelease = field(
        metadata=declare(
            Choice(TargetRelease),
            title="Release",
            help="the release of Kafka Streams that is to open the directory next; from which one it comes is seen",
            section=WHAT,
        ),
    )
    apply: bool = field(
        default=False,
        metadata=declare(
            Flag(),
            title="Apply",
            help="do it; without it the plan is shown, and nothing is changed",
            section=WHAT,
        ),
    )
    approved: str = field(
        default="",
        metadata=declare(
            Text("ID"),
            title="Approved plan",
            help="the id of the plan that was looked at; another one is not applied, because the directory has changed",
            section=WHAT,
            otherwise="whatever the plan is now",
        ),
    )
    tasks: tuple[str, ...] = field(
        default=(),
        metadata=declare(
            Several(Text("TASK")),
            title="Tasks",
            help="only these tasks, such as 0_1, or global",
            section=WHAT,
            otherwise="every task, and the global stores",
            option="--task",
            check=check_tasks,
        ),
    )
    spec_path: str | None = field(
        default=None,
        metadata=declare(
            FilePath("FILE"),
            title="Spec path",
            help="the application's stores.yaml: says which store has which topic where the names do not tell, the "
            "kinds, and the guarantee",
            section=WHAT,
            otherwise="what the directory itself tells",
            option="--spec",
        ),
    )
    processing_guarantee: ProcessingGuarantee | None = field(
        default=None,
        metadata=declare(
            Choice(ProcessingGuarantee),
            title="Guarantee",
            help="the application's processing.guarantee, which decides what becomes of stores that were not closed",
            section=WHAT,
            otherwise="that of the spec; without one such stores are refused",
        ),
    )
    lose_headers: bool = field(
        default=False,
        metadata=declare(
            Flag(),
            title="Lose headers",
            help="convert stores with record headers for a release that knows none, also where rows have some",
            section=WHAT,
        ),
    )
    if_there: bool = field(
        default=False,
        metadata=declare(
            Flag(),
            title="If there",
            help="a state directory that is not there yet, or has no task of the application, is nothing to do and no "
            "error: for commands that run before every start, also the first",
            section=WHAT,
        ),
    )
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
