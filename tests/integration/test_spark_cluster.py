"""Restores on a real Spark standalone cluster, and what makes them refuse.

One is submitted as an operator would; the refusals need no JVM of their own for each.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from statecore.errors import Capacity, Invalid
from statecore.jobs.restore.request import RestoreRequest
from statecore.spark.session import spark_context
from tests.harness.broker import Broker, refusing_port
from tests.harness.on_spark import SPARK_LEFTOVERS, run_restore
from tests.harness.raising import raises
from tests.harness.small_application import small_application
from tests.harness.spark_cluster import EXECUTORS_COME, SPARK_HOME, SparkCluster

pytestmark = [
    pytest.mark.integration,
    pytest.mark.timeout(900),
    *SPARK_LEFTOVERS,
]

ROOT = Path(__file__).resolve().parents[2]
JOB = ROOT / "spark_jobs" / "restore.py"
SMALL = {"spark.executor.memory": "512m", "spark.cores.max": "2", "spark.driver.host": "127.0.0.1", **EXECUTORS_COME}
"""Both workers are to take part, and neither has much."""

IMPATIENT = """
import sys
from statecore.cli.main import main
from statecore.spark import session
session.start_registered.__defaults__ = (2.0,)
sys.exit(main())
"""


@pytest.fixture(scope="module")
def application(broker: Broker) -> dict[str, Any]:
    return small_application(broker, f"cluster-{os.getpid()}")


def environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "SPARK"))}
    return {**kept, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore", **more}


class Submitted:
    """One ``spark-submit`` of the job: its exit code, what it printed, its report or error."""

    def __init__(
        self, directory: Path, request: dict[str, Any], master: str, *conf: str, job: tuple[str, ...] = (), **env: str
    ) -> None:
        report = directory / "report.json"
        settings = [
            word for one in (*(f"{name}={value}" for name, value in SMALL.items()), *conf) for word in ("--conf", one)
        ]
        done = subprocess.run(
            [
                *(str(SPARK_HOME / "bin" / "spark-submit"), "--master", master, *settings, str(JOB)),
                *("--report", str(report), "--request", json.dumps(request), *job),
            ],
            env=environment(PYSPARK_DRIVER_PYTHON=sys.executable, **env),
            capture_output=True,
            text=True,
            timeout=1200,
        )
        self.code, self.said = done.returncode, done.stdout + done.stderr
        assert report.exists(), self.said
        self.document: dict[str, Any] = json.loads(report.read_text())


@pytest.mark.full
def test_the_submitted_master_and_conf_decide_where_a_job_runs(
    spark_cluster: SparkCluster, application: dict[str, Any], state_dir: Path, tmp_path: Path
) -> None:
    before = len(spark_cluster.applications())
    request = {"spec": application, "state_dir": str(state_dir)}
    done = Submitted(
        tmp_path,
        request,
        spark_cluster.master,
        f"spark.pyspark.python={sys.executable}",
        "spark.app.name=submitted under this name",
        f"spark.executorEnv.PYTHONPATH={ROOT}",
    )
    assert done.code == 0, done.said
    assert (done.document["master"], done.document["executors"]) == (spark_cluster.master, 2)
    assert done.document["hosts"] == ["127.0.0.2", "127.0.0.3"]
    assert done.document["totals"]["rows"] == 500
    assert f"Spark runs on {spark_cluster.master} with 2 executors on 127.0.0.2, 127.0.0.3." in done.said
    ran = spark_cluster.applications()
    assert len(ran) == before + 1
    (mine,) = [one for one in ran if one["name"] == "submitted under this name"]
    assert (mine["cores"], mine["memoryperexecutor"]) == (2, 512)
    assert spark_cluster.executors_of(mine["id"]) == set(spark_cluster.hosts)


@pytest.mark.full
def test_a_master_at_which_nothing_listens_is_refused_before_anything_is_made(
    application: dict[str, Any], state_dir: Path, tmp_path: Path
) -> None:
    with refusing_port() as port:
        done = Submitted(tmp_path, {"spec": application, "state_dir": str(state_dir)}, f"spark://127.0.0.1:{port}")
    assert (done.code, done.document["code"]) == (10, "spark-master-unreachable"), done.said
    assert done.document["context"]["master"] == f"spark://127.0.0.1:{port}"
    assert "\tat " not in done.said
    assert "unresponsive" not in done.said  # which Spark says after a minute of trying by itself
    assert "Placed files will belong" in done.said
    # The job made that directory a moment before: it is no model of anything.
    assert f"the owner of {state_dir / application['application_id']}" not in done.said


def answering_page(listener: socket.socket) -> None:
    """Answer every connection with a page at once, as a web server does whatever it is asked in a language not its."""
    with contextlib.suppress(OSError):  # the listener is closed
        while True:
            caller, _ = listener.accept()
            caller.sendall(b"<!DOCTYPE HTML>" * 100)
            caller.close()


@pytest.mark.parametrize("answers", [True, pytest.param(False, marks=pytest.mark.full)], ids=["a page", "silence"])
def test_what_listens_and_is_no_master_is_one_sentence(
    application: dict[str, Any], state_dir: Path, tmp_path: Path, answers: bool
) -> None:
    """In a process of its own: Spark goes on trying in the one that asked."""
    spec = tmp_path / "stores.yaml"
    spec.write_text(json.dumps(application))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        if answers:
            threading.Thread(target=answering_page, args=(listener,), daemon=True).start()
        master = f"spark://127.0.0.1:{listener.getsockname()[1]}"
        words = ["restore", "--json", "--spec", str(spec), "--state-dir", str(state_dir), "--master", master]
        done = subprocess.run(
            [sys.executable, "-c", IMPATIENT, *words],
            env=environment(),
            capture_output=True,
            text=True,
            timeout=1200,
            check=False,
        )
    document = json.loads(done.stdout)
    assert (done.returncode, document["code"]) == (10, "spark-master-not-responding"), done.stderr
    assert document["context"]["master"] == master
    assert "Exception" not in done.stderr, done.stderr
    assert "\tat " not in done.stderr


def restore(application: dict[str, Any], state_dir: Path, master: str, **conf: str) -> None:
    """In this process, as a job does it; Spark's properties have ``_`` for their dots."""
    given = SMALL | {name.replace("_", "."): value for name, value in conf.items()}
    run_restore(RestoreRequest(state_dir=str(state_dir), spec=application), master=master, spark_conf=given)


