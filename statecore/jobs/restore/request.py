"""What a restore is asked for: one frozen value, made by the command line, by Airflow, or by a test.

What other jobs will be asked for as well stands in groups of fields; a job's request is made of those that concern it.
Each field is declared once (:mod:`statecore.jobs.fields`), and its ``help`` is what documents it.
"""

from __future__ import annotations

import math
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

from statecore.errors import Invalid
from statecore.jobs.field_types import Choice, Document, FilePath, Flag, Seconds, Several, Size, Text, Whole
from statecore.jobs.fields import Request, declare
from statecore.jobs.versioned_start import VersionedStart

DEFAULT_MEMORY_BUDGET = 512 * 1024 * 1024

_LONGEST_PATIENCE = 2_000_000.0
"""Seconds; the milliseconds of ``poll`` are an ``int``, which ends at 24 days."""

WHAT = "What to do"
WHERE = "Where to"
LIMITS = "Limits"


def check_repository(_: str, url: str) -> None:
    """Refuse what is no URL of a repository."""
    parts = urlsplit(url)
    if "@" in parts.netloc:
        raise Invalid(
            "The URL of the repository holds credentials, which reports and logs would show.",
            code="credentials-in-url",
            action="Take them out; every machine finds them in its environment, a profile, or by its role.",
        )
    if parts.scheme not in ("s3", "file"):
        raise Invalid(
            f"{url!a} names no repository.",
            code="repository-url-invalid",
            action="Give s3://bucket/prefix, or file:///path of a directory that all machines share.",
        )


def _check_partitions(_: str, partitions: tuple[int, ...]) -> None:
    negative = [number for number in partitions if number < 0]
    if negative:
        raise Invalid(
            f"{negative[0]} is the number of no partition.", code="partition-invalid", action="Count partitions from 0."
        )


def check_memory_budget(_: str, size: int) -> None:
    """Refuse what holds nothing."""
    if size < 1024 * 1024:
        raise Invalid(
            f"A memory budget of {size} bytes is too small to hold one batch of records.",
            code="memory-budget-invalid",
            action="Give at least 1 MiB, or leave it to its default.",
        )


def _check_wait(name: str, seconds: float) -> None:
    if not 0 <= seconds < math.inf:
        raise Invalid(
            f"One cannot wait {seconds:g} s ({name}).",
            code="duration-invalid",
            action="Give a finite number, at least 0.",
            parameter=name,
        )


def check_patience(name: str, seconds: float) -> None:
    """Refuse a time that nobody can wait for a socket."""
    if not 0 < seconds < math.inf:
        raise Invalid(
            f"One cannot wait {seconds:g} s ({name}).",
            code="duration-invalid",
            action="Give a finite number, more than 0.",
            parameter=name,
        )
    if seconds > _LONGEST_PATIENCE:
        raise Invalid(
            f"{seconds:g} s ({name}) are longer than a system can wait for a socket.",
            code="duration-invalid",
            action=f"Give at most {_LONGEST_PATIENCE:g} s.",
            parameter=name,
        )


def check_request_id(_: str, request_id: str) -> None:
    """Refuse an empty name."""
    if not request_id:
        raise Invalid("The request id is empty.", code="request-id-invalid", action="Give a name, or leave it out.")


def check_state_dir(_: str, path: str) -> None:
    """Refuse an empty path."""
    if not path:
        raise Invalid(
            "No state directory was given.",
            code="option-missing",
            action="Give Kafka Streams' state.dir as state_dir.",
            option="state_dir",
        )


APPLICATION_ID = declare(Text("ID"), title="Application id", help="Kafka Streams' application.id")
"""What is said of ``application_id``, where no spec says it."""

STATE_DIR = declare(
    FilePath(where="on the machine where the application runs"),
    title="State directory",
    help="the application's state.dir",
    check=check_state_dir,
)
"""What is said of ``state_dir``, where a job works on the application's own machine."""

APPROVED = declare(
    Text("ID"),
    title="Approved plan",
    help="the id of the plan that was looked at; another one is not applied, because the directory has changed",
    section=WHAT,
    otherwise="whatever the plan is now",
)
"""What is said of ``approved``, wherever a plan is looked at before it is applied."""

APPLY = declare(
    Flag(),
    title="Apply",
    help="do it; without it the plan is shown, and nothing is changed",
    section=WHAT,
)
"""What is said of ``apply``, wherever a plan is shown first."""

