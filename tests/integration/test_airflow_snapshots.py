"""``snapshot_state`` and ``restore_stores`` with a repository: real Airflow, Spark, Kafka, and a real S3 server.

The credentials of the server come from an Airflow connection; nothing else on this machine has any.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from demo.airflow_server import AirflowServer
from statecore.repository.application_repository import ApplicationRepository
from tests.harness import s3_server, topics
from tests.harness.airflow_site import AirflowSite, airflow_site, clear, events_of, stores_page
from tests.harness.broker import Broker
from tests.unit.airflow.stub import spec

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

DAG = "snapshot_state"


@pytest.fixture(scope="module")
def bucket(airflow: AirflowSite) -> str:
    return airflow.repository


@pytest.fixture(scope="module")
def server(airflow: AirflowSite) -> Iterator[AirflowServer]:
    with airflow.running(DAG, "restore_stores"):
        yield airflow.server


@pytest.fixture
def application(broker: Broker, application_id: str) -> dict[str, Any]:
    return made(broker, application_id)


def made(broker: Broker, application_id: str) -> dict[str, Any]:
    """An application with a changelog."""
    produce(broker, application_id, create=True)
    return {
        **spec(application_id, ("by-id",)),
        "bootstrap_servers": broker.bootstrap_servers,
        "processing_guarantee": "at_least_once",
    }


def produce(broker: Broker, application_id: str, *, create: bool = False) -> None:
    topic = f"{application_id}-by-id-changelog"
    if create:
        topics.create(broker.bootstrap_servers, topic, 2, topics.UNCLEANED)
    records = [topics.Record(b"key-%d" % (n % 50), b"value-%d" % n, n % 2) for n in range(500)]
    topics.produce(broker.bootstrap_servers, topic, records)


def newest(bucket: str, application_id: str, patch: pytest.MonkeyPatch) -> Any:
    """What the head names."""
    for name, value in s3_server.CREDENTIALS.items():
        patch.setenv(name, value)
    return ApplicationRepository.open(bucket, application_id).head()


def finished(server: AirflowServer, dag: str, run: str) -> None:
    assert server.wait(dag, run) == "success", server.why(dag, run)


def said_by(server: AirflowServer, dag: str, run: str, task_id: str) -> str:
    """The log of every try of a task, its rendered templates, its XComs and its Storage."""
    (task,) = [task for task in server.tasks(dag, run) if task.task_id == task_id]
    path = f"/dags/{dag}/dagRuns/{quote(run)}/taskInstances/{task_id}"
    rendered = server.api("GET", f"{path}/{task.map_index}")
    assert rendered["rendered_fields"]
    state = server.api("GET", f"{path}/state-store?map_index={task.map_index}")
    values = server.api("GET", f"{path}/xcomEntries?map_index={task.map_index}")
    shown = [
        server.xcom(dag, run, task_id, one["key"], map_index=task.map_index)
        for one in values["xcom_entries"]
        if not one["key"].startswith("_")
    ]
    return "\n".join([server.task_log(dag, run, task), *map(json.dumps, (rendered, state, shown))])


def test_a_run_publishes_a_snapshot_and_announces_it_once_also_when_it_is_cleared(
    server: AirflowServer,
    broker: Broker,
    application: dict[str, Any],
    bucket: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    application_id = application["application_id"]
    parameters = {"applications": [json.dumps(application)]}
    run = server.trigger(DAG, parameters)
    finished(server, DAG, run)
    summary = server.xcom(DAG, run, "publish", map_index=0)
    (entry,) = newest(bucket, application_id, monkeypatch).snapshots
    published = summary["published"]
    assert (published["snapshot"], published["identity"]) == (entry.snapshot, entry.identity)
    assert (summary["repository"], summary["state_dir"]) == (bucket, "")
    assert summary["totals"]["records"] == 500
    (event,) = events_of(server, run)
    assert event["uri"] == f"statecore://{application_id}/"
    assert event["extra"] == {
        "application_id": application_id,
        "repository": bucket,
        "snapshot": entry.snapshot,
        "identity": entry.identity,
        "created_at": entry.created_at,
        "tasks": 2,
        "bytes": entry.file_bytes,
        "new_bytes": entry.new_bytes,
        "plan_id": summary["plan_id"],
    }
    said = said_by(server, DAG, run, "publish")
    assert f"snapshot {entry.snapshot} published in {bucket}: 2 tasks" in said
    assert s3_server.SECRET not in said
    # Everything is cleared: the same plan, found published, and not announced again.
    produce(broker, application_id)
    clear(server, DAG, run)
    finished(server, DAG, run)
    assert events_of(server, run) == [event]
    assert newest(bucket, application_id, monkeypatch).snapshots == (entry,)
    again = said_by(server, DAG, run, "publish")
    assert f"snapshot {entry.snapshot} was published" in again
    assert s3_server.SECRET not in again
    shown_as_published(server, application_id, bucket, entry.snapshot)


@pytest.mark.full
def test_the_site_schedule_publishes_and_a_later_run_advances(
    broker: Broker, application_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a server of its own: the schedule is a setting that all runs of a server have."""
    scheduled = made(broker, application_id)
    stores = tmp_path / "stores.yaml"
    stores.write_text(json.dumps(scheduled))
    settings = {"STATECORE_SPECS": str(stores), "STATECORE_SNAPSHOT_SCHEDULE": "@yearly"}
    with airflow_site(tmp_path, **settings) as airflow, airflow.running(DAG):
        server, bucket = airflow.server, airflow.repository
        deadline = time.monotonic() + 300
        runs: list[dict[str, Any]] = []
        while not runs and time.monotonic() < deadline:
            time.sleep(0.3)
            found = server.api("GET", f"/dags/{DAG}/dagRuns")["dag_runs"]
            runs = [one for one in found if one["run_type"] == "scheduled"]
        (run,) = runs
        finished(server, DAG, run["dag_run_id"])
        (event,) = events_of(server, run["dag_run_id"])
        assert event["uri"] == f"statecore://{application_id}/"
        (entry,) = newest(bucket, application_id, monkeypatch).snapshots
        assert event["extra"]["snapshot"] == entry.snapshot
        # The scheduler makes new assets active within a minute; they have their group before.
        found = server.api("GET", f"/assets?only_active=false&uri_pattern={application_id}")["assets"]
        assert [(one["uri"], one["group"]) for one in found] == [(event["uri"], "statecore")]
        produce(broker, application_id)
        later = server.trigger(DAG, {})
        finished(server, DAG, later)
        heads = newest(bucket, application_id, monkeypatch).snapshots
        assert heads[1:] == (entry,)
        assert [one["extra"]["snapshot"] for one in events_of(server, later)] == [heads[0].snapshot]


