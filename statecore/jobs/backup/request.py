"""The request of a backup."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field

from statecore.jobs.fields.catalog import (
    LIMITS,
    PATIENCE,
    REPOSITORY_HELP,
    WHERE,
    OfApplication,
    Planned,
    named_request,
    only_plan,
    repository_url,
    without_brokers,
)
from statecore.jobs.fields.declaration import declare
from statecore.jobs.fields.tasks import only_tasks
from statecore.jobs.fields.types import FilePath


@dataclass(frozen=True, kw_only=True)
class BackupRequest(OfApplication, Planned):
    """A request to publish stores of one application from its state directory."""

    state_dir: str = field(
        metadata=declare(
            FilePath(where="on the machine that the application runs on"),
            title="State directory",
            help="the application's state.dir",
        )
    )
    repository: str = field(metadata=repository_url(REPOSITORY_HELP, section=WHERE))
    tasks: tuple[str, ...] = field(default=(), metadata=only_tasks("every task that has a directory"))
    plan_only: bool = field(default=False, metadata=only_plan("show what would be published; nothing is changed"))
    request_id: str = field(
        default_factory=lambda: uuid.uuid4().hex,
        metadata=named_request("name of this request; a retry under it finds what was published", section=None),
    )
    offline: bool = field(
        default=False,
        metadata=without_brokers(
            "do not compare the offsets with the topics; a fetch of the snapshot checks that", section=LIMITS
        ),
    )
    timeout: float = field(default=30.0, metadata=PATIENCE)
