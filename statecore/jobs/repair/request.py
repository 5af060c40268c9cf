"""The request of a repair."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field

from statecore.errors import Invalid
from statecore.jobs.fields.catalog import APPROVED, OWNER, REQUEST_ID, WHAT, TargetRelease, repository_url, to_apply
from statecore.jobs.fields.declaration import declare
from statecore.jobs.fields.diagnosis import OfDiagnosis
from statecore.jobs.fields.types import Choice, Text


@dataclass(frozen=True, kw_only=True)
class RepairRequest(OfDiagnosis):
    """A request to diagnose and repair the directory of an application."""

    application_id: str = field(
        metadata=declare(
            Text("ID"),
            title="Application id",
            help="Kafka Streams' application.id",
            otherwise="that of the spec",
            option_required=False,
        )
    )
    release: TargetRelease | None = field(
        default=None,
        metadata=declare(
            Choice(TargetRelease),
            title="Target release",
            help="always the newest",
            on_command_line=False,
            in_form=False,
        ),
    )
    apply: bool = field(default=False, metadata=to_apply())
    approved: str = field(default="", metadata=APPROVED)
    repository: str | None = field(
        default=None,
        metadata=repository_url(
            "rebuild stores from the newest sound snapshot where that is cheaper than from their changelogs",
            section=WHAT,
            otherwise="from their changelogs",
        ),
    )
    owner: str | None = field(default=None, metadata=OWNER)
    request_id: str = field(default_factory=lambda: uuid.uuid4().hex, metadata=REQUEST_ID)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.release is not None:
            raise Invalid(
                "A repair supports only the newest release.",
                code="release-invalid",
                action="Leave out release; statecore migrate converts to other releases.",
            )