def shown_as_published(server: AirflowServer, application_id: str, bucket: str, snapshot: str) -> None:
    """The page has no state directory of it."""
    (shown,) = stores_page(server, f"stores?q={application_id}")["applications"]
    (one,) = shown["instances"]
    assert (one["state_dir"], one["last"]["outcome"], one["last_restored"]) == ("", "published", None)
    assert (one["last_published"]["snapshot"], one["last_published"]["repository"]) == (snapshot, bucket)


@pytest.mark.full
def test_a_restore_with_a_repository_announces_its_stores_and_its_snapshot_once(
    server: AirflowServer,
    application: dict[str, Any],
    bucket: str,
    state_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    application_id = application["application_id"]
    run = server.trigger(
        "restore_stores", {"applications": [json.dumps(application)], "state_dir": str(state_dir), "repository": bucket}
    )
    finished(server, "restore_stores", run)
    announced = events_of(server, run)
    store, snapshot = (f"statecore://{application_id}/by-id", f"statecore://{application_id}/")
    assert sorted(one["uri"] for one in announced) == [snapshot, store]
    (entry,) = newest(bucket, application_id, monkeypatch).snapshots
    assert {one["extra"].get("snapshot") for one in announced} == {entry.snapshot, None}
    clear(server, "restore_stores", run)
    finished(server, "restore_stores", run)
    assert events_of(server, run) == announced
    assert newest(bucket, application_id, monkeypatch).snapshots == (entry,)
    assert s3_server.SECRET not in json.dumps(announced)


@pytest.mark.full
def test_a_state_directory_is_no_parameter_of_a_snapshot(server: AirflowServer, application: dict[str, Any]) -> None:
    run = server.trigger(DAG, {"applications": [json.dumps(application)], "state_dir": "/nowhere"})
    assert server.wait(DAG, run) == "failed"
    assert "Invalid (parameter-unknown): " in server.why(DAG, run)
