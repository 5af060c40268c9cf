"""What a snapshot of a state directory is asked for."""

from __future__ import annotations

from dataclasses import dataclass, field

from statecore.errors import Invalid
from statecore.formats.releases import GLOBAL, TASK_NAME
from statecore.jobs.declaration import declare
from statecore.jobs.request import LIMITS, WHAT, WHERE, OfApplication, Planned, check_patience, check_repository
from statecore.jobs.values import FilePath, Flag, Seconds, Several, Text


def _check_tasks(_: str, tasks: tuple[str, ...]) -> None:
    wrong = [task for task in tasks if task != GLOBAL and not TASK_NAME.fullmatch(task)]
    if wrong:
        raise Invalid(
            f"{wrong[0]!r} is no task.",
            action=f"Name tasks as their directories are called: 0_1, or {GLOBAL} for the global stores.",
        )


@dataclass(frozen=True, kw_only=True)
class SnapshotRequest(OfApplication, Planned):
    """A request to publish stores of one application as they lie in its state directory."""

    state_dir: str = field(
        metadata=declare(
            FilePath(where="on the machine that the application runs on"),
            title="State directory",
            help="the application's state.dir",
        ),
    )
    repository: str = field(
        metadata=declare(
            Text("URL"),
            title="Repository",
            help="where the snapshot is published: s3://bucket/prefix, or file:///path",
            section=WHERE,
            check=check_repository,
        ),
    )
    tasks: tuple[str, ...] = field(
        default=(),
        metadata=declare(
            Several(Text("TASK")),
            title="Tasks",
            help="only these tasks, such as 0_1, or global",
            section=WHAT,
            otherwise="every task that has a directory",
            option="--task",
            check=_check_tasks,
        ),
    )
    offline: bool = field(
        default=False,
        metadata=declare(
            Flag(),
            title="Do not ask the brokers",
            help="do without the brokers: whether the offsets fit the topics is then found out by whoever fetches the "
            "snapshot",
            section=LIMITS,
        ),
    )
    timeout: float = field(
        default=30.0,
        metadata=declare(
            Seconds(more_than_zero=True),
            title="Timeout of brokers",
            help="how long a broker may make no progress before it counts as unreachable",
            section=LIMITS,
            in_form=False,
            check=check_patience,
        ),
    )
