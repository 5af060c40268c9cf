"""``checkpoint_stores`` by schedule: real Airflow, Kafka, a real S3 server, and Spark where a tail is long."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from demo.airflow_client import call
from demo.airflow_server import AirflowServer
from statecore.jobs.due import made_ms
from statecore.jobs.planned_tails import TAKEN_UP
from statecore.repository.head import SnapshotEntry
from statecore.repository.repository import make_repository
from statecore.repository.shelf import Shelf
from tests.harness import s3_server, topics
from tests.harness.broker import Broker
from tests.harness.keeper import started_at
from tests.integration.test_airflow import stores_page
from tests.integration.test_airflow_snapshots import events_of, said_by
from tests.unit.airflow.stub import spec

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

DAG = "checkpoint_stores"
TICK, OFTEN, RARELY = 15, 20, 86_400
"""Seconds between two looks, and between two checkpoints."""

LONG = 2_000
"""Offsets from which Spark reads a tail."""


class Site:
    """Applications, the site's settings, and the server that works on them."""

    def __init__(self, root: Path, broker: Broker, repository: str) -> None:
        self.broker, self.repository = broker, repository
        self.specs = root / "specs"
        self.specs.mkdir()
        self.names: dict[str, str] = {}

    def application(self, name: str, interval: int) -> None:
        """Declare one, with a changelog of 100 records."""
        application_id = self.names[name] = f"{name}-{time.time_ns()}"
        topics.create(self.broker.bootstrap_servers, f"{application_id}-by-id-changelog", 2, topics.UNCLEANED)
        declared = {
            **spec(application_id, ("by-id",)),
            "bootstrap_servers": self.broker.bootstrap_servers,
            "processing_guarantee": "at_least_once",
            "statestore.checkpoint.interval.ms": interval * 1000,
        }
        (self.specs / f"{name}.yaml").write_text(json.dumps(declared))
        self.produce(name, 100)

    def produce(self, name: str, count: int) -> None:
        records = [
            topics.Record(b"key-%d" % (n % 50), b"value-%d-%d" % (n, time.time_ns()), n % 2) for n in range(count)
        ]
        topics.produce(self.broker.bootstrap_servers, f"{self.names[name]}-by-id-changelog", records)

    def path(self, name: str) -> str:
        return str(self.specs / f"{name}.yaml")

    def snapshots(self, name: str) -> tuple[SnapshotEntry, ...]:
        """The checkpoints that the head names, newest first."""
        found = Shelf.at(self.repository, self.names[name]).read_head()
        return () if found is None else tuple(one for one in found.head.snapshots if one.origin == "checkpoint")


@pytest.fixture(scope="module")
def site(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with s3_server.serving() as server, pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", s3_server.ACCESS)
        patch.setenv("AWS_SECRET_ACCESS_KEY", s3_server.SECRET)
        url = server.bucket("states").below("of-checkpoints").url
        make_repository(url)
        made = Site(tmp_path_factory.mktemp("site"), broker, url)
        made.application("often", OFTEN)
        made.application("rarely", RARELY)
        made.application("idle", OFTEN)
        (made.specs / "broken.yaml").write_text("application_id: broken\nsubtopologies: none\n")
        yield made


@pytest.fixture(scope="module")
def server(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AirflowServer]:
    connection = {"conn_type": "aws", "login": s3_server.ACCESS, "password": s3_server.SECRET}
    environment = {
        "STATECORE_SPECS": ":".join(map(site.path, ("often", "broken", "rarely", "idle"))),
        "STATECORE_REPOSITORY": site.repository,
        "STATECORE_CHECKPOINT_TICK": f"{TICK}s",
        "STATECORE_SPARK_FROM": str(LONG),
        "STATECORE_AWS_CONN": "the_object_store",
        "AIRFLOW_CONN_THE_OBJECT_STORE": json.dumps(connection),
        "AWS_ACCESS_KEY_ID": "",  # those of the connection are the only ones
        "AWS_SECRET_ACCESS_KEY": "",
    }
    home = tmp_path_factory.mktemp("checkpoints") / "airflow"
    one = AirflowServer(home, spark_master="local[1]", environment=environment)
    try:
        one.start().wait_healthy()
        yield one
    finally:
        one.stop()


def runs_of(server: AirflowServer) -> list[str]:
    """Ids of the runs by schedule that have ended, oldest first."""
    runs = server.api("GET", f"/dags/{DAG}/dagRuns?order_by=run_after&limit=100")["dag_runs"]
    return [
        one["dag_run_id"] for one in runs if one["run_type"] == "scheduled" and one["state"] in ("success", "failed")
    ]


def until(what: Callable[[], Any], server: AirflowServer, seconds: float = 240, pause: float = 1) -> Any:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := what():
            return found
        time.sleep(pause)
    raise AssertionError(server.log_tail())


def mapped(server: AirflowServer, run: str) -> dict[str, str | None]:
    """States of the mapped tasks of a run, by the name that the page shows."""
    return {task.name: task.state for task in server.tasks(DAG, run) if task.task_id == "checkpoint"}


def made_in(server: AirflowServer, snapshot: str) -> str | None:
    """The run that has ended and announced a snapshot."""
    return next(
        (run for run in runs_of(server) if snapshot in [one["extra"]["snapshot"] for one in events_of(server, run)]),
        None,
    )


def outcomes(server: AirflowServer) -> dict[str, str]:
    """How the latest attempt of each application ended, as the page *State stores* tells it to programs."""
    shown = stores_page(server, "stores")["applications"]
    return {one["instance"]: one["outcome"] for one in map(last_of, shown)}


def last_of(application: dict[str, Any]) -> dict[str, str]:
    (instance,) = application["instances"]
    return {"instance": instance["application_id"], "outcome": instance["last"]["outcome"]}


def html(server: AirflowServer, asked: str) -> str:
    """The page for people, of the applications whose name has this in it."""
    token = call("POST", f"{server.url}/auth/token", {"username": server.user, "password": server.password})
    headers = {"Authorization": f"Bearer {token['access_token']}"}
    request = urllib.request.Request(f"{server.url}/state-stores/?q={quote(asked)}", headers=headers)
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=30) as response:
        return str(response.read().decode())


