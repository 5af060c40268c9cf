"""One Airflow for all tests of a worker that need one, with settings that fit them all and an S3 server beside it.

Its Dags are paused until a test wants them (``running``), because ``checkpoint_stores`` has a schedule. The master of
its Spark connection can be another one for a while (``on_spark``). Each test has applications and runs of its own.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from demo.airflow_client import call
from demo.airflow_server import ROOT, AirflowServer
from tests.harness import s3_server
from tests.harness.process_guard import started_at
from tests.harness.spark_cluster import EXECUTORS_COME

SPARK_CONN = "spark_of_the_site"
LOCAL = "local[1]"
START_SECONDS = 1200.0

SPECS = ("often", "broken", "rarely", "idle")
"""Names of the spec files that runs by schedule read; ``test_airflow_checkpoints`` writes them."""

SPARK_FROM = 2_000
"""Offsets from which Spark reads the tail of a checkpoint."""

QUICK = {
    "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.5",
    "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "3600",  # no Dag file changes while it runs
}


@dataclass(frozen=True)
class AirflowSite:
    """A running Airflow and what it was told.

    Attributes:
        server: Airflow.
        repository: the repository of the site, in the S3 server.
        specs: directory of the files of ``SPECS``.
        jobs: directory of the Spark jobs; ``behaviour.json`` in it is the stub's (``tests.unit.airflow.stub``).
    """

    server: AirflowServer
    repository: str
    specs: Path
    jobs: Path

    @contextmanager
    def running(self, *dags: str) -> Iterator[None]:
        """Unpause Dags for a while."""
        try:
            for dag in dags:
                self.server.wait_for_dag(dag, START_SECONDS)
                self.server.api("PATCH", f"/dags/{dag}", {"is_paused": False})
            yield
        finally:
            for dag in dags:
                self.server.api("PATCH", f"/dags/{dag}", {"is_paused": True})

    @contextmanager
    def on_spark(self, master: str) -> Iterator[None]:
        """Submit jobs to another master for a while."""
        self._connect(master)
        try:
            yield
        finally:
            self._connect(LOCAL)

    def _connect(self, master: str) -> None:
        body = spark_connection(master)
        self.server.api("PATCH", f"/connections/{SPARK_CONN}", body)


def spark_connection(master: str) -> dict[str, str]:
    """The connection of a Spark master, as the REST API takes it."""
    return {
        "connection_id": SPARK_CONN,
        "conn_type": "spark",
        "host": master,
        "extra": json.dumps({"deploy-mode": "client"}),
    }


@contextmanager
def airflow_site(root: Path, **settings: str) -> Iterator[AirflowSite]:
    """Start a site, and stop it without a process left.

    Args:
        root: an empty directory for it.
        settings: further environment variables of Airflow's parts.
    """
    specs = root / "specs"
    specs.mkdir()
    jobs = spark_jobs(root / "spark_jobs")
    local_settings = root / "airflow" / "config" / "airflow_local_settings.py"
    local_settings.parent.mkdir(parents=True)
    local_settings.write_text("from statecore.airflow.queues import task_instance_mutation_hook\n")
    with s3_server.serving() as objects:
        from statecore.repository.repository import create_repository

        with pytest.MonkeyPatch.context() as patch:
            for name, value in s3_server.CREDENTIALS.items():
                patch.setenv(name, value)
            repository = objects.bucket("states").below("of-airflow").url
            create_repository(repository)
        connection = {"conn_type": "aws", "login": s3_server.ACCESS, "password": s3_server.SECRET}
        environment = {
            **QUICK,
            "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "True",
            "STATECORE_SPARK_JOBS": str(jobs),
            "STATECORE_SPECS": os.pathsep.join(str(specs / f"{name}.yaml") for name in SPECS),
            "STATECORE_REPOSITORY": repository,
            "STATECORE_CHECKPOINT_TICK": "1h",  # it runs when it is unpaused, and not again by itself
            "STATECORE_SPARK_FROM": str(SPARK_FROM),
            "STATECORE_SPARK_CONN": SPARK_CONN,
            "STATECORE_SPARK_CONF": json.dumps({"spark.driver.host": "127.0.0.1", **EXECUTORS_COME}),
            "STATECORE_EXECUTOR_PYTHON": sys.executable,
            "STATECORE_EXECUTOR_MEMORY": "512m",
            "STATECORE_AWS_CONN": "the_object_store",
            "AIRFLOW_CONN_THE_OBJECT_STORE": json.dumps(connection),
            **dict.fromkeys(s3_server.CREDENTIALS, ""),  # those of the connection are the only ones
            **settings,
        }
        server = AirflowServer(root / "airflow", spark_master=LOCAL, environment=environment)
        try:
            server.start().wait_healthy(START_SECONDS)
            server.api("POST", "/connections", spark_connection(LOCAL))
            yield AirflowSite(server, repository, specs, jobs)
            stops_cleanly(server)
        finally:
            server.stop()


def stops_cleanly(server: AirflowServer) -> None:
    """Stop a server; nothing of it may be left."""
    running = identities(server)
    assert running
    assert server.stop()
    assert still_there(running) == []
    assert AirflowServer.attach(server.home) is None
    assert not server.stop()


def events_of(server: AirflowServer, run: str) -> list[dict[str, Any]]:
    """The run's asset events, oldest first."""
    found = server.api("GET", f"/assets/events?source_run_id={quote(run)}&order_by=timestamp&limit=100")["asset_events"]
    return [one for one in found if one["source_run_id"] == run]


