"""A real Airflow, driven through its public REST API: real scheduler, real task processes, real spark-submit.

Some runs submit a small script: what is tried is the way from the REST API to the driver and back. The others are of
the real job, on a real changelog.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from demo.airflow_server import AirflowFailed, AirflowServer, TaskStatus
from demo.stop import stop_all
from statecore.jobs.fields.declaration import declared_fields
from statecore.jobs.restore.request import RestoreRequest
from tests.harness import topics
from tests.harness.airflow_site import (
    LOCAL,
    REFUSAL,
    START_SECONDS,
    AirflowSite,
    clear,
    events_of,
    identities,
    spark_jobs,
    still_there,
    stores_page,
)
from tests.harness.broker import Broker
from tests.unit.airflow.stub import spec

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

DAG = "restore_stores"


@pytest.fixture(scope="module")
def server(airflow: AirflowSite) -> Iterator[AirflowServer]:
    with airflow.running(DAG):
        yield airflow.server


def conf(*applications: str, **fields: Any) -> dict[str, Any]:
    """Restores by the stub; nothing is published."""
    return {
        "applications": [json.dumps(spec(one)) for one in applications],
        "state_dir": "/nowhere/state",
        "repository": None,
        **fields,
    }


def by_name(tasks: list[TaskStatus], task_id: str) -> dict[str, str | None]:
    return {task.name: task.state for task in tasks if task.task_id == task_id}


def status_of(url: str) -> int:
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=120) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def test_a_run_succeeds_and_shows_progress_stores_and_events(server: AirflowServer) -> None:
    seen: list[TaskStatus] = []
    run = server.trigger(DAG, conf("orders", partitions=[0, 1]))
    state = server.wait(DAG, run, 300, on_change=seen.extend)
    assert state == "success", server.why(DAG, run)
    tasks = server.tasks(DAG, run)
    assert by_name(tasks, "restore") == {"orders": "success"}
    summary = server.xcom(DAG, run, "restore", map_index=0)
    assert summary["plan_id"] == f"plan-{DAG}/{run}/restore/0"
    assert summary["totals"]["records"] == 2000
    (restore,) = [task for task in tasks if task.task_id == "restore"]
    log = server.task_log(DAG, run, restore)
    assert "an ordinary line" in log
    assert "read: 100 of 100 records" in log
    assert "STATECORE_PROGRESS" not in log
    path = f"/dags/{DAG}/dagRuns/{quote(run)}/taskInstances/restore/state-store?map_index=0"
    progress = server.api("GET", path)
    assert [(one["key"], one["value"]["count"]) for one in progress["task_state_store"]] == [("progress", 100)]
    assert server.api("GET", "/plugins/importErrors")["import_errors"] == []
    assert {(one["uri"], one["extra"]["rows"]) for one in events_of(server, run)} == {
        ("statecore://orders/by-id", 800),
        ("statecore://orders/clicks", 800),
    }


def test_a_job_that_refuses_fails_the_run_at_once_with_the_reason_in_the_log(server: AirflowServer) -> None:
    run = server.trigger(DAG, conf("refusing"))
    assert server.wait(DAG, run) == "failed"
    (restore,) = [task for task in server.tasks(DAG, run) if task.task_id == "restore"]
    assert (restore.state, restore.try_number) == ("failed", 1)
    why = server.why(DAG, run)
    assert f"NotFound (topic-not-found): {REFUSAL['what']}" in why
    assert f"What to do: {REFUSAL['action']}" in why


def test_the_real_job_restores_a_changelog_publishes_it_and_refuses_to_overwrite_it(
    server: AirflowServer, airflow: AirflowSite, broker: Broker, application_id: str, state_dir: Path
) -> None:
    parameters = fed(broker, application_id, state_dir)
    run = server.trigger(DAG, parameters)
    assert server.wait(DAG, run) == "success", server.why(DAG, run)
    (restore,) = [task for task in server.tasks(DAG, run) if task.task_id == "restore"]
    log = server.task_log(DAG, run, restore)
    for phase in ("starting Spark", "loading", "plan", "wait for Spark", "read", "build", "place"):
        assert f"{phase}: " in log, log
    summary = server.xcom(DAG, run, "restore", map_index=0)
    assert (summary["master"], summary["repository"]) == (LOCAL, airflow.repository)
    part = server.xcom(DAG, run, "restore", "store_by-id", map_index=0)
    assert (part["totals"]["records"], part["totals"]["rows"]) == (5000, 500)
    assert part["committed_offsets"] == {"0": 2499, "1": 2499}
    for task in ("0_0", "0_1"):
        assert (state_dir / application_id / task / "rocksdb" / "by-id" / "CURRENT").is_file()
    announced = {one["uri"]: one["extra"] for one in events_of(server, run)}
    assert announced.keys() == {f"statecore://{application_id}/", f"statecore://{application_id}/by-id"}
    assert announced[f"statecore://{application_id}/"]["snapshot"] == summary["published"]["snapshot"]
    assert announced[f"statecore://{application_id}/by-id"]["state_dir"] == str(state_dir)
    again = server.trigger(DAG, {**parameters, "start_from": "none"})
    assert server.wait(DAG, again) == "failed"
    assert "JobRefused: Invalid (placement-refused): " in server.why(DAG, again)
    assert events_of(server, again) == []
    # The failure is not hidden by the success before it.
    (shown,) = stores_page(server, f"stores?q={application_id}")["applications"]
    (here,) = shown["instances"]
    assert (here["state_dir"], [part["task"] for part in here["partitions"]]) == (str(state_dir), ["0_0", "0_1"])
    assert (here["last"]["outcome"], here["last"]["error"]["error"]) == ("failed", "Invalid")
    assert here["last_restored"]["attempt"]["request_id"] == f"{DAG}/{run}/restore/0"
    assert here["host"] == here["last"]["attempt"]["host"] == socket.gethostname()


@pytest.mark.full
def test_a_plan_changes_nothing_and_the_page_lists_each_directory(
    server: AirflowServer, broker: Broker, application_id: str, state_dir: Path
) -> None:
    parameters = {**fed(broker, application_id, state_dir), "repository": None}
    plan = server.trigger(DAG, {**parameters, "plan_only": True})
    assert server.wait(DAG, plan) == "success", server.why(DAG, plan)
    shown = server.xcom(DAG, plan, "restore", "plan", map_index=0)
    assert [(one["task"], one["start"], one["end"]) for one in shown["partitions"]] == [
        ("0_0", 0, 2500),
        ("0_1", 0, 2500),
    ]
    assert events_of(server, plan) == []
    assert not state_dir.exists() or not any(state_dir.iterdir())
    elsewhere = {**parameters, "state_dir": f"{state_dir}-elsewhere", "partitions": [1]}
    runs = [server.trigger(DAG, one) for one in (parameters, elsewhere)]
    for run in runs:
        assert server.wait(DAG, run) == "success", server.why(DAG, run)
    (page,) = stores_page(server, f"stores?q={application_id}")["applications"]
    found = {one["state_dir"]: one for one in page["instances"]}
    assert {where: [part["task"] for part in one["partitions"]] for where, one in found.items()} == {
        str(state_dir): ["0_0", "0_1"],
        f"{state_dir}-elsewhere": ["0_1"],
    }
    assert [{one["extra"]["state_dir"] for one in events_of(server, run)} for run in runs] == [
        {str(state_dir)},
        {f"{state_dir}-elsewhere"},
    ]


def fed(broker: Broker, application_id: str, state_dir: Path) -> dict[str, Any]:
    """The parameters that restore an application whose changelog has 5000 records of 500 keys."""
    topic = f"{application_id}-by-id-changelog"
    topics.create(broker.bootstrap_servers, topic, 2, topics.UNCLEANED)
    records = [topics.Record(b"key-%d" % (n % 500), b"value-%d" % n, n % 2) for n in range(5000)]
    topics.produce(broker.bootstrap_servers, topic, records)
    return {"applications": [json.dumps(real_spec(broker, application_id))], "state_dir": str(state_dir)}


@pytest.mark.full
def test_what_was_cleared_and_what_failed_lose_no_event_and_double_none(
    server: AirflowServer, broker: Broker, application_id: str, state_dir: Path
) -> None:
    """One of two applications fails, is repaired, and cleared; then everything is cleared."""
    whole, broken = f"{application_id}-whole", f"{application_id}-broken"
    produce_changelog(broker, whole)
    specs = [json.dumps(real_spec(broker, one)) for one in (whole, broken)]
    run = server.trigger(DAG, {"applications": specs, "state_dir": str(state_dir), "repository": None})
    assert server.wait(DAG, run) == "failed"
    assert by_name(server.tasks(DAG, run), "restore") == {whole: "success", broken: "failed"}
    (first,) = events_of(server, run)
    assert first["uri"] == f"statecore://{whole}/by-id"
    produce_changelog(broker, broken)  # the topic that was missing
    clear(server, DAG, run, only_failed=True)
    assert server.wait(DAG, run) == "success", server.why(DAG, run)
    announced = events_of(server, run)
    assert [one["uri"] for one in announced] == [f"statecore://{one}/by-id" for one in (whole, broken)]
    assert announced[0] == first
    clear(server, DAG, run, only_failed=False)
    assert server.wait(DAG, run) == "success", server.why(DAG, run)
    (again,) = [task for task in server.tasks(DAG, run) if task.name == broken]
    assert "nothing was changed" in server.task_log(DAG, run, again)
    assert events_of(server, run) == announced
    # The scheduler makes new assets active within a minute; they have their group before.
    found = server.api("GET", f"/assets?only_active=false&uri_pattern={application_id}")["assets"]
    groups = {one["uri"]: one["group"] for one in found}
    assert groups == {f"statecore://{one}/by-id": "statecore" for one in (whole, broken)}


def produce_changelog(broker: Broker, application_id: str) -> None:
    topic = f"{application_id}-by-id-changelog"
    topics.create(broker.bootstrap_servers, topic, 1, topics.UNCLEANED)
    topics.produce(broker.bootstrap_servers, topic, [topics.Record(b"key-%d" % n, b"value", 0) for n in range(100)])


def real_spec(broker: Broker, application_id: str) -> dict[str, Any]:
    """What the real job restores."""
    return {
        **spec(application_id, ("by-id",)),
        "bootstrap_servers": broker.bootstrap_servers,
        "processing_guarantee": "at_least_once",
    }


@pytest.mark.parametrize("wrong", [{"applications": []}, {"partitions": [-1]}, {"state_dir": ""}], ids=str)
def test_parameters_of_the_wrong_shape_are_refused_by_the_api(server: AirflowServer, wrong: dict[str, Any]) -> None:
    with pytest.raises(AirflowFailed, match=f"400 .*{next(iter(wrong))}"):
        server.trigger(DAG, {**conf("orders"), **wrong})


def test_the_form_shows_what_a_request_declares(server: AirflowServer) -> None:
    """As the page of the Dag gets it: what Airflow has kept of the Params."""
    shown = server.api("GET", f"/dags/{DAG}/details")["params"]
    for name, declared in declared_fields(RestoreRequest).items():
        assert (name in shown) is declared.declaration.in_form
        if name in shown:
            schema = shown[name]["schema"]
            assert (schema["title"], schema.get("section")) == (
                declared.declaration.title,
                declared.declaration.section,
            )
            assert shown[name]["description"].lower().startswith(declared.declaration.help.lower())
    values = {name: one["value"] for name, one in shown.items()}
    assert (values["memory_budget"], values["transaction_wait"], values["versioned"]) == ("512m", 30, "history")
    assert shown["versioned"]["schema"]["enum"] == ["history", "latest"]
    assert values["state_dir"] is None


def test_the_ui_requires_a_password(server: AirflowServer) -> None:
    assert status_of(f"{server.url}/api/v2/dags") == 401
    assert status_of(f"{server.url}/state-stores/") == 401
    assert status_of(f"{server.url}/state-stores/stores") == 401
    assert status_of(f"{server.url}/api/v2/monitor/health") == 200


@pytest.mark.full
def test_stopping_it_in_the_middle_of_a_job_leaves_no_process(tmp_path: Path) -> None:
    """Also when the parent was killed, which leaves its four children and a job behind."""
    home = tmp_path / "airflow"
    jobs = spark_jobs(tmp_path / "spark_jobs")
    started = jobs / "slow.started"
    one = AirflowServer(home, spark_master=LOCAL, environment={"STATECORE_SPARK_JOBS": str(jobs)})
    try:
        one.start().wait_healthy(START_SECONDS)
        one.trigger(DAG, conf("slow"))
        deadline = time.monotonic() + 240
        while not started.exists() and time.monotonic() < deadline:
            time.sleep(0.2)
        assert started.exists()
        running = identities(one)
        assert len(running) > 6  # parent, four children, the task, spark-submit's JVM, the driver
        parent = one.pid
        assert parent is not None
        os.kill(parent, signal.SIGKILL)
        one._child.wait()  # type: ignore[union-attr]
        assert not one.running
        assert len(one.processes()) > 5
        assert stop_all(tmp_path) == [f"Airflow in {home}"]
        assert one.processes() == []
        assert still_there(running) == []
        assert stop_all(tmp_path) == []
    finally:
        one.stop()


def test_a_running_server_can_be_attached_to_and_not_started_again(server: AirflowServer) -> None:
    found = AirflowServer.attach(server.home)
    assert found is not None
    assert (found.url, found.user, found.password) == (server.url, server.user, server.password)
    with pytest.raises(AirflowFailed, match="already"):
        AirflowServer(server.home).start()
