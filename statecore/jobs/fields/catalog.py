"""Catalog of request fields: what several jobs share is declared here once, and each job's request composes it.

Single fields are declarations; fields that belong together are groups (mixins). Dag files import this whenever they are
parsed, so it imports no more than :mod:`statecore.jobs.fields.declaration`.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar
from urllib.parse import urlsplit

from statecore.errors import Invalid, missing_option, options_conflict
from statecore.jobs.fields.declaration import Request, declare
from statecore.jobs.fields.types import Choice, Document, FilePath, Flag, Seconds, Several, Size, Text, Whole


class VersionedStart(StrEnum):
    """What a versioned store contains when the application starts.

    Kafka Streams 4.3.1 registers the segments of a versioned store only while it writes to them
    (``LogicalKeyValueSegments.openExisting`` does nothing). Without a restore by Kafka Streams only the latest values
    are found, and no history, although the rows are on disk.
    """

    HISTORY = "history"
    """Queries of the past work, because Kafka Streams restores the store itself: an empty database with offset -4 is
    placed. Not one with rows: a changelog replayed over rows whose segments are not registered changes them,
    and for some histories throws (``Timestamp is too large to be found in this segment``) at every start.
    """

    LATEST = "latest"
    """No record is restored; the application continues as after any clean restart: queries of the past work for what
    is written from then on, and late records find no predecessor.
    """


DEFAULT_MEMORY_BUDGET = 512 * 1024 * 1024

_LONGEST_PATIENCE = 2_000_000.0
"""Seconds; the milliseconds of ``poll`` are an ``int``, which ends at 24 days."""

WHAT = "What to do"
WHERE = "Target"
LIMITS = "Limits"


def check_repository(_: str, url: str) -> None:
    """Refuse a value that is not the URL of a repository."""
    parts = urlsplit(url)
    if "@" in parts.netloc:
        raise Invalid(
            "The URL of the repository contains credentials, which reports and logs would show.",
            code="credentials-in-url",
            action="Remove them; every machine finds them in its environment, a profile, or by its role.",
        )
    if parts.scheme not in ("s3", "file"):
        raise Invalid(
            f"{url!a} is not the URL of a repository.",
            code="repository-url-invalid",
            action="Give s3://bucket/prefix, or file:///path of a directory that all machines share.",
        )


def _check_partitions(_: str, partitions: tuple[int, ...]) -> None:
    negative = [number for number in partitions if number < 0]
    if negative:
        raise Invalid(
            f"{negative[0]} is not a partition number.", code="partition-invalid", action="Count partitions from 0."
        )


def check_memory_budget(_: str, size: int) -> None:
    """Refuse a budget that does not hold one batch."""
    if size < 1024 * 1024:
        raise Invalid(
            f"A memory budget of {size} bytes is too small to hold one batch of records.",
            code="memory-budget-invalid",
            action="Give at least 1 MiB, or leave it to its default.",
        )


def check_wait(name: str, seconds: float) -> None:
    """Refuse a time that is negative or without end."""
    if not 0 <= seconds < math.inf:
        raise Invalid(
            f"{seconds:g} s is not a valid time to wait ({name}).",
            code="duration-invalid",
            action="Give a finite number, at least 0.",
            parameter=name,
        )


def check_patience(name: str, seconds: float) -> None:
    """Refuse a timeout that a socket cannot wait for."""
    if not 0 < seconds < math.inf:
        raise Invalid(
            f"{seconds:g} s is not a valid time to wait ({name}).",
            code="duration-invalid",
            action="Give a finite number, more than 0.",
            parameter=name,
        )
    if seconds > _LONGEST_PATIENCE:
        raise Invalid(
            f"{seconds:g} s ({name}) is longer than a system can wait for a socket.",
            code="duration-invalid",
            action=f"Give at most {_LONGEST_PATIENCE:g} s.",
            parameter=name,
        )


def check_request_id(_: str, request_id: str) -> None:
    """Refuse an empty name."""
    if not request_id:
        raise Invalid("The request id is empty.", code="request-id-invalid", action="Give a name, or leave it out.")


def check_state_dir(name: str, path: str) -> None:
    """Refuse an empty path."""
    if not path:
        raise missing_option("No state directory was given.", f"Give Kafka Streams' state.dir as {name}.", name)


APPLICATION_ID = declare(Text("ID"), title="Application id", help="Kafka Streams' application.id")
"""Declaration of ``application_id`` for jobs without a spec."""

STATE_DIR = declare(
    FilePath(where="on the machine where the application runs"),
    title="State directory",
    help="the application's state.dir",
    check=check_state_dir,
)
"""Declaration of ``state_dir`` for jobs on the application's own machine."""

