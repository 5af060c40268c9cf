"""The request of a diff."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from statecore.errors import Invalid, missing_option, options_conflict
from statecore.jobs.fields.catalog import (
    INLINE_SPEC,
    LIMITS,
    REPOSITORY_HELP,
    WHAT,
    Budgeted,
    Reading,
    check_state_dir,
    only_stores,
    optional_application_id,
    optional_spec,
    repository_url,
)
from statecore.jobs.fields.declaration import declare
from statecore.jobs.fields.tasks import only_tasks
from statecore.jobs.fields.types import FilePath, Flag, Text, Whole
from statecore.repository.layout import NEWEST

AGAINST = "What it is compared with (one of these)"

_SNAPSHOT = re.compile(r"newest|[0-9]{8}T[0-9]{6}Z-[0-9a-f]+")


def _check_snapshot(_: str, snapshot: str) -> None:
    if not _SNAPSHOT.fullmatch(snapshot):
        raise Invalid(
            f"{snapshot!a} is no snapshot id.",
            code="snapshot-invalid",
            action=f"Give {NEWEST}, or the id of a snapshot (statecore repo snapshots).",
            snapshot=snapshot,
        )


@dataclass(frozen=True, kw_only=True)
class DiffRequest(Budgeted, Reading):
    """A request to compare a state directory with another one, a snapshot, or its changelogs."""

    state_dir: str = field(
        metadata=declare(
            FilePath(where="on the machine where the driver runs"),
            title="State directory",
            help="the state.dir to compare",
            check=check_state_dir,
        )
    )
    application_id: str | None = field(
        default=None, metadata=optional_application_id("Kafka Streams' application.id", "that of the spec")
    )
    spec_path: str | None = field(
        default=None,
        metadata=optional_spec(
            help="the application's stores.yaml, with the kinds of stores, their retention, and the brokers",
            otherwise="kinds are taken from the directory or the snapshot",
        ),
    )
    spec: Mapping[str, Any] | None = field(default=None, metadata=INLINE_SPEC)
    with_state_dir: str | None = field(
        default=None,
        metadata=declare(
            FilePath(where="on the same machine"),
            title="Other state directory",
            help="another state.dir, of the same application",
            section=AGAINST,
            check=check_state_dir,
        ),
    )
    with_snapshot: str | None = field(
        default=None,
        metadata=declare(
            Text("ID"),
            title="Snapshot",
            help="a snapshot of the named repository: newest, or its id",
            section=AGAINST,
            check=_check_snapshot,
        ),
    )
    with_changelog: bool = field(
        default=False,
        metadata=declare(
            Flag(),
            title="Changelogs",
            help="the changelogs, up to the committed offsets of the stores; needs the spec",
            section=AGAINST,
        ),
    )
    repository: str | None = field(default=None, metadata=repository_url(REPOSITORY_HELP, section=AGAINST))
    stores: tuple[str, ...] = field(default=(), metadata=only_stores("every store"))
    tasks: tuple[str, ...] = field(default=(), metadata=only_tasks("every task that has a directory"))
    ignore_expired: bool = field(
        default=False,
        metadata=declare(
            Flag(),
            title="Ignore expired segments",
            help="skip segments whose rows have expired by the newest row of either side; needs the retention, "
            "from the spec or the snapshot",
            section=WHAT,
        ),
    )
    examples: int = field(
        default=5,
        metadata=declare(
            Whole(words="a number of rows", digits=4),
            title="Examples",
            help="number of example rows for each kind of difference and each store of a task",
            section=WHAT,
        ),
    )
    scratch_dir: str | None = field(
        default=None,
        metadata=declare(
            FilePath(where="that the driver and all executors share"),
            title="Scratch directory",
            help="where a snapshot is fetched to, or a changelog is built; needs the disk space of the stores, and is "
            "emptied at the end",
            section=LIMITS,
            otherwise="the state directory, beside that of the application",
        ),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        sides = (self.with_state_dir is not None, self.with_snapshot is not None, self.with_changelog)
        if sum(sides) != 1:
            raise Invalid(
                "A state directory is compared with exactly one reference.",
                code="options-conflict" if any(sides) else "option-missing",
                action="Give exactly one of with_state_dir (--with-state-dir), with_snapshot (--with-snapshot) and "
                "with_changelog (--with-changelog).",
                options=["with_state_dir", "with_snapshot", "with_changelog"],
            )
        if self.with_snapshot is not None and self.repository is None:
            raise missing_option(
                "The repository of the snapshot is missing.", "Name the repository (--repository).", "repository"
            )
        if self.spec_path is not None and self.spec is not None:
            raise options_conflict("The spec is given twice.", "Give one of spec_path and spec.", ["spec", "spec_path"])
        if self.application_id is None and not self.has_spec:
            raise missing_option(
                "The application is missing.", "Give --application-id, or the spec (--spec).", "application_id"
            )
        if self.with_changelog and not self.has_spec:
            raise missing_option("A comparison with changelogs needs the spec.", "Give the spec (--spec).", "spec")
        if self.ignore_expired and self.with_snapshot is None and not self.has_spec:
            raise missing_option("The retention of rows is unknown.", "Give the spec (--spec).", "spec")

    @property
    def has_spec(self) -> bool:
        return self.spec_path is not None or self.spec is not None
