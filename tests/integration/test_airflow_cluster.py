"""The whole way: Airflow's REST API, spark-submit, a standalone cluster, its executors, and the stores on disk."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from demo.airflow_server import AirflowServer
from tests.harness.airflow_site import AirflowSite
from tests.harness.broker import Broker
from tests.harness.small_application import small_application
from tests.harness.spark_cluster import SparkCluster

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

DAG = "restore_stores"


@pytest.fixture(scope="module")
def server(airflow: AirflowSite, spark_cluster: SparkCluster) -> Iterator[AirflowServer]:
    with airflow.running(DAG), airflow.on_spark(spark_cluster.master):
        yield airflow.server


@pytest.fixture(scope="module")
def declared(broker: Broker) -> dict[str, Any]:
    """The spec of an application with 500 rows; it asks Spark for both workers."""
    spec = small_application(broker, f"clustered-{os.getpid()}")
    return {**spec, "spark": {"conf": {"spark.cores.max": "2"}}}


@pytest.mark.full
def test_a_run_of_the_dag_is_done_by_the_executors_of_the_cluster(
    server: AirflowServer, spark_cluster: SparkCluster, declared: dict[str, Any], state_dir: Path
) -> None:
    parameters = {"applications": [json.dumps(declared)], "state_dir": str(state_dir), "repository": None}
    run = server.trigger(DAG, {**parameters, "spark_conf": ["spark.executor.memory=600m"]})
    assert server.wait(DAG, run) == "success", server.why(DAG, run)
    summary = server.xcom(DAG, run, "restore", map_index=0)
    assert (summary["master"], summary["executors"]) == (spark_cluster.master, 2)
    assert summary["hosts"] == list(spark_cluster.hosts)
    assert summary["totals"]["rows"] == 500
    (restore,) = [task for task in server.tasks(DAG, run) if task.task_id == "restore"]
    assert f"ran on {spark_cluster.master} with 2 executors" in server.task_log(DAG, run, restore)
    # The master saw it: both workers' cores, and the memory that the form asked for instead of the site's.
    name = f"statecore {declared['application_id']}"
    # A try that Spark could not end on a busy machine is followed by another one.
    (seen,) = [one for one in spark_cluster.applications() if one["name"] == name and one["state"] == "FINISHED"]
    assert (seen["cores"], seen["memoryperexecutor"]) == (2, 600)
    assert spark_cluster.executors_of(seen["id"]) == set(spark_cluster.hosts)
    for task in ("0_0", "0_1"):
        assert (state_dir / declared["application_id"] / task / "rocksdb" / "by-id" / "CURRENT").is_file()


@pytest.mark.full
def test_executors_that_lack_statecore_fail_the_run_at_once_by_name_of_host(
    server: AirflowServer, spark_cluster: SparkCluster, declared: dict[str, Any], state_dir: Path, tmp_path: Path
) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "bare")], check=True)
    python = str(tmp_path / "bare" / "bin" / "python")
    parameters = {"applications": [json.dumps(declared)], "state_dir": str(state_dir), "executor_python": python}
    run = server.trigger(DAG, {**parameters, "repository": None})
    assert server.wait(DAG, run) == "failed"
    (restore,) = [task for task in server.tasks(DAG, run) if task.task_id == "restore"]
    assert (restore.state, restore.try_number) == ("failed", 1)
    why = server.why(DAG, run)
    assert "Invalid (executors-unfit): " in why
    assert f"on {', '.join(spark_cluster.hosts)} {python} has no statecore" in why
