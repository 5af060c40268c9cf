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
from statecore.jobs.checkpoint.last_checkpoint import made_ms
from statecore.jobs.planning.planned_tails import RESUMED_NOTE
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.head import SnapshotEntry
from tests.harness import s3_server, topics
from tests.harness.airflow_site import LOCAL, SPARK_FROM, AirflowSite, airflow_site, events_of, stores_page
from tests.harness.broker import Broker
from tests.harness.process_guard import started_at
from tests.integration.test_airflow_snapshots import said_by
from tests.unit.airflow.stub import spec

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

DAG = "checkpoint_stores"
SOON, RARELY = 2, 86_400
"""Seconds between two checkpoints: of what is new by the next run, and of what is not."""

TICK, OFTEN = 15, 20
"""Seconds between two looks by schedule, and between two checkpoints, where the schedule is the subject."""


class Site:
    """Applications of a site, which runs by schedule look at."""

    def __init__(self, airflow: AirflowSite, broker: Broker, interval: int) -> None:
        self.broker, self.repository, self.specs = broker, airflow.repository, airflow.specs
        self.names: dict[str, str] = {}
        self.application("often", interval)
        self.application("rarely", RARELY)
        self.application("idle", interval)
        (self.specs / "broken.yaml").write_text("application_id: broken\nsubtopologies: none\n")

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
        with pytest.MonkeyPatch.context() as patch:
            for variable, value in s3_server.CREDENTIALS.items():
                patch.setenv(variable, value)
            found = ApplicationRepository.open(self.repository, self.names[name]).read_head()
        return () if found is None else tuple(one for one in found.head.snapshots if one.origin == "checkpoint")


@pytest.fixture(scope="module")
def site(airflow: AirflowSite, broker: Broker) -> Site:
    return Site(airflow, broker, SOON)


@pytest.fixture(scope="module")
def server(site: Site, airflow: AirflowSite) -> Iterator[AirflowServer]:
    """The server, once the schedule has had its one run."""
    with airflow.running(DAG):
        until(lambda: runs_of(airflow.server), airflow.server)
        yield airflow.server


def runs_of(server: AirflowServer) -> list[str]:
    """Ids of the runs by schedule that have ended, oldest first."""
    runs = server.api("GET", f"/dags/{DAG}/dagRuns?order_by=run_after&limit=100")["dag_runs"]
    return [
        one["dag_run_id"] for one in runs if one["run_type"] == "scheduled" and one["state"] in ("success", "failed")
    ]


def until(what: Callable[[], Any], server: AirflowServer, seconds: float = 300, pause: float = 0.3) -> Any:
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


def outcomes(server: AirflowServer, asked: str) -> dict[str, str]:
    """How the latest attempts ended of what has this in its name, as the page *State stores* tells it to programs."""
    shown = stores_page(server, f"stores?q={quote(asked)}")["applications"]
    instances = [one for application in shown for one in application["instances"] if not one["state_dir"]]
    return {one["application_id"]: one["last"]["outcome"] for one in instances}


def ended(server: AirflowServer, **conf: Any) -> tuple[str, str]:
    """A run that somebody starts, and how it ended; without parameters it does what a run by schedule does."""
    run = server.trigger(DAG, conf)
    return run, server.wait(DAG, run)


def html(server: AirflowServer, asked: str) -> str:
    """The page for people, of the applications whose name has this in it."""
    token = call("POST", f"{server.url}/auth/token", {"username": server.user, "password": server.password})
    headers = {"Authorization": f"Bearer {token['access_token']}"}
    request = urllib.request.Request(f"{server.url}/state-stores/?q={quote(asked)}", headers=headers)
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=120) as response:
        return str(response.read().decode())


def test_a_run_by_schedule_advances_what_is_due_and_one_that_is_broken_keeps_none_waiting(
    server: AirflowServer, site: Site
) -> None:
    often, rarely, idle = (site.names[name] for name in ("often", "rarely", "idle"))
    first = runs_of(server)[0]
    assert mapped(server, first) == {often: "success", rarely: "success", idle: "success", "broken": "failed"}
    assert "expected a mapping" in server.why(DAG, first)
    assert outcomes(server, "broken") == {"broken": "failed"}
    assert outcomes(server, idle)[idle] in ("published", "unchanged")
    assert "The latest attempt failed" in html(server, "broken")
    assert "expected a mapping" in html(server, "broken")
    assert len(events_of(server, first)) == 3

    # Something is new of two, of which the interval of one is over; of the third nothing is new.
    before = {name: site.snapshots(name) for name in ("often", "rarely", "idle")}
    for name in ("often", "rarely"):
        site.produce(name, 30)
    made, state = ended(server)
    assert state == "failed"
    assert mapped(server, made) == {often: "success", "broken": "failed"}, server.why(DAG, made)
    entry, *earlier = site.snapshots("often")
    assert tuple(earlier) == before["often"]
    assert {name: site.snapshots(name) for name in ("rarely", "idle")} == {
        name: before[name] for name in ("rarely", "idle")
    }
    (event,) = events_of(server, made)
    assert (event["uri"], event["extra"]["snapshot"]) == (f"statecore://{often}/", entry.snapshot)
    said = server.task_log(DAG, made, next(task for task in server.tasks(DAG, made) if task.name == often))
    assert "read: 30 of 30" in said or "30 records" in said, said
    assert "starting Spark" not in said


