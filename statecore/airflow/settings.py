"""What a site sets once, by environment variables: read without touching Airflow's database or the disk.

A DAG file is parsed again and again, so its defaults may come neither from Airflow Variables nor from files. The
variables:

========================  ========================================================================================
variable                  meaning
========================  ========================================================================================
``STATECORE_SPECS``       default spec files of the DAGs, absolute paths separated by ``:``
``STATECORE_STATE_DIR``   default ``state.dir`` of the applications
``STATECORE_REPORTS``     directory of the reports; default ``$AIRFLOW_HOME/statecore/reports``. The task that runs
                          Spark writes it, the API server reads it for the UI page: one shared directory
``STATECORE_SPARK_CONN``  connection id of the Spark master; default ``spark_default``
``STATECORE_KAFKA_CONN``  connection id whose login and password the jobs get as the environment variables
                          ``KAFKA_USERNAME`` and ``KAFKA_PASSWORD``, for ``${KAFKA_PASSWORD}`` in a spec
========================  ========================================================================================

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
from statecore.spec.spark_settings import SparkSettings, properties


@dataclass(frozen=True)
class Settings:
    """The site's settings.

    Attributes:
        specs: default spec files.
        state_dir: default state directory, or ``None`` where a run has to name it.
        reports: directory of the job reports.
        spark_conn_id: connection of the Spark master.
        kafka_conn_id: connection with the Kafka credentials, or ``None`` where Kafka asks for none.
        spark: how Spark runs the jobs, unless spec or run say otherwise.
    """

    specs: tuple[str, ...]
    state_dir: str | None
    reports: Path
    spark_conn_id: str
    kafka_conn_id: str | None
    spark: SparkSettings = field(default_factory=SparkSettings)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Settings:
        """The settings of ``environment`` (default: this process's). An empty variable counts as absent.

        Raises:
            Invalid: a variable of Spark's is not of its form.
        """
        env = os.environ if environment is None else environment
        home = env.get("AIRFLOW_HOME") or str(Path("~/airflow").expanduser())
        return cls(
            specs=tuple(path for path in env.get("STATECORE_SPECS", "").split(os.pathsep) if path),
            state_dir=env.get("STATECORE_STATE_DIR") or None,
            reports=Path(env.get("STATECORE_REPORTS") or Path(home) / "statecore" / "reports"),
            spark_conn_id=env.get("STATECORE_SPARK_CONN") or "spark_default",
            kafka_conn_id=env.get("STATECORE_KAFKA_CONN") or None,
            spark=_spark(env),
        )

    def secret_env_vars(self) -> dict[str, str]:
        """Environment variables for a job, as templates: the secrets stay in the connection until the task runs.

        Never in ``conf`` or arguments: those are logged and can be read from the process list.
        """
        if self.kafka_conn_id is None:
            return {}
        return {
            "KAFKA_USERNAME": f"{{{{ conn.{self.kafka_conn_id}.login }}}}",
            "KAFKA_PASSWORD": f"{{{{ conn.{self.kafka_conn_id}.password }}}}",
        }


def _spark(env: Mapping[str, str]) -> SparkSettings:
    try:
        conf = json.loads(env.get("STATECORE_SPARK_CONF") or "{}")
        lines = [f"{name}={value}" for name, value in conf.items()]
        cores = int(env.get("STATECORE_EXECUTOR_CORES") or 0)
    except (ValueError, AttributeError) as cause:
        raise Invalid(
            f"A setting of Spark's cannot be read: {cause}.",
            action='Write STATECORE_SPARK_CONF as one JSON object, such as {"spark.cores.max": "8"}, and '
            "STATECORE_EXECUTOR_CORES as a number.",
        ) from cause
    return SparkSettings(
        conf=properties(lines),
        executor_python=env.get("STATECORE_EXECUTOR_PYTHON") or None,
        executor_memory=env.get("STATECORE_EXECUTOR_MEMORY") or None,
        executor_cores=cores or None,
        executor_archives=tuple(one for one in env.get("STATECORE_EXECUTOR_ARCHIVES", "").split(",") if one),
    )