def test_ticks_advance_each_application_at_its_interval_and_one_that_is_broken_keeps_none_waiting(
    server: AirflowServer, site: Site
) -> None:
    often, rarely, idle = (site.names[name] for name in ("often", "rarely", "idle"))
    first = until(lambda: runs_of(server), server)[0]
    assert mapped(server, first) == {
        often: "success",
        rarely: "success",
        idle: "success",
        "broken": "failed",
    }
    assert "expected a mapping" in server.why(DAG, first)
    assert outcomes(server)["broken"] == "failed"
    assert outcomes(server)[idle] == "published"
    assert "The latest attempt failed" in html(server, "broken")
    assert "expected a mapping" in html(server, "broken")
    before = {name: site.snapshots(name) for name in ("often", "rarely", "idle")}
    assert {name: len(found) for name, found in before.items()} == dict.fromkeys(before, 1)

    for name in ("often", "rarely"):
        site.produce(name, 30)
    until(lambda: len(site.snapshots("often")) == 2, server)
    entry, earlier = site.snapshots("often")
    assert earlier == before["often"][0]
    assert site.snapshots("rarely") == before["rarely"]
    # Nothing is new of the idle one, although its interval is over: it gets no task, and no snapshot.
    made = until(lambda: made_in(server, entry.snapshot), server)
    assert set(mapped(server, made)) == {often, "broken"}
    assert site.snapshots("idle") == before["idle"]
    (event,) = events_of(server, made)
    assert (event["uri"], event["extra"]["snapshot"]) == (f"statecore://{often}/", entry.snapshot)
    said = server.task_log(DAG, made, next(task for task in server.tasks(DAG, made) if task.name == often))
    assert "read: 30 of 30" in said or "30 records" in said, said
    assert "starting Spark" not in said
    moments = [made_ms([one]) or 0 for one in site.snapshots("often")]
    assert moments[0] - moments[1] >= OFTEN * 1000 // 2


def test_a_long_tail_is_read_by_spark_and_the_report_says_so(server: AirflowServer, site: Site) -> None:
    known = site.snapshots("often")
    site.produce("often", LONG + 500)
    until(lambda: site.snapshots("often") != known, server)

    def summary_by_spark() -> dict[str, Any] | None:
        for run in reversed(runs_of(server)):
            for task in server.tasks(DAG, run):
                if task.name == site.names["often"] and task.state == "success":
                    summary = server.xcom(DAG, run, "checkpoint", map_index=task.map_index)
                    if summary["totals"]["records"] >= LONG:
                        return {**summary, "log": server.task_log(DAG, run, task)}
        return None

    summary = until(summary_by_spark, server)
    assert (summary["master"], summary["totals"]["records"]) == ("local[1]", LONG + 500)
    assert "Spark runs on local[1]" in summary["log"]
    assert "Spark goes on by the plan of this task" in summary["log"]
    assert not summary["notes"], "nothing has failed before"
    assert TAKEN_UP not in summary["log"]
    assert summary["published"]["snapshot"] in {one.snapshot for one in site.snapshots("often")}