REQUEST_ID = declare(
    Text("ID"),
    title="Request id",
    help="name of this request, in reports; a retry under it goes on with what it had rebuilt",
    section=WHAT,
    otherwise="a new one",
    in_form=False,
    check=check_request_id,
)
"""What is said of ``request_id``, wherever a retry looks anew at what is left."""

OWNER = declare(
    Text("USER[:GROUP]", pattern="^[^:\\s]+(:[^:\\s]+)?$"),
    title="Owner",
    help="user or user:group, by name or number, that the placed files will belong to",
    section=WHERE,
    otherwise="the owner of the directory that is there",
)
"""What is said of ``owner``, wherever files are placed."""

PATIENCE = declare(
    Seconds(more_than_zero=True),
    title="Timeout of brokers",
    help="how long a broker may make no progress before it counts as unreachable",
    section=LIMITS,
    in_form=False,
    check=check_patience,
)
"""What is said of ``timeout``, wherever brokers are asked."""

TRANSACTION_WAIT = declare(
    Seconds(),
    title="Wait for open transactions",
    help="how long to wait, under exactly-once, for an open transaction at the end of a changelog",
    section=LIMITS,
    check=_check_wait,
)
"""What is said of ``transaction_wait``, wherever changelogs are read."""

CHEAPEST, NOTHING, LATEST, HERE = "cheapest", "none", "latest", "directory"
"""What a restore may be put upon, besides the id of a snapshot."""

_START = re.compile(r"cheapest|none|latest|directory|[0-9]{8}T[0-9]{6}Z-[0-9a-f]+")


def _check_start(_: str, start: str) -> None:
    if not _START.fullmatch(start):
        raise Invalid(
            f"A restore is not put upon {start!a}.",
            code="start-from-invalid",
            action=f"Give {CHEAPEST}, {NOTHING}, {LATEST} or {HERE}, or the id of a snapshot (statecore snapshots).",
        )


VERSIONED = declare(
    Choice(VersionedStart),
    title="Versioned stores",
    help="what versioned stores find when the application starts. history: queries of the past answer, because "
    "Kafka Streams restores these stores itself, and nothing of them is read here. latest: nothing is "
    "restored, and queries of the past find only what is written from then on",
    section=WHERE,
)
"""What is said of ``versioned``, wherever stores are made of changelogs."""


def optional_spec(help: str, otherwise: str, section: str | None = None) -> Mapping[str, Any]:
    """What is said of ``spec_path``, where a job can do without.

    Args:
        help: what it says to the job.
        otherwise: what holds where there is none.
        section: the heading that it stands under; ``None`` for the top.
    """
    return declare(
        FilePath("FILE"), title="Spec path", help=help, section=section, otherwise=otherwise, option="--spec"
    )


def only_stores(otherwise: str) -> Mapping[str, Any]:
    """What is said of ``stores``.

    Args:
        otherwise: which stores it is where none is named.
    """
    return declare(
        Several(Text("NAME")),
        title="Stores",
        help="only these stores",
        section=WHAT,
        otherwise=otherwise,
        option="--store",
    )


@dataclass(frozen=True, kw_only=True)
class OfSpec(Request):
    """An application, as it is declared."""

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
    spec: Mapping[str, Any] | None = field(
        default=None,
        metadata=declare(
            Document(),
            title="Spec",
            help="what stores.yaml would say, in place of its path",
            on_command_line=False,
            in_form=False,
        ),
    )

    def __post_init__(self) -> None:
        """Look at every value. Raises ``Invalid``."""
        if (self.spec_path is None) == (self.spec is None):
            raise Invalid(
                "A job takes either the path of a spec or the spec itself.",
                code="options-conflict",
                action="Give exactly one of spec_path and spec.",
                options=["spec", "spec_path"],
            )
        super().__post_init__()

    @property
    def spec_source(self) -> str:
        """Where the spec comes from, for messages."""
        return str(Path(self.spec_path)) if self.spec_path is not None else "<spec of the request>"


@dataclass(frozen=True, kw_only=True)
class InStateDirectory(Request):
    """Where the stores lie."""

    state_dir: str = field(
        default="",
        metadata=declare(
            FilePath(where="on the machine where the Spark driver runs"),
            title="State directory",
            help="the application's state.dir",
            otherwise="none: nothing is placed",
        ),
    )