APPROVED = declare(
    Text("ID"),
    title="Approved plan",
    help="the id of the plan that was reviewed; another one is not applied, because the directory has changed",
    section=WHAT,
    otherwise="whatever the plan is now",
)
"""Declaration of ``approved`` for jobs whose plan is reviewed before it is applied."""


def to_apply(what: str = "do it") -> Mapping[str, Any]:
    """Declaration of ``apply`` for jobs that show a plan first."""
    help = f"{what}; without it the plan is shown, and nothing is changed"
    return declare(Flag(), title="Apply", help=help, section=WHAT)


def without_brokers(help: str, *, section: str) -> Mapping[str, Any]:
    return declare(Flag(), title="Do not ask the brokers", help=help, section=section)


INLINE_SPEC = declare(
    Document(),
    title="Spec",
    help="the content of stores.yaml, instead of its path",
    on_command_line=False,
    in_form=False,
)
"""Declaration of ``spec``."""


def named_request(help: str, *, section: str | None = WHAT, in_form: bool = False) -> Mapping[str, Any]:
    return declare(
        Text("ID"),
        title="Request id",
        help=help,
        section=section,
        otherwise="a new one",
        in_form=in_form,
        check=check_request_id,
    )


REQUEST_ID = named_request("name of this request, in reports; a retry under it reuses finished work")
"""Declaration of ``request_id`` for jobs whose retry inspects the remaining work again."""


def only_plan(help: str) -> Mapping[str, Any]:
    return declare(Flag(), title="Plan only", help=help, section=WHAT, option="--plan")


OWNER = declare(
    Text("USER[:GROUP]", pattern="^[^:\\s]+(:[^:\\s]+)?$"),
    title="Owner",
    help="user or user:group, by name or number, that the placed files will belong to",
    section=WHERE,
    otherwise="the owner of the directory that is there",
)
"""Declaration of ``owner`` for jobs that place files."""

PATIENCE = declare(
    Seconds(more_than_zero=True),
    title="Timeout of brokers",
    help="how long a broker may make no progress before it counts as unreachable",
    section=LIMITS,
    in_form=False,
    check=check_patience,
)
"""Declaration of ``timeout`` for jobs that connect to brokers."""

TRANSACTION_WAIT = declare(
    Seconds(),
    title="Wait for open transactions",
    help="how long to wait, under exactly-once, for an open transaction at the end of a changelog",
    section=LIMITS,
    check=check_wait,
)
"""Declaration of ``transaction_wait`` for jobs that read changelogs."""

VERSIONED = declare(
    Choice(VersionedStart),
    title="Versioned stores",
    help="what versioned stores contain when the application starts. history: queries of the past work, because "
    "Kafka Streams restores these stores itself, and their changelogs are not read here. latest: nothing is "
    "restored, and queries of the past find only what is written from then on",
    section=WHERE,
)
"""Declaration of ``versioned`` for jobs that build stores from changelogs."""


def optional_spec(help: str, otherwise: str, section: str | None = None) -> Mapping[str, Any]:
    return declare(
        FilePath("FILE"), title="Spec path", help=help, section=section, otherwise=otherwise, option="--spec"
    )


def only_stores(otherwise: str) -> Mapping[str, Any]:
    """Declaration of ``stores``; ``otherwise`` says which stores are meant if none is named."""
    return declare(
        Several(Text("NAME")),
        title="Stores",
        help="only these stores",
        section=WHAT,
        otherwise=otherwise,
        option="--store",
    )


def repository_url(help: str, *, section: str | None = None, otherwise: str | None = None) -> Mapping[str, Any]:
    return declare(
        Text("URL"), title="Repository", help=help, section=section, otherwise=otherwise, check=check_repository
    )


REPOSITORY_HELP = "URL of the repository: s3://bucket/prefix, or file:///path"


def brokers(help: str, *, section: str, otherwise: str) -> Mapping[str, Any]:
    return declare(Text("HOST:PORT"), title="Brokers", help=help, section=section, otherwise=otherwise)


def optional_application_id(help: str, otherwise: str) -> Mapping[str, Any]:
    """Declaration of ``application_id`` for jobs that may have a spec instead."""
    return declare(Text("ID"), title="Application id", help=help, otherwise=otherwise)


