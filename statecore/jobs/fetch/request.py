"""The request of a fetch."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field

from statecore.errors import Invalid, options_conflict
from statecore.jobs.fields.catalog import (
    APPLICATION_ID,
    DEFAULT_MEMORY_BUDGET,
    LIMITS,
    OWNER,
    PATIENCE,
    REPOSITORY_HELP,
    STATE_DIR,
    WHAT,
    WHERE,
    VersionedStart,
    brokers,
    check_memory_budget,
    check_repository,
    named_request,
    only_plan,
    optional_spec,
    repository_url,
)
from statecore.jobs.fields.declaration import Request, declare
from statecore.jobs.fields.tasks import TASK_SHARE, TaskShare, check_instance, only_tasks
from statecore.jobs.fields.types import Choice, Duration, Flag, Several, Size, Text, Whole
from statecore.repository.layout import NEWEST

CHECKS = "Live topics"


def _check_replicas(name: str, urls: tuple[str, ...]) -> None:
    for url in urls:
        check_repository(name, url)


def _check_processes(_: str, count: int) -> None:
    if count < 1:
        raise Invalid(
            f"{count} is no valid number of processes.",
            code="processes-invalid",
            action="Give at least one, or leave the number out.",
        )


@dataclass(frozen=True, kw_only=True)
class FetchRequest(Request):
    """A request to place stores of a repository into a state directory."""

    repository: str = field(metadata=repository_url(REPOSITORY_HELP))
    replicas: tuple[str, ...] = field(
        default=(),
        metadata=declare(
            Several(Text("URL")),
            title="Replicas",
            help="another repository of the application, from which is fetched if the first cannot be reached, is "
            "damaged, or has an older snapshot",
            option="--replica",
            check=_check_replicas,
        ),
    )
    application_id: str = field(metadata=APPLICATION_ID)
    state_dir: str = field(metadata=STATE_DIR)
    tasks: tuple[str, ...] = field(default=(), metadata=only_tasks("every task"))
    instance: str | None = field(
        default=None,
        metadata=declare(
            Text("I/N", pattern=TASK_SHARE.pattern),
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
            help="only this snapshot; newest is the newest one that is complete and fits",
            section=WHAT,
        ),
    )
    plan_only: bool = field(default=False, metadata=only_plan("show what would be fetched; nothing is changed"))
    request_id: str = field(
        default_factory=lambda: uuid.uuid4().hex,
        metadata=named_request(
            "name of this request; a retry under the same name treats what it placed as done, also with --replace",
            in_form=True,
        ),
    )
    replace: bool = field(
        default=False,
        metadata=declare(
            Flag(),
            title="Replace existing tasks",
            help="replace tasks that the directory already has; otherwise they are kept",
            section=WHERE,
        ),
    )
    owner: str | None = field(default=None, metadata=OWNER)
    versioned: VersionedStart = field(
        default=VersionedStart.HISTORY,
        metadata=declare(
            Choice(VersionedStart),
            title="Versioned stores",
            help="how versioned stores are placed. history: empty, so that Kafka Streams restores them and queries of "
            "the past work. latest: with their rows, not restored; queries of the past find only what is written from "
            "then on",
            section=WHERE,
        ),
    )
    spec_path: str | None = field(
        default=None,
        metadata=optional_spec(
            help="the application's stores.yaml, with the brokers, their client settings, and the current stores",
            section=CHECKS,
            otherwise="the stores as the snapshot declares them, and no check of the topics",
        ),
    )
    bootstrap_servers: str | None = field(
        default=None,
        metadata=brokers(
            "brokers whose topics the offsets are compared with before anything is placed",
            section=CHECKS,
            otherwise="those of the spec",
        ),
    )
    max_age: int | None = field(
        default=None,
        metadata=declare(
            Duration(),
            title="Maximal age",
            help="refuse a snapshot of which a store is older. Its tail has to be read before deletes in it are "
            "compacted away, and without brokers nothing else shows that",
            section=CHECKS,
            otherwise="with brokers as they say; without them the delete.retention.ms that the snapshot recorded",
        ),
    )
    count: bool = field(
        default=False,
        metadata=declare(
            Flag(),
            title="Count",
            help="read all rows of stores without a known digest, to report number and digest; otherwise only small "
            "ones are read, and none of a backup",
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
            otherwise="one per core; none besides this one for small fetches",
            check=_check_processes,
        ),
    )
    timeout: float = field(default=30.0, metadata=PATIENCE)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.tasks and self.instance is not None:
            raise options_conflict(
                "Both tasks and the share of an instance are given.",
                "Give --task or --instance.",
                ["instance", "tasks"],
            )

    def wants(self, task: str) -> bool:
        if self.tasks:
            return task in self.tasks
        return self.instance is None or TaskShare.parse(self.instance).has(task)
