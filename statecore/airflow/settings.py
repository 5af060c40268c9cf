"""What a site sets once, by environment variables: read without touching Airflow's database or the disk.

A DAG file is parsed again and again, so its defaults may come neither from Airflow Variables nor from files. The
variables:

===============================  =================================================================================
variable                         meaning
===============================  =================================================================================
``STATECORE_SPECS``              default spec files of the DAGs, absolute paths separated by ``:``
``STATECORE_STATE_DIR``          default ``state.dir`` of the applications
``STATECORE_STAGING_DIR``        default directory in which runs and images are built; else in the state directory
``STATECORE_REPOSITORY``         default repository into which snapshots are published
``STATECORE_SNAPSHOT_SCHEDULE``  when ``snapshot_state`` runs by itself: a cron expression or a preset; default never
``STATECORE_CHECKPOINT_TICK``    how often ``checkpoint_stores`` looks which applications are due, such as ``1m``;
                                 default never by itself
``STATECORE_SPARK_FROM``         offsets of a checkpoint's tails from which Spark reads them, and not the worker itself
``STATECORE_REPORTS``            directory of the reports; default ``$AIRFLOW_HOME/statecore/reports``. The task that
                                 runs Spark writes it, the API server reads it for the UI page: one shared directory
``STATECORE_SPARK_CONN``         connection id of the Spark master; default ``spark_default``
``STATECORE_KAFKA_CONN``         connection id with the Kafka credentials of applications that have no connection of
                                 their own (``credentials.py``)
``STATECORE_AWS_CONN``           connection id, of type ``aws``, with the driver's credentials of the object store; else
                                 they are found on its machine
===============================  =================================================================================

How Spark runs the jobs; the ``spark`` section of a spec wins over these, and a run's form over both:

===============================  =================================================================================
variable                         meaning
===============================  =================================================================================
``STATECORE_SPARK_CONF``         Spark properties as a JSON object, ``{"spark.cores.max": "8"}``; no secrets
``STATECORE_EXECUTOR_PYTHON``    interpreter of a cluster's executors, a path on their hosts; it needs statecore
``STATECORE_EXECUTOR_MEMORY``    memory of an executor's JVM, such as ``2g``
``STATECORE_EXECUTOR_CORES``     cores of an executor, and so its tasks at once
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
from statecore.spec.duration import EXPECTED, parse_duration
from statecore.spec.spark_settings import SparkSettings, properties

_LEAST_TICK_MS, _LONGEST_TICK_MS = 5_000, 3_600_000


@dataclass(frozen=True)
class Settings:
    """The site's settings.

    Attributes:
        specs: default spec files.
        state_dir: default state directory, or ``None`` where a run has to name it.
        staging_dir: default staging directory, or ``None`` for the state directory.
        repository: default repository, or ``None`` for none.
        snapshot_schedule: when snapshots are published by themselves, or ``None`` for never.
        reports: directory of the job reports.
        spark_conn_id: connection of the Spark master.
        kafka_conn_id: connection with the Kafka credentials of applications that have none of their own, or ``None``.
        aws_conn_id: connection with the driver's credentials of the object store, or ``None`` for its machine's own.
        checkpoint_tick_ms: how often it is looked which applications are due for a checkpoint, in ms, or ``None`` for
            never.
        spark_from: offsets of a checkpoint's tails from which Spark reads them, or ``None`` for the job's own measure.
        spark: how Spark runs the jobs, unless spec or run say otherwise.
    """

    specs: tuple[str, ...]
    state_dir: str | None
    staging_dir: str | None
    reports: Path
    spark_conn_id: str
    kafka_conn_id: str | None
    repository: str | None = None
    snapshot_schedule: str | None = None
    aws_conn_id: str | None = None
    checkpoint_tick_ms: int | None = None
    spark_from: int | None = None
    spark: SparkSettings = field(default_factory=SparkSettings)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Settings:
        """The settings of ``environment`` (default: this process's). An empty variable counts as absent.

        Raises:
            Invalid: a variable is not of its form.
        """
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
            aws_conn_id=env.get("STATECORE_AWS_CONN") or None,
            checkpoint_tick_ms=_tick(env.get("STATECORE_CHECKPOINT_TICK", "")),
            spark_from=_offsets(env.get("STATECORE_SPARK_FROM", "")),
            spark=_spark(env),
        )

    def check_schedule(self) -> None:
        """Refuse a schedule of snapshots whose runs would not know what is meant.

        Raises:
            Invalid: there is a schedule, but no application or no repository.
        """
        if self.snapshot_schedule:
            self._check_said("STATECORE_SNAPSHOT_SCHEDULE")

    def check_tick(self) -> None:
        """Refuse checkpoints by schedule whose runs would not know what is meant.

        Raises:
            Invalid: there is a tick, but no application or no repository.
        """
        if self.checkpoint_tick_ms:
            self._check_said("STATECORE_CHECKPOINT_TICK")

    def _check_said(self, schedule: str) -> None:
        absent = [
            name
            for name, said in (("STATECORE_SPECS", self.specs), ("STATECORE_REPOSITORY", self.repository))
            if not said
        ]
        if absent:
            raise Invalid(
                f"{schedule} is set, and {' and '.join(absent)} not: nobody fills in a form for a run by schedule.",
                code="setting-missing",
                action=f"Set {' and '.join(absent)} for all parts of Airflow, or unset {schedule}.",
                settings=absent,
            )


def _tick(text: str) -> int | None:
    if not text:
        return None
    found = parse_duration(text)
    if found is None or not _LEAST_TICK_MS <= found <= _LONGEST_TICK_MS:
        raise Invalid(
            f"STATECORE_CHECKPOINT_TICK is {text!r}; expected {EXPECTED}, from 5s to 1h.",
            code="setting-invalid",
            action="Correct it for all parts of Airflow; 1m is usual. The interval of each application is in its spec "
            "(statestore.checkpoint.interval.ms).",
            setting="STATECORE_CHECKPOINT_TICK",
        )
    return found


def _offsets(text: str) -> int | None:
    if not text:
        return None
    if not text.isdecimal():
        raise Invalid(
            f"STATECORE_SPARK_FROM is {text!r}, which is no number of offsets.",
            code="setting-invalid",
            action="Write a number such as 2000000, for all parts of Airflow, or unset it.",
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
            f"A setting of Spark's cannot be read: {cause}.",
            code="setting-invalid",
            action='Write STATECORE_SPARK_CONF as one JSON object, such as {"spark.cores.max": "8"}, and '
            "STATECORE_EXECUTOR_CORES as a number.",
            setting=setting,
        ) from cause
    return SparkSettings(
        conf=properties(lines),
        executor_python=env.get("STATECORE_EXECUTOR_PYTHON") or None,
        executor_memory=env.get("STATECORE_EXECUTOR_MEMORY") or None,
        executor_cores=cores or None,
        executor_archives=tuple(one for one in env.get("STATECORE_EXECUTOR_ARCHIVES", "").split(",") if one),
    )
