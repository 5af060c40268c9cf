"""What a snapshot of a state directory is asked for."""

from __future__ import annotations

from dataclasses import dataclass, field

from statecore.jobs.field_types import FilePath, Flag, Text
from statecore.jobs.fields import declare
from statecore.jobs.restore.request import LIMITS, PATIENCE, WHERE, OfApplication, Planned, check_repository
from statecore.jobs.task_names import only_tasks


@dataclass(frozen=True, kw_only=True)
class BackupRequest(OfApplication, Planned):
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
        metadata=only_tasks("every task that has a directory"),
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
        metadata=PATIENCE,
    )