def clear(server: AirflowServer, dag: str, run: str, *, only_failed: bool = False) -> None:
    """As the button of the run's page does it."""
    body = {"dry_run": False, "dag_run_id": run, "only_failed": only_failed, "reset_dag_runs": True}
    server.api("POST", f"/dags/{dag}/clearTaskInstances", body)


def stores_page(server: AirflowServer, path: str) -> Any:
    """What the page *State stores* answers to a program of the one user."""
    token = call("POST", f"{server.url}/auth/token", {"username": server.user, "password": server.password})
    return call("GET", f"{server.url}/state-stores/{path}", None, token["access_token"])


def identities(server: AirflowServer) -> dict[int, str]:
    """The server's processes with their start times: a pid alone may be another process's a moment later."""
    return {pid: began for pid in server.processes() if (began := started_at(pid)) is not None}


def still_there(processes: dict[int, str]) -> list[int]:
    """Those of them that live."""
    return [pid for pid, began in processes.items() if started_at(pid) == began]


STUBS = ("orders", "refusing", "slow")
"""Applications whose restores are done by a stub: one succeeds, one is refused, one hangs with Spark in use."""

_CHOOSE = f"""
import json, runpy, sys
request = json.loads(sys.argv[sys.argv.index("--request") + 1])
if (request.get("spec") or {{}}).get("application_id") not in {STUBS!r}:
    runpy.run_path({str(ROOT / "spark_jobs" / "restore.py")!r}, run_name="__main__")
    sys.exit(0)
"""

_SLOW = """
from pyspark import SparkContext
if request["spec"]["application_id"] == "slow":
    import time
    context = SparkContext.getOrCreate()
    assert context.parallelize(range(10), 1).sum() == 45
    pathlib.Path(__file__).with_name("slow.started").touch()
    time.sleep(600)
"""

REFUSAL = {
    "error": "NotFound",
    "code": "topic-not-found",
    "exit_code": 14,
    "what": "No topic of that name.",
    "action": "Correct the spec.",
}


def spark_jobs(directory: Path) -> Path:
    """The Spark jobs as they are, but for the restores of ``STUBS``."""
    from tests.unit.airflow.stub import JOB

    directory.mkdir()
    for job in (ROOT / "spark_jobs").glob("*.py"):
        if job.name != "restore.py":
            (directory / job.name).symlink_to(job)
    head, mark, tail = JOB.partition('print("an ordinary line")')
    assert mark
    (directory / "restore.py").write_text(f"{_CHOOSE}{head}{mark}\n{_SLOW}{tail}")
    (directory / "behaviour.json").write_text(json.dumps({"refusing": REFUSAL}))
    return directory
