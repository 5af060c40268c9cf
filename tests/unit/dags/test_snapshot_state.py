from __future__ import annotations

import json
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest
from airflow.sdk.exceptions import ParamValidationError

from tests.unit.airflow.stub import StubSpark, spec
from tests.unit.dags.loading import AIRFLOWS_OWN_WARNINGS, assert_explained, bag_of, load_dag
from tests.unit.dags.test_restore_stores import events, states, values

REPOSITORY = "file:///srv/states"

pytestmark = AIRFLOWS_OWN_WARNINGS
load = partial(load_dag, "snapshot_state")


def conf(*specs: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"applications": [json.dumps(one) for one in specs], "repository": REPOSITORY, **fields}


def test_the_dag_explains_itself_and_runs_by_itself_only_where_the_site_says_so() -> None:
    dag = load()
    assert "keeps running" in (dag.doc_md or "")
    assert dag.tags == {"statecore", "kafka-streams", "snapshot"}
    assert (dag.catchup, dag.max_active_runs, dag.schedule) == (False, 1, None)
    assert dag.task_dict["publish"].partial_kwargs["retries"] == 2
    assert_explained(dag, ("applications", "repository"))


def test_the_form_has_nothing_of_placing() -> None:
    shown = set(load().params)
    assert shown.isdisjoint({"state_dir", "staging_dir", "replace", "owner"})
    assert {"applications", "repository", "stores", "partitions", "versioned", "plan_only", "spark_conf"} <= shown


def test_without_a_default_of_the_site_a_run_has_to_name_the_repository() -> None:
    params = load().params
    params.update({"applications": ["/a.yaml"]})
    with pytest.raises(ParamValidationError, match="repository"):
        params.validate()


def test_the_site_sets_schedule_and_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATECORE_SNAPSHOT_SCHEDULE", "15 * * * *")
    monkeypatch.setenv("STATECORE_SPECS", "/srv/a.yaml")
    monkeypatch.setenv("STATECORE_REPOSITORY", REPOSITORY)
    dag = load()
    assert dag.schedule == "15 * * * *"
    validated = dag.params.validate()
    assert (validated["applications"], validated["repository"]) == (["/srv/a.yaml"], REPOSITORY)


@pytest.mark.parametrize("schedule", ["@once", "@continuous", "@hourly", "15 * * * *"])
def test_every_schedule_begins_and_catches_nothing_up(monkeypatch: pytest.MonkeyPatch, schedule: str) -> None:
    from airflow.serialization.serialized_objects import DagSerialization

    monkeypatch.setenv("STATECORE_SNAPSHOT_SCHEDULE", schedule)
    monkeypatch.setenv("STATECORE_SPECS", "/srv/a.yaml")
    monkeypatch.setenv("STATECORE_REPOSITORY", REPOSITORY)
    dag = DagSerialization.deserialize_dag(DagSerialization.serialize_dag(load()))
    first = dag.next_dagrun_info(last_automated_run_info=None)
    assert first is not None
    if schedule != "@once":
        assert abs((first.run_after - datetime.now(UTC)).total_seconds()) < 2 * 3600


def test_a_schedule_without_a_repository_is_an_import_error_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATECORE_SNAPSHOT_SCHEDULE", "@daily")
    monkeypatch.setenv("STATECORE_SPECS", "/srv/a.yaml")
    (said,) = bag_of("snapshot_state").import_errors.values()
    assert "Error code: setting-missing" in said
    assert "STATECORE_REPOSITORY" in said


def test_a_run_publishes_each_application_and_announces_each_snapshot(spark: StubSpark) -> None:
    run = load().test(run_conf=conf(spec("orders"), spec("billing", ("open",)), executor_memory="2g"))
    assert str(run.state) == "success"
    assert set(values(run, "publish")) == {"orders", "billing"}
    for call in spark.calls:
        request = json.loads(call["argv"][-1])
        assert request["repository"] == REPOSITORY
        assert not {"state_dir", "staging_dir", "replace", "owner"} & request.keys()
        assert "spark.executor.memory=2g" in call["argv"]
    announced = {event["uri"]: event["extra"] for event in events() if event["run"] == run.run_id}
    assert set(announced) == {"statecore://orders/", "statecore://billing/"}
    assert announced["statecore://orders/"]["snapshot"] == "snapshot-1"
    assert announced["statecore://orders/"]["repository"] == REPOSITORY


def test_one_that_fails_does_not_keep_the_others_from_being_published(spark: StubSpark) -> None:
    said = {"error": "Fenced", "exit_code": 11, "what": "Another job was first.", "action": "Look.", "context": {}}
    spark.behaves({"billing": said})
    run = load().test(run_conf=conf(spec("billing", ("open",)), spec("orders", ("by-id",))))
    assert str(run.state) == "failed"
    assert (states(run)["publish", 0], states(run)["publish", 1]) == ("failed", "success")
    assert [event["uri"] for event in events() if event["run"] == run.run_id] == ["statecore://orders/"]


def test_a_run_that_only_plans_announces_nothing(spark: StubSpark) -> None:
    run = load().test(run_conf=conf(spec("orders", ("by-id",)), plan_only=True))
    assert str(run.state) == "success"
    assert [event for event in events() if event["run"] == run.run_id] == []


def test_no_secret_is_in_the_rendered_templates(spark: StubSpark, monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.models.renderedtifields import RenderedTaskInstanceFields
    from airflow.utils.session import create_session

    connection = {"conn_type": "aws", "login": "AKIA", "password": "a-very-hushed-word"}
    monkeypatch.setenv("AIRFLOW_CONN_STORE", json.dumps(connection))
    monkeypatch.setenv("STATECORE_AWS_CONN", "store")
    run = load().test(run_conf=conf(spec("orders", ("by-id",)), repository="s3://states/production"))
    assert str(run.state) == "success"
    (call,) = spark.calls
    assert call["env"]["AWS_SECRET_ACCESS_KEY"] == "a-very-hushed-word"
    with create_session() as session:
        rendered = session.query(RenderedTaskInstanceFields).filter_by(run_id=run.run_id, task_id="publish").all()
        shown = [one.rendered_fields for one in rendered]
    assert "s3://states/production" in json.dumps(shown)
    assert "a-very-hushed-word" not in json.dumps(shown)
    assert "a-very-hushed-word" not in json.dumps(call["argv"])