@dataclass(frozen=True, kw_only=True)
class Selected(Request):
    """The stores that are meant."""

    stores: tuple[str, ...] = field(
        default=(),
        metadata=only_stores("every store of the spec"),
    )
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
    """The stores of one application that are meant, and where they lie."""

    def __post_init__(self) -> None:
        """Look at every value. Raises ``Invalid``."""
        super().__post_init__()
        if not self.state_dir and self.needs_state_dir:
            raise Invalid(
                "No state directory was given.", code="option-missing", action=self.lacks_state_dir, option="state_dir"
            )

    lacks_state_dir: ClassVar[str] = "Give Kafka Streams' state.dir as state_dir (--state-dir)."
    """What to do where none was given and one is needed."""

    @property
    def needs_state_dir(self) -> bool:
        """Whether the job cannot do without a state directory."""
        return True


@dataclass(frozen=True, kw_only=True)
class Budgeted(Request):
    """Records are held by tasks of an engine."""

    memory_budget: int = field(
        default=DEFAULT_MEMORY_BUDGET,
        metadata=declare(
            Size(),
            title="Memory of a task",
            help="memory for the records of one task; what it does not hold lies on disk meanwhile",
            section=LIMITS,
            check=check_memory_budget,
        ),
    )


@dataclass(frozen=True, kw_only=True)
class Staged(Request):
    """Runs and images are built by tasks of an engine, before anything of them is placed."""

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
    """Changelogs are read from their brokers."""

    transaction_wait: float = field(default=30.0, metadata=TRANSACTION_WAIT)
    timeout: float = field(
        default=30.0,
        metadata=PATIENCE,
    )


@dataclass(frozen=True, kw_only=True)
class Planned(Request):
    """A plan is frozen before anything is read, and found again by the name of the request."""

    plan_only: bool = field(
        default=False,
        metadata=declare(
            Flag(),
            title="Only plan",
            help="show what would be read and which offsets the stores would get; nothing is changed",
            section=WHAT,
            option="--plan",
        ),
    )
    request_id: str = field(
        default_factory=lambda: uuid.uuid4().hex,
        metadata=declare(
            Text("ID"),
            title="Request id",
            help="name of this request; a retry under it finds the frozen plan and finishes its work",
            otherwise="a new one",
            in_form=False,
            check=check_request_id,
        ),
    )


@dataclass(frozen=True, kw_only=True)
class Published(Request):
    """What is made may be published into a repository."""

    repository: str | None = field(
        default=None,
        metadata=declare(
            Text("URL"),
            title="Repository",
            help="publish a snapshot into the repository at s3://bucket/prefix or file:///path, from which any "
            "instance can start",
            section=WHERE,
            otherwise="nothing is published",
            check=check_repository,
        ),
    )


@dataclass(frozen=True, kw_only=True)
class RestoreRequest(OfApplication, Published, Staged, Budgeted, Reading, Planned):
    """A request to rebuild stores of one application from its changelogs."""

    start_from: str = field(
        default=CHEAPEST,
        metadata=declare(
            Text("FROM"),
            title="Start from",
            help="what the stores are made upon. cheapest: the stores of the state directory, the newest snapshot of "
            "the repository, or nothing, whichever is sound and takes the least. none: all of the changelogs is read. "
            "latest, or the id of a snapshot: that snapshot. directory: the stores of the state directory. What "
            "cannot be used is said with the reason",
            section=WHAT,
            option="--from",
            check=_check_start,
        ),
    )
    replace: bool = field(
        default=False,
        metadata=declare(
            Flag(),
            title="Replace what is there",
            help="replace stores that exist already, which are moved aside until the new are verified, and are not "
            "built upon; without it they are brought to the end of their changelogs, or the directory is refused",
            section=WHERE,
        ),
    )
    owner: str | None = field(
        default=None,
        metadata=OWNER,
    )
    versioned: VersionedStart = field(default=VersionedStart.HISTORY, metadata=VERSIONED)

    def __post_init__(self) -> None:
        """Look at every value. Raises ``Invalid``."""
        super().__post_init__()
        if self.start_from == HERE and self.replace:
            raise Invalid(
                "Stores that are advanced where they lie are not replaced.",
                code="options-conflict",
                action=f"Give {HERE} as start_from (--from) or replace (--replace), and not both.",
                options=["replace", "start_from"],
            )
        if self.start_from == HERE and not self.state_dir:
            raise Invalid(
                "There is no state directory to go on from.",
                code="option-missing",
                action=OfApplication.lacks_state_dir,
                option="state_dir",
            )

    lacks_state_dir: ClassVar[str] = (
        "Give Kafka Streams' state.dir as state_dir (--state-dir), or a repository (--repository), or both."
    )

    @property
    def needs_state_dir(self) -> bool:
        """Whether stores are restored nowhere else."""
        return self.repository is None