@pytest.mark.full
def test_ticks_advance_each_application_at_its_interval(broker: Broker, tmp_path: Path) -> None:
    """With a server of its own, whose schedule ticks all the time."""
    with airflow_site(tmp_path, STATECORE_CHECKPOINT_TICK=f"{TICK}s") as airflow, airflow.running(DAG):
        server, site = airflow.server, Site(airflow, broker, OFTEN)
        until(lambda: all(site.snapshots(name) for name in site.names), server)
        before = {name: site.snapshots(name) for name in site.names}
        assert {name: len(found) for name, found in before.items()} == dict.fromkeys(site.names, 1)
        for name in ("often", "rarely"):
            site.produce(name, 30)
        until(lambda: len(site.snapshots("often")) == 2, server)
        entry, earlier = site.snapshots("often")
        assert earlier == before["often"][0]
        # Nothing is new of the idle one, although its interval is over: it gets no task, and no snapshot.
        made = until(lambda: made_in(server, entry.snapshot), server)
        assert set(mapped(server, made)) == {site.names["often"], "broken"}
        assert {name: site.snapshots(name) for name in ("rarely", "idle")} == {
            name: before[name] for name in ("rarely", "idle")
        }
        moments = [made_ms([one]) or 0 for one in site.snapshots("often")]
        assert moments[0] - moments[1] >= OFTEN * 1000 // 2


@pytest.mark.full
def test_a_long_tail_is_read_by_spark_and_the_report_says_so(server: AirflowServer, site: Site) -> None:
    site.produce("often", SPARK_FROM + 500)
    run, state = ended(server, applications=[site.path("often")])
    assert state == "success", server.why(DAG, run)
    summary = server.xcom(DAG, run, "checkpoint", map_index=0)
    assert (summary["master"], summary["totals"]["records"]) == (LOCAL, SPARK_FROM + 500)
    (task,) = [task for task in server.tasks(DAG, run) if task.task_id == "checkpoint"]
    log = server.task_log(DAG, run, task)
    assert f"Spark runs on {LOCAL}" in log
    assert not summary["notes"], "nothing has failed before"
    assert RESUMED_NOTE not in log
    assert summary["published"]["snapshot"] == site.snapshots("often")[0].snapshot


@pytest.mark.full
def test_a_task_that_is_marked_failed_takes_its_process_with_it(server: AirflowServer, site: Site) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # a broker that lets one in and never answers
        declared = {**spec("silent", ("by-id",)), "bootstrap_servers": f"127.0.0.1:{silent.getsockname()[1]}"}
        run = server.trigger(DAG, {"applications": [json.dumps(declared)], "force": True})
        (process,) = until(lambda: jobs_of(server, '"application_id":"silent"'), server)
        began = started_at(process)
        path = f"/dags/{DAG}/dagRuns/{quote(run)}/taskInstances/checkpoint/0"
        server.api("PATCH", path, {"new_state": "failed"})
        until(lambda: started_at(process) != began, server)
    assert server.wait(DAG, run) == "failed"


@pytest.mark.full
def test_an_application_whose_checkpoint_takes_long_keeps_no_other_waiting(server: AirflowServer, site: Site) -> None:
    run = server.trigger(DAG, {"applications": [site.path("rarely")], "force": True})
    stopped = until(lambda: jobs_of(server, site.path("rarely")), server, pause=0.02)
    for process in stopped:
        os.kill(process, signal.SIGSTOP)
    try:
        known = site.snapshots("often")
        site.produce("often", 30)
        ended(server)
        assert len(site.snapshots("often")) == len(known) + 1
        assert server.api("GET", f"/dags/{DAG}/dagRuns/{quote(run)}")["state"] == "running"
    finally:
        for process in stopped:
            os.kill(process, signal.SIGCONT)
    assert server.wait(DAG, run) == "success", server.why(DAG, run)


def jobs_of(server: AirflowServer, named: str) -> list[int]:
    """The processes on the worker that make a checkpoint of an application, by what its request says of it."""
    found = []
    for process in server.processes():
        with contextlib.suppress(OSError):
            said = Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
            if b"--local" in said and named.encode() in b" ".join(said):
                found.append(process)
    return found


def test_a_run_by_hand_makes_the_checkpoint_that_is_asked_for_and_says_no_secret(
    server: AirflowServer, site: Site
) -> None:
    before = site.snapshots("rarely")
    site.produce("rarely", 10)
    run, state = ended(server, applications=[site.path("rarely")], force=True)
    assert state == "success", server.why(DAG, run)
    assert len(site.snapshots("rarely")) == len(before) + 1
    assert s3_server.SECRET not in said_by(server, DAG, run, "checkpoint")
    again, state = ended(server, applications=[site.path("rarely")])
    assert state == "success", server.why(DAG, again)
    assert [task.state for task in server.tasks(DAG, again)] == ["success", "skipped"]
    assert len(site.snapshots("rarely")) == len(before) + 1


@pytest.mark.full
def test_an_application_that_cannot_be_checked_is_shown_as_failing(server: AirflowServer, site: Site) -> None:
    idle, path = site.names["idle"], site.path("idle")
    known = site.snapshots("idle")
    file = Path(path)
    declared = file.read_text()
    try:
        file.write_text(f"application_id: {idle}\nsubtopologies: none\n")
        ended(server)
        assert outcomes(server, idle) == {idle: "failed"}
        failed = html(server, idle)
        assert all(said in failed for said in ("The latest attempt failed", "expected a mapping", "Before that, "))
        assert ">-1<" not in failed
        file.unlink()
        ended(server)
        assert outcomes(server, path) == {path: "failed"}
        assert f"There is no spec {path}." in html(server, path)
    finally:
        file.write_text(declared)
    # Nothing is new, so there is no checkpoint: it is enough that somebody could look.
    ended(server)
    assert outcomes(server, idle)[idle] in ("published", "unchanged")
    assert outcomes(server, path) == {}
    assert site.snapshots("idle") == known
