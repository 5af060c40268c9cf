"""Restores on a real Spark standalone cluster, submitted as an operator would, and what makes them refuse."""

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

from tests.harness.broker import Broker, free_ports
from tests.harness.small import small_application
from tests.harness.spark_cluster import SPARK_HOME, SparkCluster

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parents[2]
JOB = ROOT / "spark_jobs" / "restore.py"
SMALL = ("spark.executor.memory=512m", "spark.cores.max=2", "spark.driver.host=127.0.0.1")
"""Both workers are to take part, and neither has much."""


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
        settings = [word for one in (*SMALL, *conf) for word in ("--conf", one)]
        done = subprocess.run(
            [
                *(str(SPARK_HOME / "bin" / "spark-submit"), "--master", master, *settings, str(JOB)),
                *("--report", str(report), "--request", json.dumps(request), *job),
            ],
            env=environment(PYSPARK_DRIVER_PYTHON=sys.executable, **env),
            capture_output=True,
            text=True,
            timeout=600,
        )
        self.code, self.said = done.returncode, done.stdout + done.stderr
        assert report.exists(), self.said
        self.document: dict[str, Any] = json.loads(report.read_text())


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


def test_a_master_at_which_nothing_listens_is_one_sentence_at_once(
    application: dict[str, Any], state_dir: Path, tmp_path: Path
) -> None:
    (port,) = free_ports(1)
    done = Submitted(tmp_path, {"spec": application, "state_dir": str(state_dir)}, f"spark://127.0.0.1:{port}")
    assert (done.code, done.document["error"]) == (10, "Retryable"), done.said
    assert done.document["what"] == (f"No Spark master can be reached at spark://127.0.0.1:{port}: Connection refused.")
    assert "\tat " not in done.said
    assert "unresponsive" not in done.said  # which Spark says after a minute of trying by itself
    assert "What is placed will belong to" in done.said
    # The job made that directory a moment before: it is no model of anything.
    assert f"as {state_dir / application['application_id']} has them" not in done.said


def answering_page(listener: socket.socket) -> None:
    """Answer whoever connects with a page at once, as a web server does whatever it is asked in a language not its."""
    with contextlib.suppress(OSError):  # the listener is closed
        while True:
            caller, _ = listener.accept()
            caller.sendall(b"<!DOCTYPE HTML>" * 100)
            caller.close()


@pytest.mark.parametrize("answers", [True, False], ids=["a page", "silence"])
def test_what_listens_and_is_no_master_is_one_sentence(
    application: dict[str, Any], state_dir: Path, tmp_path: Path, answers: bool
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        if answers:
            threading.Thread(target=answering_page, args=(listener,), daemon=True).start()
        master = f"spark://127.0.0.1:{listener.getsockname()[1]}"
        done = Submitted(tmp_path, {"spec": application, "state_dir": str(state_dir)}, master)
    assert (done.code, done.document["error"]) == (10, "Retryable"), done.said
    assert done.document["what"].startswith(f"What listens at {master} did not take the job")
    assert "Exception" not in done.said, done.said
    assert "\tat " not in done.said


def test_a_job_that_was_to_run_on_a_cluster_does_not_run_elsewhere(
    application: dict[str, Any], state_dir: Path, tmp_path: Path
) -> None:
    asked = ("--master", "spark://cluster:7077")
    done = Submitted(tmp_path, {"spec": application, "state_dir": str(state_dir)}, "local[1]", job=asked)
    assert (done.code, done.document["error"]) == (13, "Invalid"), done.said
    assert "asked to run on spark://cluster:7077, and Spark runs on local[1]" in done.document["what"]
    assert not list(state_dir.glob("*/0_0"))


def test_executors_without_statecore_are_named_and_not_tried_again(
    spark_cluster: SparkCluster, application: dict[str, Any], state_dir: Path, tmp_path: Path
) -> None:
    bare = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(bare)], check=True)
    python = f"{bare}/bin/python"
    done = Submitted(
        tmp_path,
        {"spec": application, "state_dir": str(state_dir)},
        spark_cluster.master,
        f"spark.pyspark.python={python}",
        f"spark.pyspark.driver.python={sys.executable}",
    )
    assert (done.code, done.document["error"]) == (13, "Invalid"), done.said
    assert "on 127.0.0.2, 127.0.0.3" in done.document["what"]
    assert f"{python} has no statecore (No module named 'statecore')" in done.document["what"]
    assert done.document["context"]["hosts"] == ["127.0.0.2", "127.0.0.3"]
    assert "executor_python" in done.document["action"]
    assert not list(state_dir.glob("*/.statecore/plans/*"))


def test_a_cluster_without_room_is_said_instead_of_waited_for(
    spark_cluster: SparkCluster, application: dict[str, Any], state_dir: Path, tmp_path: Path
) -> None:
    conf = ("spark.executor.memory=64g", "spark.scheduler.maxRegisteredResourcesWaitingTime=3s")
    done = Submitted(tmp_path, {"spec": application, "state_dir": str(state_dir)}, spark_cluster.master, *conf)
    assert (done.code, done.document["error"]) == (15, "Capacity"), done.said
    assert done.document["what"] == f"The cluster {spark_cluster.master} gave the job no executor within 3 s."
    assert "spark.executor.memory" in done.document["action"]
