"""Settings of a site, from environment variables; reads neither Airflow's database nor the disk.

Dag files are parsed repeatedly, so their defaults must come neither from Airflow Variables nor from files. The
variables, but for ``STATECORE_SPARK_JOBS``, which the Dag files read themselves:

===============================  =================================================================================
variable                         meaning
===============================  =================================================================================
``STATECORE_SPECS``              default spec files of the Dags, absolute paths separated by ``:``
``STATECORE_STATE_DIR``          default ``state.dir`` of the applications
``STATECORE_STAGING_DIR``        default directory for runs and images under construction; else the state directory
``STATECORE_REPOSITORY``         default repository for snapshots
``STATECORE_SNAPSHOT_SCHEDULE``  schedule of ``snapshot_state``: a cron expression or a preset; default none
``STATECORE_PRUNE_SCHEDULE``     schedule of ``prune_snapshots``, likewise
``STATECORE_VERIFY_SCHEDULE``    schedule of ``verify_snapshots``, likewise
``STATECORE_CHECKPOINT_TICK``    how often ``checkpoint_stores`` looks for due applications, such as ``1m``; default
                                 never
``STATECORE_SPARK_FROM``         number of offsets in a checkpoint's tails from which Spark reads them, and not the
                                 worker
``STATECORE_REPORTS``            directory of the reports; default ``$AIRFLOW_HOME/statecore/reports``. Written by the
                                 tasks that run jobs, read by the API server for the UI page: one shared directory
``STATECORE_SPARK_CONN``         connection id of the Spark master; default ``spark_default``
``STATECORE_KAFKA_CONN``         connection id with the Kafka credentials of applications that have no connection of
                                 their own (``credentials.py``)
``STATECORE_AWS_CONN``           connection id, of type ``aws``, with the driver's credentials of the object store;
                                 default those of its machine
``STATECORE_JOBS_POOL``          pool of the tasks that may take long: restores, publications, changes of directories;
                                 default Airflow's own. It has to exist
===============================  =================================================================================

How Spark runs the jobs; the ``spark`` section of a spec takes precedence over these, and a run's form over both:

===============================  =================================================================================
variable                         meaning
===============================  =================================================================================
``STATECORE_SPARK_CONF``         Spark properties as a JSON object, ``{"spark.cores.max": "8"}``; no secrets
``STATECORE_EXECUTOR_PYTHON``    interpreter of a cluster's executors, a path on their hosts; it needs statecore
``STATECORE_EXECUTOR_MEMORY``    memory of an executor's JVM, such as ``2g``
``STATECORE_EXECUTOR_CORES``     cores of an executor: the number of its concurrent tasks
``STATECORE_EXECUTOR_ARCHIVES``  packed environments for the executors, ``<path>#<name>``, separated by commas
===============================  =================================================================================
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from statecore.errors import Invalid
from statecore.jobs.history.report_index import reports_directory
from statecore.spec.spark_settings import SparkSettings, parse_properties
from statecore.spec.units import DURATION_EXPECTED, parse_duration

DEFAULT_POOL = "default_pool"
"""Airflow's own pool, in which checkpoints run."""

CHECKPOINT_PRIORITY = 10
"""Priority weight of checkpoints: of the tasks that wait for a slot they come first, for their interval passes."""

DECIDE_PRIORITY = 20
"""Priority weight of ``decide``: a check of all applications comes before the checkpoint of one."""

MAPPED_AT_ONCE = 8
"""Mapped tasks of a Dag that run at once, where one has a task for each application: at a full hour several such Dags
begin, and fifty tasks each would take all slots of the executor (``core.parallelism``, 32 by default)."""

_LEAST_TICK_MS, _LONGEST_TICK_MS = 5_000, 3_600_000


