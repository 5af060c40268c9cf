"""The request of a backup."""

from __future__ import annotations

from dataclasses import dataclass, field

from statecore.jobs.field_types import FilePath, Flag, Text
from statecore.jobs.fields import declare
from statecore.jobs.restore.request import LIMITS, PATIENCE, WHERE, OfApplication, Planned, check_repository
from statecore.jobs.task_names import only_tasks


@dataclass(frozen=True, kw_only=True)
class BackupRequest(OfApplication, Planned):
    """A request to publish stores of one application from its state directory."""

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
            help="URL of the repository: s3://bucket/prefix, or file:///path",
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
            help="do not compare the offsets with the topics; a fetch of the snapshot checks that",
            section=LIMITS,
        ),
    )
    timeout: float = field(
        default=30.0,
        metadata=PATIENCE,
    )