@pytest.mark.full
def test_a_job_that_was_to_run_on_a_cluster_does_not_run_elsewhere(
    spark_cluster: SparkCluster, application: dict[str, Any], state_dir: Path
) -> None:
    with (
        spark_context("tests", "local[1]"),
        raises(Invalid, "spark-master-mismatch", asked=spark_cluster.master, master="local[1]"),
    ):
        restore(application, state_dir, spark_cluster.master)
    assert not list(state_dir.glob("*/0_0"))


@pytest.mark.full
def test_executors_without_statecore_are_named_and_not_tried_again(
    spark_cluster: SparkCluster, application: dict[str, Any], state_dir: Path, tmp_path: Path
) -> None:
    bare = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(bare)], check=True)
    python = f"{bare}/bin/python"
    spark_cluster.await_idle()
    with raises(Invalid, "executors-unfit", master=spark_cluster.master, hosts=list(spark_cluster.hosts)) as caught:
        restore(application, state_dir, spark_cluster.master, spark_pyspark_python=python)
    (problem,) = caught.value.context["problems"]
    assert (problem["code"], problem["hosts"]) == ("statecore-missing", list(spark_cluster.hosts))
    assert python in problem["what"]
    assert not list(state_dir.glob("*/.statecore/plans/*"))


def test_a_cluster_without_resources_is_an_error_and_no_endless_wait(
    spark_cluster: SparkCluster, application: dict[str, Any], state_dir: Path
) -> None:
    room = {"spark_executor_memory": "64g", "spark_scheduler_maxRegisteredResourcesWaitingTime": "3s"}
    with raises(Capacity, "executors-missing", master=spark_cluster.master) as caught:
        restore(application, state_dir, spark_cluster.master, **room)
    assert "spark.executor.memory" in caught.value.action