class TargetRelease(StrEnum):
    """Release that opens a state directory next, by its name in :data:`statecore.formats.releases.RELEASES`."""

    V3_9 = "3.9"
    V4_2 = "4.2"
    V4_3 = "4.3"
    V4_4 = "4.4"


@dataclass(frozen=True, kw_only=True)
class OfSpec(Request):
    """The application's spec, by path or inline."""

    spec_path: str | None = field(
        default=None,
        metadata=declare(
            FilePath("FILE", where="as the worker sees it"),
            title="Spec path",
            help="the application's stores.yaml",
            option="--spec",
            option_required=True,
            in_form=False,  # a form takes several applications at once
        ),
    )
    spec: Mapping[str, Any] | None = field(default=None, metadata=INLINE_SPEC)

    def __post_init__(self) -> None:
        if (self.spec_path is None) == (self.spec is None):
            raise options_conflict(
                "A job takes either the path of a spec or the spec itself.",
                "Give exactly one of spec_path and spec.",
                ["spec", "spec_path"],
            )
        super().__post_init__()


@dataclass(frozen=True, kw_only=True)
class InStateDirectory(Request):
    """The state directory."""

    state_dir: str = field(
        default="",
        metadata=declare(
            FilePath(where="on the machine where the Spark driver runs"),
            title="State directory",
            help="the application's state.dir",
            otherwise="nothing is placed",
        ),
    )


@dataclass(frozen=True, kw_only=True)
class Selected(Request):
    """Selection of stores and partitions."""

    stores: tuple[str, ...] = field(default=(), metadata=only_stores("every store of the spec"))
    partitions: tuple[int, ...] = field(
        default=(),
        metadata=declare(
            Several(Whole(words="the number of a partition")),
            title="Partitions",
            help="only these partitions",
            section=WHAT,
            otherwise="every partition",
            option="--partition",
            check=_check_partitions,
        ),
    )


@dataclass(frozen=True, kw_only=True)
class OfApplication(OfSpec, InStateDirectory, Selected):
    """Stores of one application, in its state directory."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.state_dir and self.needs_state_dir:
            raise missing_option("No state directory was given.", self.lacks_state_dir, "state_dir")

    lacks_state_dir: ClassVar[str] = "Give Kafka Streams' state.dir as state_dir (--state-dir)."
    """What to do if a required one is missing."""

    @property
    def needs_state_dir(self) -> bool:
        """Whether the job requires a state directory."""
        return True


@dataclass(frozen=True, kw_only=True)
class Budgeted(Request):
    """Memory budget of an engine's tasks."""

    memory_budget: int = field(
        default=DEFAULT_MEMORY_BUDGET,
        metadata=declare(
            Size(),
            title="Memory of a task",
            help="memory for the records of one task; what exceeds it is spilled to disk",
            section=LIMITS,
            check=check_memory_budget,
        ),
    )


@dataclass(frozen=True, kw_only=True)
class Staged(Request):
    """Staging directory, where runs and images are built before they are placed."""

    staging_dir: str | None = field(
        default=None,
        metadata=declare(
            FilePath(where="that the Spark driver and all executors share"),
            title="Staging directory",
            help="where runs and images are built; best on the file system of the state directory, because from "
            "another one images are copied",
            section=WHERE,
            otherwise="in the state directory",
        ),
    )


@dataclass(frozen=True, kw_only=True)
class Reading(Request):
    """Limits for reading changelogs."""

    transaction_wait: float = field(default=30.0, metadata=TRANSACTION_WAIT)
    timeout: float = field(default=30.0, metadata=PATIENCE)


@dataclass(frozen=True, kw_only=True)
class Planned(Request):
    """A plan is frozen before anything is read, and found again by the request id."""

    plan_only: bool = field(
        default=False,
        metadata=only_plan("show what would be read and which offsets the stores would get; nothing is changed"),
    )
    request_id: str = field(
        default_factory=lambda: uuid.uuid4().hex,
        metadata=named_request(
            "name of this request; a retry under it finds the frozen plan and finishes its work", section=None
        ),
    )


@dataclass(frozen=True, kw_only=True)
class IntoRepository(Request):
    """Repository to publish into."""

    repository: str | None = field(
        default=None,
        metadata=repository_url(
            "publish a snapshot into the repository at s3://bucket/prefix or file:///path, from which any instance "
            "can start",
            section=WHERE,
            otherwise="nothing is published",
        ),
    )
