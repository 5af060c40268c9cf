"""What a fetch is asked for."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field

from statecore.errors import Invalid
from statecore.jobs.field_types import Choice, Flag, Size, Text, Whole
from statecore.jobs.fields import Request, declare
from statecore.jobs.instance_share import INSTANCE, Instance
from statecore.jobs.restore.request import (
    APPLICATION_ID,
    DEFAULT_MEMORY_BUDGET,
    LIMITS,
    OWNER,
    STATE_DIR,
    WHAT,
    WHERE,
    check_memory_budget,
    check_repository,
    check_request_id,
    optional_spec,
)
from statecore.jobs.task_names import check_instance, only_tasks
from statecore.jobs.versioned_start import VersionedStart
from statecore.repository.layout import NEWEST

CHECKS = "Live topics"


def _check_processes(_: str, count: int) -> None:
    if count < 1:
        raise Invalid(
            f"{count} processes do no work.",
            code="processes-invalid",
            action="Give at least one, or leave the number out.",
        )


@dataclass(frozen=True, kw_only=True)
class FetchRequest(Request):
    """A request to bring stores of an application from a repository into a state directory."""

    repository: str = field(
        metadata=declare(
            Text("URL"),
            title="Repository",
            help="where the snapshots are: s3://bucket/prefix, or file:///path",
            check=check_repository,
        ),
    )
    application_id: str = field(
        metadata=APPLICATION_ID,
    )
    state_dir: str = field(
        metadata=STATE_DIR,
    )
    tasks: tuple[str, ...] = field(
        default=(),
        metadata=only_tasks("every task"),
    )
    instance: str | None = field(
        default=None,
        metadata=declare(
            Text("I/N", pattern=INSTANCE.pattern),
            title="Instance",
            help="only the share of instance I of N, counted from 0 as a StatefulSet does: tasks whose subtopology and "
            "partition, added up, leave I when they are divided by N; and the global stores, which every instance has",
            section=WHAT,
            check=check_instance,
        ),
    )
    snapshot: str = field(
        default=NEWEST,
        metadata=declare(
            Text("ID"),
            title="Snapshot",
            help="this snapshot and no other; newest is the newest that is whole and fits",
            section=WHAT,
        ),
    )
    plan_only: bool = field(
        default=False,
        metadata=declare(
            Flag(),
            title="Only plan",
            help="show what would be fetched; nothing is changed",
            section=WHAT,
            option="--plan",
        ),
    )
    request_id: str = field(
        default_factory=lambda: uuid.uuid4().hex,
        metadata=declare(
            Text("ID"),
            title="Request id",
            help="name of this request; a retry under it takes what it has placed already for done, with --replace too",
            section=WHAT,
            otherwise="a new one",
            check=check_request_id,
        ),
    )
    replace: bool = field(
        default=False,
        metadata=declare(
            Flag(),
            title="Replace what is there",
            help="replace tasks that the directory has already; without it they are kept as they are",
            section=WHERE,
        ),
    )
    owner: str | None = field(
        default=None,
        metadata=OWNER,
    )
    versioned: VersionedStart = field(
        default=VersionedStart.HISTORY,
        metadata=declare(
            Choice(VersionedStart),
            title="Versioned stores",
            help="what versioned stores find when the application starts. history: queries of the past answer, because "
            "Kafka Streams restores these stores itself, and they are placed empty. latest: nothing is restored, and "
            "queries of the past find only what is written from then on",
            section=WHERE,
        ),
    )
    spec_path: str | None = field(
        default=None,
        metadata=optional_spec(
            help="the application's stores.yaml: says where the brokers are and how they are reached, and which stores "
            "there are now",
            section=CHECKS,
            otherwise="the stores as the snapshot declares them, and no look at the topics",
        ),
    )
    bootstrap_servers: str | None = field(
        default=None,
        metadata=declare(
            Text("HOST:PORT"),
            title="Brokers",
            help="brokers whose topics the offsets are compared with before anything is placed",
            section=CHECKS,
            otherwise="those of the spec",
        ),
    )
    count: bool = field(
        default=False,
        metadata=declare(
            Flag(),
            title="Count",
            help="read all rows of stores of which nobody has yet, to say how many there are and their digest; without "
            "it that is done of small ones alone",
            section=CHECKS,
        ),
    )
    memory_budget: int = field(
        default=DEFAULT_MEMORY_BUDGET,
        metadata=declare(
            Size(),
            title="Memory of a process",
            help="memory for the records that one process holds",
            section=LIMITS,
            check=check_memory_budget,
        ),
    )
    processes: int | None = field(
        default=None,
        metadata=declare(
            Whole(words="a number of processes"),
            title="Processes",
            help="how many processes build stores",
            section=LIMITS,
            otherwise="one a core, and none but this one for little",
            check=_check_processes,
        ),
    )

    def __post_init__(self) -> None:
        """Look at every value. Raises ``Invalid``."""
        super().__post_init__()
        if self.tasks and self.instance is not None:
            raise Invalid(
                "Both tasks and the share of an instance were asked for.",
                code="options-conflict",
                action="Give --task or --instance.",
                options=["instance", "tasks"],
            )

    def wants(self, task: str) -> bool:
        """Whether a task is asked for."""
        if self.tasks:
            return task in self.tasks
        return self.instance is None or Instance.parse(self.instance).has(task)