@dataclass(frozen=True)
class Settings:
    """The site's settings.

    Attributes:
        state_dir: default state directory, or ``None`` if a run has to name it.
        staging_dir: default staging directory, or ``None`` for the state directory.
        spark_conn_id: connection of the Spark master.
        kafka_conn_id: Kafka credentials of applications without a connection of their own, or ``None``.
        snapshot_schedule: schedule of ``snapshot_state``, or ``None`` for no schedule.
        prune_schedule: schedule of ``prune_snapshots``, or ``None`` for no schedule.
        verify_schedule: schedule of ``verify_snapshots``, likewise.
        aws_conn_id: the driver's credentials of the object store, or ``None`` for those of its machine.
        checkpoint_tick_ms: interval in ms at which due checkpoints are looked for, or ``None`` for never.
        spark_from: number of offsets in a checkpoint's tails from which Spark reads them, or ``None`` for the job's
            default.
        jobs_pool: pool of tasks that may take long.
        spark: how Spark runs the jobs, unless spec or run override it.
    """

    specs: tuple[str, ...]
    state_dir: str | None
    staging_dir: str | None
    reports: Path
    spark_conn_id: str
    kafka_conn_id: str | None
    repository: str | None = None
    snapshot_schedule: str | None = None
    prune_schedule: str | None = None
    verify_schedule: str | None = None
    aws_conn_id: str | None = None
    checkpoint_tick_ms: int | None = None
    spark_from: int | None = None
    jobs_pool: str = DEFAULT_POOL
    spark: SparkSettings = field(default_factory=SparkSettings)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Settings:
        """The settings from environment variables; an empty one counts as unset. Raises ``Invalid``."""
        env = os.environ if environment is None else environment
        return cls(
            specs=tuple(path for path in env.get("STATECORE_SPECS", "").split(os.pathsep) if path),
            state_dir=env.get("STATECORE_STATE_DIR") or None,
            staging_dir=env.get("STATECORE_STAGING_DIR") or None,
            reports=reports_directory(env),
            spark_conn_id=env.get("STATECORE_SPARK_CONN") or "spark_default",
            kafka_conn_id=env.get("STATECORE_KAFKA_CONN") or None,
            repository=env.get("STATECORE_REPOSITORY") or None,
            snapshot_schedule=env.get("STATECORE_SNAPSHOT_SCHEDULE") or None,
            prune_schedule=env.get("STATECORE_PRUNE_SCHEDULE") or None,
            verify_schedule=env.get("STATECORE_VERIFY_SCHEDULE") or None,
            aws_conn_id=env.get("STATECORE_AWS_CONN") or None,
            checkpoint_tick_ms=_tick(env.get("STATECORE_CHECKPOINT_TICK", "")),
            spark_from=_offsets(env.get("STATECORE_SPARK_FROM", "")),
            jobs_pool=env.get("STATECORE_JOBS_POOL") or DEFAULT_POOL,
            spark=_spark(env),
        )

    def is_elsewhere(self, repository: object) -> bool:
        """Whether a run names another repository than the site's, of which the page and the metrics are."""
        return None not in (repository, self.repository) and _place_of(repository) != _place_of(self.repository)

    def check_schedule(self) -> None:
        """Check that scheduled snapshots have applications and a repository. Raises ``Invalid``."""
        if self.snapshot_schedule:
            self._check_defaults("STATECORE_SNAPSHOT_SCHEDULE")

    def check_prune_schedule(self) -> None:
        """Check that scheduled collections have a repository. Raises ``Invalid``."""
        if self.prune_schedule and not self.repository:
            raise _lacking("STATECORE_PRUNE_SCHEDULE", ["STATECORE_REPOSITORY"])

    def check_verify_schedule(self) -> None:
        """Check that scheduled verifications have a repository. Raises ``Invalid``."""
        if self.verify_schedule and not self.repository:
            raise _lacking("STATECORE_VERIFY_SCHEDULE", ["STATECORE_REPOSITORY"])

    def check_tick(self) -> None:
        """Check that scheduled checkpoints have applications and a repository. Raises ``Invalid``."""
        if self.checkpoint_tick_ms:
            self._check_defaults("STATECORE_CHECKPOINT_TICK")

    def _check_defaults(self, schedule: str) -> None:
        absent = [
            name
            for name, value in (("STATECORE_SPECS", self.specs), ("STATECORE_REPOSITORY", self.repository))
            if not value
        ]
        if absent:
            raise _lacking(schedule, absent)


def _lacking(schedule: str, absent: list[str]) -> Invalid:
    return Invalid(
        f"{schedule} is set without {' and '.join(absent)}, and a scheduled run has no other parameters.",
        code="setting-missing",
        action=f"Set {' and '.join(absent)} for all components of Airflow, or unset {schedule}.",
        settings=absent,
    )


def _place_of(repository: object) -> str:
    """Bucket and prefix, or directory, of a repository's URL: options say how it is reached."""
    return str(repository).partition("?")[0].removeprefix("file://").rstrip("/")


def _tick(text: str) -> int | None:
    if not text:
        return None
    found = parse_duration(text)
    if found is None or not _LEAST_TICK_MS <= found <= _LONGEST_TICK_MS:
        raise Invalid(
            f"STATECORE_CHECKPOINT_TICK is {text!r}; expected {DURATION_EXPECTED}, from 5s to 1h.",
            code="setting-invalid",
            action="Correct it for all components of Airflow; 1m is usual. The interval of each application is in its "
            "spec (statestore.checkpoint.interval.ms).",
            setting="STATECORE_CHECKPOINT_TICK",
        )
    return found


def _offsets(text: str) -> int | None:
    if not text:
        return None
    if not text.isdecimal():
        raise Invalid(
            f"STATECORE_SPARK_FROM is {text!r}, which is not a number of offsets.",
            code="setting-invalid",
            action="Write a number such as 2000000, for all components of Airflow, or unset it.",
            setting="STATECORE_SPARK_FROM",
        )
    return int(text)


def _spark(env: Mapping[str, str]) -> SparkSettings:
    setting = "STATECORE_SPARK_CONF"
    try:
        conf = json.loads(env.get(setting) or "{}")
        lines = [f"{name}={value}" for name, value in conf.items()]
        setting = "STATECORE_EXECUTOR_CORES"
        cores = int(env.get(setting) or 0)
    except (ValueError, AttributeError) as cause:
        raise Invalid(
            f"A Spark setting cannot be parsed: {cause}.",
            code="setting-invalid",
            action='Write STATECORE_SPARK_CONF as one JSON object, such as {"spark.cores.max": "8"}, and '
            "STATECORE_EXECUTOR_CORES as a number.",
            setting=setting,
        ) from cause
    return SparkSettings(
        conf=parse_properties(lines),
        executor_python=env.get("STATECORE_EXECUTOR_PYTHON") or None,
        executor_memory=env.get("STATECORE_EXECUTOR_MEMORY") or None,
        executor_cores=cores or None,
        executor_archives=tuple(one for one in env.get("STATECORE_EXECUTOR_ARCHIVES", "").split(",") if one),
    )
