"""Requests of a restore and of an advance: frozen values made by the command line, Airflow, or a test."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields
from typing import ClassVar

from statecore.errors import Invalid, missing_option, options_conflict
from statecore.jobs.fields.catalog import (
    OWNER,
    VERSIONED,
    WHAT,
    WHERE,
    Budgeted,
    IntoRepository,
    OfApplication,
    Planned,
    Reading,
    Staged,
    VersionedStart,
)
from statecore.jobs.fields.declaration import declare
from statecore.jobs.fields.types import FilePath, Flag, Text
from statecore.repository.layout import NEWEST

CHEAPEST, NOTHING, FROM_DIRECTORY = "cheapest", "none", "directory"
"""Values of ``start_from``, besides :data:`NEWEST` and the id of a snapshot."""

_START = re.compile(r"cheapest|none|newest|directory|[0-9]{8}T[0-9]{6}Z-[0-9a-f]+")


def _check_start(_: str, start: str) -> None:
    if not _START.fullmatch(start):
        raise Invalid(
            f"A restore cannot start from {start!a}.",
            code="start-from-invalid",
            action=f"Give {CHEAPEST}, {NOTHING}, {NEWEST} or {FROM_DIRECTORY}, or the id of a snapshot (statecore repo "
            "snapshots).",
        )


@dataclass(frozen=True, kw_only=True)
class RestoreRequest(OfApplication, IntoRepository, Staged, Budgeted, Reading, Planned):
    """A request to rebuild stores of one application from its changelogs."""

    start_from: str = field(
        default=CHEAPEST,
        metadata=declare(
            Text("FROM"),
            title="Start from",
            help="the base of the stores. cheapest: stores of the state directory are advanced unless they are "
            "replaced; others start from the newest sound snapshot of the repository, unless reading their "
            "changelogs is less work. none: whole changelogs are read. newest, or the id of a snapshot: that "
            "snapshot. directory: the stores of the state directory. Bases that cannot be used are reported with "
            "the reason",
            section=WHAT,
            option="--from",
            check=_check_start,
        ),
    )
    replace: bool = field(
        default=False,
        metadata=declare(
            Flag(),
            title="Replace existing stores",
            help="replace existing stores, which are kept until the new ones are verified, and are not used as bases; "
            "without it they are advanced to the end of their changelogs, or the directory is refused",
            section=WHERE,
        ),
    )
    owner: str | None = field(default=None, metadata=OWNER)
    versioned: VersionedStart = field(default=VersionedStart.HISTORY, metadata=VERSIONED)
    accept_cluster: str | None = field(
        default=None,
        metadata=declare(
            Text("ID"),
            title="Accept cluster",
            help="id of the Kafka cluster that the application has moved to: its stores take the place of those of the "
            "newest snapshot, although that is of another cluster",
            section=WHERE,
            otherwise="a repository with the snapshots of another cluster is refused",
        ),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.accept_cluster is not None and self.repository is None:
            raise missing_option(
                "A cluster is accepted, and there is no repository whose snapshots it would replace.",
                "Name the repository (--repository), or leave --accept-cluster out.",
                "repository",
            )
        if self.start_from == FROM_DIRECTORY and self.replace:
            raise options_conflict(
                "Stores that are advanced in the state directory cannot be replaced.",
                f"Give either {FROM_DIRECTORY} as start_from (--from) or replace (--replace), not both.",
                ["replace", "start_from"],
            )
        if self.start_from == FROM_DIRECTORY and not self.state_dir:
            raise missing_option("There is no state directory to advance.", OfApplication.lacks_state_dir, "state_dir")

    lacks_state_dir: ClassVar[str] = (
        "Give Kafka Streams' state.dir as state_dir (--state-dir), or a repository (--repository), or both."
    )

    @property
    def needs_state_dir(self) -> bool:
        """Whether there is no repository to publish to instead."""
        return self.repository is None


@dataclass(frozen=True, kw_only=True)
class AdvanceRequest(OfApplication, Staged, Budgeted, Reading, Planned):
    """A request to bring the stores of a state directory to the end of their changelogs."""

    state_dir: str = field(
        default="",
        metadata=declare(
            FilePath(where="on the machine where the Spark driver runs"),
            title="State directory",
            help="the application's state.dir",
            option_required=True,
        ),
    )
    owner: str | None = field(default=None, metadata=OWNER)

    def restore(self) -> RestoreRequest:
        """The equivalent restore, which has all fields of an advance."""
        return RestoreRequest(**{one.name: getattr(self, one.name) for one in fields(self)}, start_from=FROM_DIRECTORY)
