"""The request of a migration."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field

from statecore.jobs.fields.catalog import (
    APPLICATION_ID,
    APPROVED,
    OWNER,
    STATE_DIR,
    WHAT,
    TargetRelease,
    named_request,
    optional_spec,
    to_apply,
)
from statecore.jobs.fields.declaration import Request, declare
from statecore.jobs.fields.tasks import only_tasks
from statecore.jobs.fields.types import Choice, Flag
from statecore.spec.model import ProcessingGuarantee


@dataclass(frozen=True, kw_only=True)
class MigrateRequest(Request):
    """A request to convert a state directory for another release of Kafka Streams."""

    application_id: str = field(metadata=APPLICATION_ID)
    state_dir: str = field(metadata=STATE_DIR)
    to: TargetRelease = field(
        metadata=declare(
            Choice(TargetRelease),
            title="Target release",
            help="the release of Kafka Streams that will open the directory next; the current one is detected",
            section=WHAT,
        )
    )
    apply: bool = field(default=False, metadata=to_apply("migrate"))
    approved: str = field(default="", metadata=APPROVED)
    tasks: tuple[str, ...] = field(default=(), metadata=only_tasks("every task, and the global stores"))
    spec_path: str | None = field(
        default=None,
        metadata=optional_spec(
            help="the application's stores.yaml, with the kinds, the guarantee, and topics whose names do not follow "
            "the default",
            section=WHAT,
            otherwise="only the directory itself is used",
        ),
    )
    processing_guarantee: ProcessingGuarantee | None = field(
        default=None,
        metadata=declare(
            Choice(ProcessingGuarantee),
            title="Processing guarantee",
            help="the application's processing.guarantee, which decides how stores that were not closed are handled",
            section=WHAT,
            otherwise="that of the spec; without one such stores are refused",
        ),
    )
    lose_headers: bool = field(
        default=False,
        metadata=declare(
            Flag(),
            title="Lose headers",
            help="convert stores with record headers for a release without them, even if rows have headers",
            section=WHAT,
        ),
    )
    if_there: bool = field(
        default=False,
        metadata=declare(
            Flag(),
            title="Accept a missing directory",
            help="a state directory that does not exist yet, or has no task of the application, is no error: for "
            "commands that run before every start, also the first",
            section=WHAT,
        ),
    )
    owner: str | None = field(default=None, metadata=OWNER)
    request_id: str = field(
        default_factory=lambda: uuid.uuid4().hex, metadata=named_request("name of this request, in reports")
    )
