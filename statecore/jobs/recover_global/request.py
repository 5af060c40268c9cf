"""The request of a recovery of global stores."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field

from statecore.jobs.fields.catalog import (
    APPROVED,
    OWNER,
    PATIENCE,
    REQUEST_ID,
    STATE_DIR,
    WHAT,
    only_stores,
    optional_application_id,
    repository_url,
    to_apply,
)
from statecore.jobs.fields.declaration import Request, declare
from statecore.jobs.fields.types import FilePath, Flag


@dataclass(frozen=True, kw_only=True)
class RecoverGlobalRequest(Request):
    """A request to diagnose an application's global stores and to rebuild the invalid ones."""

    spec_path: str = field(
        metadata=declare(
            FilePath("FILE"),
            title="Spec path",
            help="the application's stores.yaml, with the topics of its global stores",
            option="--spec",
        )
    )
    state_dir: str = field(metadata=STATE_DIR)
    application_id: str | None = field(
        default=None,
        metadata=optional_application_id(
            "Kafka Streams' application.id, to check that the spec is that of this application", "that of the spec"
        ),
    )
    stores: tuple[str, ...] = field(default=(), metadata=only_stores("every global store of the spec"))
    apply: bool = field(default=False, metadata=to_apply())
    approved: str = field(default="", metadata=APPROVED)
    accept_uncompacted: bool = field(
        default=False,
        metadata=declare(
            Flag(),
            title="Accept topics that are not compacted",
            help="also rebuild a global store from a topic whose retention deletes the last records of keys; the store "
            "then has only the remaining rows",
            section=WHAT,
        ),
    )
    repository: str | None = field(
        default=None,
        metadata=repository_url(
            "rebuild stores from the newest sound snapshot where that is cheaper than from their topics",
            section=WHAT,
            otherwise="from their topics",
        ),
    )
    owner: str | None = field(default=None, metadata=OWNER)
    timeout: float = field(default=30.0, metadata=PATIENCE)
    request_id: str = field(default_factory=lambda: uuid.uuid4().hex, metadata=REQUEST_ID)
