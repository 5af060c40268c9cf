"""Fields of a diagnosis of state directories, which a request of a repair has, too."""

from __future__ import annotations

from dataclasses import dataclass, field

from statecore.jobs.fields.catalog import (
    LIMITS,
    PATIENCE,
    STATE_DIR,
    WHAT,
    TargetRelease,
    brokers,
    check_wait,
    only_stores,
    optional_application_id,
    optional_spec,
    without_brokers,
)
from statecore.jobs.fields.declaration import Request, declare
from statecore.jobs.fields.tasks import only_tasks
from statecore.jobs.fields.types import Choice, Duration, Flag, Seconds
from statecore.spec.model import ProcessingGuarantee

BROKERS = "Brokers"


@dataclass(frozen=True, kw_only=True)
class OfDiagnosis(Request):
    """What is diagnosed, and how thoroughly."""

    state_dir: str = field(metadata=STATE_DIR)
    application_id: str | None = field(
        default=None,
        metadata=optional_application_id(
            "only this application, by Kafka Streams' application.id",
            "that of the spec; without one every application in the directory",
        ),
    )
    spec_path: str | None = field(
        default=None,
        metadata=optional_spec(
            help="the application's stores.yaml, which the directory is compared with",
            otherwise="only the directory itself is checked",
        ),
    )
    processing_guarantee: ProcessingGuarantee | None = field(
        default=None,
        metadata=declare(
            Choice(ProcessingGuarantee),
            title="Processing guarantee",
            help="the application's processing.guarantee",
            otherwise="that of the spec; without one findings have the worse severity of both, and a repair does what "
            "is right under both",
        ),
    )
    tasks: tuple[str, ...] = field(default=(), metadata=only_tasks("every task, and the global stores"))
    stores: tuple[str, ...] = field(default=(), metadata=only_stores("every store"))
    scan: bool = field(
        default=False,
        metadata=declare(
            Flag(),
            title="Scan",
            help="read every row and verify its checksum; otherwise databases are only opened",
            section=WHAT,
        ),
    )
    release: TargetRelease | None = field(
        default=None,
        metadata=declare(
            Choice(TargetRelease),
            title="Target release",
            help="the release of Kafka Streams that will open the directory",
            section=WHAT,
            otherwise="the newest",
            option="--to",
        ),
    )
    cleanup_max_age_ms: int | None = field(
        default=None,
        metadata=declare(
            Duration(),
            title="Greatest age",
            help="the application's state.cleanup.dir.max.age.ms, such as 7d, if set: directories that it would "
            "delete are reported, and a repair sets their modification time to now",
            section=WHAT,
            otherwise="not set",
            option="--cleanup-max-age",
        ),
    )
    bootstrap_servers: str | None = field(
        default=None,
        metadata=brokers(
            "brokers whose topics the offsets are compared with",
            section=BROKERS,
            otherwise="those of the spec; without one no brokers are asked",
        ),
    )
    offline: bool = field(
        default=False,
        metadata=without_brokers("do not compare offsets with the topics of the brokers", section=BROKERS),
    )
    timeout: float = field(default=30.0, metadata=PATIENCE)
    compare_time: float = field(
        default=60.0,
        metadata=declare(
            Seconds(),
            title="Time to compare",
            help="how long rows of an application's stores are compared with the logs; stores that are left are named",
            section=LIMITS,
            in_form=False,
            check=check_wait,
        ),
    )
