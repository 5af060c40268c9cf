"""What a repair of a state directory is asked for."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field

from statecore.jobs.declaration import Request, declare
from statecore.jobs.request import (
    APPLICATION_ID,
    APPROVED,
    OWNER,
    STATE_DIR,
    WHAT,
    check_repository,
    check_request_id,
    only_stores,
)
from statecore.jobs.task_names import only_tasks
from statecore.jobs.values import Choice, FilePath, Flag, Text, Whole
from statecore.spec.model import ProcessingGuarantee


@dataclass(frozen=True, kw_only=True)
class RepairRequest(Request):
    """A request to examine a state directory and to mend what is found."""

    application_id: str = field(
        metadata=APPLICATION_ID,
    )
    state_dir: str = field(
        metadata=STATE_DIR,
    )
    apply: bool = field(
        default=False,
        metadata=declare(Flag(), title="Apply", help="do it; without it nothing is changed", section=WHAT),
    )
    approved: str = field(
        default="",
        metadata=APPROVED,
    )
    tasks: tuple[str, ...] = field(
        default=(),
        metadata=only_tasks("every task, and the global stores"),
    )
    stores: tuple[str, ...] = field(
        default=(),
        metadata=only_stores("every store"),
    )
    scan: bool = field(
        default=False,
        metadata=declare(Flag(), title="Scan", help="read every row first, and verify its checksum", section=WHAT),
    )
    offline: bool = field(
        default=False,
        metadata=declare(
            Flag(),
            title="Do not ask the brokers",
            help="do without the brokers of the spec, so that offsets are not held against the topics",
            section=WHAT,
        ),
    )
    cleanup_max_age_ms: int | None = field(
        default=None,
        metadata=declare(
            Whole(words="a number of milliseconds", digits=18),
            title="Greatest age",
            help="the application's state.cleanup.dir.max.age.ms, in milliseconds, if it sets one: directories that it "
            "would delete get the time of now",
            section=WHAT,
            otherwise="it sets none",
        ),
    )
    spec_path: str | None = field(
        default=None,
        metadata=declare(
            FilePath("FILE"),
            title="Spec path",
            help="the application's stores.yaml; without it nothing can be rebuilt",
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
            help="the application's processing.guarantee",
            section=WHAT,
            otherwise="that of the spec; without one what is right under either is done",
        ),
    )
    repository: str | None = field(
        default=None,
        metadata=declare(
            Text("URL"),
            title="Repository",
            help="rebuild stores from the newest snapshot that is sound, where that is cheaper than from their "
            "changelogs",
            section=WHAT,
            otherwise="from their changelogs",
            check=check_repository,
        ),
    )
    owner: str | None = field(default=None, metadata=OWNER)
    request_id: str = field(
        default_factory=lambda: uuid.uuid4().hex,
        metadata=declare(
            Text("ID"),
            title="Request id",
            help="name of this request, in reports; a retry under it goes on with what it had rebuilt",
            section=WHAT,
            otherwise="a new one",
            in_form=False,
            check=check_request_id,
        ),
    )