def test_a_task_that_is_marked_failed_takes_its_process_with_it(server: AirflowServer, site: Site) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # a broker that lets one in and never answers
        declared = {**spec("silent", ("by-id",)), "bootstrap_servers": f"127.0.0.1:{silent.getsockname()[1]}"}
        run = server.trigger(DAG, {"applications": [json.dumps(declared)], "force": True})
        (process,) = until(lambda: jobs_of(server, '"application_id":"silent"'), server)
        began = started_at(process)
        path = f"/dags/{DAG}/dagRuns/{quote(run)}/taskInstances/checkpoint/0"
        server.api("PATCH", path, {"new_state": "failed"})
        until(lambda: started_at(process) != began, server, 20)
    assert server.wait(DAG, run, 120) == "failed"


@pytest.mark.full
def test_an_application_whose_checkpoint_takes_long_keeps_no_other_waiting(server: AirflowServer, site: Site) -> None:
    run = server.trigger(DAG, {"applications": [site.path("rarely")], "force": True})
    stopped = until(lambda: jobs_of(server, site.path("rarely")), server, pause=0.02)
    for process in stopped:
        os.kill(process, signal.SIGSTOP)
    try:
        known = site.snapshots("often")
        site.produce("often", 30)
        until(lambda: site.snapshots("often") != known, server)
        assert server.api("GET", f"/dags/{DAG}/dagRuns/{quote(run)}")["state"] == "running"
    finally:
        for process in stopped:
            os.kill(process, signal.SIGCONT)
    assert server.wait(DAG, run, 120) == "success", server.why(DAG, run)
    site.produce("rarely", 30)


def jobs_of(server: AirflowServer, named: str) -> list[int]:
    """The processes on the worker that make a checkpoint of an application, by what its request says of it."""
    found = []
    for process in server.processes():
        with contextlib.suppress(OSError):
            said = Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
            if b"--here" in said and named.encode() in b" ".join(said):
                found.append(process)
    return found


def test_a_run_by_hand_makes_the_checkpoint_that_is_asked_for_and_says_no_secret(
    server: AirflowServer, site: Site
) -> None:
    before = site.snapshots("rarely")
    run = server.trigger(DAG, {"applications": [site.path("rarely")], "force": True})
    assert server.wait(DAG, run, 300) == "success", server.why(DAG, run)
    assert len(site.snapshots("rarely")) == len(before) + 1
    assert s3_server.SECRET not in said_by(server, DAG, run, "checkpoint")
    again = server.trigger(DAG, {"applications": [site.path("rarely")]})
    assert server.wait(DAG, again, 300) == "success", server.why(DAG, again)
    assert [task.state for task in server.tasks(DAG, again)] == ["success", "skipped"]
    assert len(site.snapshots("rarely")) == len(before) + 1


@pytest.mark.full
def test_an_application_is_red_on_the_page_for_as_long_as_nobody_can_look_at_it(
    server: AirflowServer, site: Site
) -> None:
    idle, path = site.names["idle"], site.path("idle")
    until(lambda: outcomes(server).get(idle) in ("published", "unchanged"), server)
    # No checkpoint of it is under way that would read the spec, and fail by itself.
    until(lambda: any(idle not in mapped(server, run) for run in runs_of(server)[-1:]), server)
    known = site.snapshots("idle")
    file = Path(path)
    declared = file.read_text()
    try:
        file.write_text(f"application_id: {idle}\nsubtopologies: none\n")
        until(lambda: outcomes(server).get(idle) == "failed", server)
        failed = html(server, idle)
        assert all(said in failed for said in ("The latest attempt failed", "expected a mapping", "Before that, "))
        assert ">-1<" not in failed
        file.unlink()
        until(lambda: outcomes(server).get(path) == "failed", server)
        assert f"There is no spec {path}." in html(server, path)
    finally:
        file.write_text(declared)
    # Nothing is new, so there is no checkpoint: it is enough that somebody could look.
    until(lambda: outcomes(server).get(idle) in ("published", "unchanged"), server)
    assert path not in outcomes(server)
    assert site.snapshots("idle") == known
