from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk.exceptions import ParamValidationError

from statecore.airflow import failures
from statecore.airflow.requests import restore_requests
from statecore.errors import Invalid
from tests.harness.raising import raises
from tests.unit.airflow.home import ROOT
from tests.unit.airflow.stub import StubSpark, spec
from tests.unit.dags.loading import AIRFLOWS_OWN_WARNINGS, assert_explained, load_dag

DAGS = ROOT / "dags"

pytestmark = AIRFLOWS_OWN_WARNINGS
load = partial(load_dag, "restore_stores")


def conf(*specs: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"applications": [json.dumps(one) for one in specs], "state_dir": "/state", **fields}


def states(run: Any) -> dict[tuple[str, int], str]:
    return {(one.task_id, one.map_index): str(one.state) for one in run.get_task_instances()}


def values(run: Any, task_id: str) -> dict[str, Any]:
    return {one.rendered_map_index: one for one in run.get_task_instances() if one.task_id == task_id}


def events() -> Iterator[dict[str, Any]]:
    from airflow.models.asset import AssetEvent
    from airflow.utils.session import create_session

    with create_session() as session:
        for event in session.query(AssetEvent).order_by(AssetEvent.id):
            yield {"uri": event.uri, "extra": event.extra, "run": event.source_run_id}


def test_every_dag_file_is_read_without_an_error() -> None:
    bag = DagBag(str(DAGS))
    assert bag.import_errors == {}
    assert set(bag.dags) == {
        *(
            "checkpoint_stores",
            "migrate_checkpoints",
            "recover_global_stores",
            "restore_stores",
            "snapshot_state",
            "prune_snapshots",
            "verify_snapshots",
        )
    }


def test_pyspark_is_not_imported_by_reading_the_dag_file() -> None:
    before = set(sys.modules)
    load()
    assert not [name for name in set(sys.modules) - before if name.split(".")[0] == "pyspark"]


def test_the_dag_explains_itself() -> None:
    dag = load()
    assert "Stop the application first" in (dag.doc_md or "")
    assert "holds the stores already is refused" not in (dag.doc_md or "")
    assert dag.tags == {"statecore", "kafka-streams", "restore"}
    assert dag.catchup is False
    # The form opens its first section, of parameters without one: what a run has to name must not be folded away.
    assert_explained(dag, ("applications", "directories", "state_dir"))


@pytest.mark.parametrize(
    "wrong",
    [
        {"applications": []},
        {"applications": ["/a.yaml", 3]},
        {"applications": "/a.yaml"},
        {"directories": []},
        {"directories": [{"spec_path": "/a.yaml"}]},
        {"directories": [{"spec_path": "/a.yaml", "state_dir": "/s", "path": "/t"}]},
        {"partitions": [-1]},
        {"partitions": ["0"]},
        {"stores": [""]},
        {"state_dir": ""},
        {"replace": "yes"},
        {"memory_budget": "much"},
        {"transaction_wait": -1},
        {"spark_conf": ["cores=8"]},
        {"executor_cores": 0},
        {"executor_memory": "much"},
    ],
    ids=str,
)
def test_parameters_of_the_wrong_shape_are_refused(wrong: dict[str, Any]) -> None:
    params = load().params
    params.update({"applications": ["/a.yaml"], "state_dir": "/s"})
    with pytest.raises(ParamValidationError):
        params.update(wrong)


def test_parameters_of_the_right_shape_are_taken() -> None:
    params = load().params
    right = {
        "applications": ["/a.yaml", '{"application_id": "b"}'],
        "directories": [{"spec_path": "/a.yaml", "state_dir": "/s", "host": "a", "queue": "q"}],
        "stores": ["x"],
        "partitions": [0, 3],
        "state_dir": "/s",
        "repository": "s3://bucket/prefix",
        "replace": True,
        "plan_only": True,
        "staging_dir": "/shared",
        "memory_budget": "512m",
        "transaction_wait": 1.5,
        "start_from": "none",
        "versioned": "latest",
        "owner": "kafka:4243",
        "accept_cluster": "lkc-8x2k1q",
        "spark_conf": ["spark.cores.max=8"],
        "executor_python": "/opt/python",
        "executor_memory": "2g",
        "executor_cores": 2,
        "executor_archives": ["/srv/environment.tar.gz#environment"],
    }
    params.update(right)
    assert params.validate() == right


@pytest.mark.full
def test_stores_and_partitions_may_be_left_empty(spark: StubSpark) -> None:
    run = load().test(run_conf=conf(spec(), stores=None, partitions=None))
    assert str(run.state) == "success"
    assert [event["uri"] for event in events() if event["run"] == run.run_id] == [
        "statecore://orders/by-id",
        "statecore://orders/clicks",
    ]


def test_without_a_default_of_the_site_a_run_has_to_name_the_applications() -> None:
    params = load().params
    params.update({name: value for name, value in conf(spec()).items() if name != "applications"})
    with raises(Invalid, "applications-missing"):
        restore_requests(params.validate())


def test_a_run_chooses_its_applications_from_those_of_the_site(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATECORE_SPECS", "/srv/a.yaml:/srv/b.yaml")
    applications = load().params.get_param("applications")
    assert (applications.value, applications.schema["examples"]) == (None, ["/srv/a.yaml", "/srv/b.yaml"])


def test_runs_of_different_directories_do_not_wait_for_each_other() -> None:
    assert load().max_active_runs > 1


def test_each_directory_has_its_own_path_and_machine(spark: StubSpark, tmp_path: Path) -> None:
    file = tmp_path / "stores.yaml"
    file.write_text(json.dumps(spec()))
    here, there = {"state_dir": "/srv/a"}, {"state_dir": "/srv/b", "host": "another", "queue": "another"}
    directories = [{"spec_path": str(file), **place} for place in (here, there)]
    run = load().test(run_conf={"directories": directories})
    found = states(run)
    assert (found["restore", 0], found["restore", 1]) == ("success", "failed")
    (call,) = spark.calls
    assert json.loads(call["argv"][-1])["state_dir"] == "/srv/a"
    reports = [json.loads(one.read_text()) for one in (tmp_path / "reports" / "orders").glob("restore_stores*.json")]
    assert {one["state_dir"]: one.get("code") for one in reports} == {"/srv/a": None, "/srv/b": "host-mismatch"}


def test_a_run_has_to_name_a_state_directory_or_a_repository() -> None:
    params = load().params
    params.update({name: value for name, value in conf(spec()).items() if name != "state_dir"})
    with raises(Invalid, "option-missing", option="state_dir"):
        restore_requests(params.validate())
    params.update({"repository": "file:///srv/states"})
    assert len(restore_requests(params.validate())) == 1


def test_the_site_sets_defaults_by_environment_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATECORE_SPECS", "/srv/a.yaml:/srv/b.yaml")
    monkeypatch.setenv("STATECORE_STATE_DIR", "/srv/state")
    monkeypatch.setenv("STATECORE_STAGING_DIR", "/srv/staging")
    monkeypatch.setenv("STATECORE_REPOSITORY", "file:///srv/states")
    dag = load()
    validated = dag.params.validate()
    assert validated["state_dir"] == "/srv/state"
    assert validated["staging_dir"] == "/srv/staging"
    assert validated["repository"] == "file:///srv/states"


def test_a_run_restores_every_application_and_announces_every_store(spark: StubSpark) -> None:
    run = load().test(run_conf=conf(spec("orders", ("by-id", "clicks")), spec("billing", ("open",)), partitions=[4]))
    assert str(run.state) == "success"
    assert set(values(run, "restore")) == {"orders", "billing"}
    assert len(spark.calls) == 2
    announced = {event["uri"]: event["extra"] for event in events() if event["run"] == run.run_id}
    assert set(announced) == {"statecore://orders/by-id", "statecore://orders/clicks", "statecore://billing/open"}
    assert announced["statecore://orders/by-id"]["committed_offsets"] == {"4": 499}
    assert announced["statecore://orders/by-id"]["rows"] == 400


@pytest.mark.full
def test_what_a_run_says_of_spark_is_submitted(spark: StubSpark) -> None:
    said = {"spark_conf": ["spark.cores.max=8"], "executor_memory": "2g"}
    run = load().test(run_conf=conf(spec("orders"), spec("billing"), **said))
    assert str(run.state) == "success"
    assert len(spark.calls) == 2
    for call in spark.calls:
        assert {"spark.cores.max=8", "spark.executor.memory=2g"} <= set(call["argv"])


def test_a_failed_application_fails_the_run_and_the_others_stores_are_published(spark: StubSpark) -> None:
    said = {"error": "Fenced", "exit_code": 11, "what": "The application runs.", "action": "Stop it.", "context": {}}
    spark.behaves({"billing": said})
    run = load().test(run_conf=conf(spec("billing", ("open",)), spec("orders", ("by-id",))))
    assert str(run.state) == "failed"
    found = states(run)
    assert (found["restore", 0], found["restore", 1]) == ("failed", "success")
    assert [event["uri"] for event in events() if event["run"] == run.run_id] == ["statecore://orders/by-id"]
    assert len(spark.calls) == 2  # what was refused was not tried again


def test_a_run_that_only_plans_shows_the_plan_and_announces_nothing(spark: StubSpark) -> None:
    run = load().test(run_conf=conf(spec("orders", ("by-id",)), plan_only=True, staging_dir="/shared"))
    assert str(run.state) == "success"
    (call,) = spark.calls
    request = json.loads(call["argv"][-1])
    assert (request["plan_only"], request["staging_dir"]) == (True, "/shared")
    assert [event for event in events() if event["run"] == run.run_id] == []


def test_a_relative_state_directory_fails_before_any_spark_is_started(spark: StubSpark) -> None:
    run = load().test(run_conf={**conf(spec()), "state_dir": "state"})
    assert states(run)["read_specs", -1] == "failed"
    assert spark.calls == []


def test_a_spec_that_does_not_exist_fails_before_any_spark_is_started_and_is_shown(
    spark: StubSpark, tmp_path: Path
) -> None:
    run = load().test(run_conf={"applications": ["/nowhere/stores.yaml"], "state_dir": "/state"})
    assert str(run.state) == "failed"
    assert states(run)["read_specs", -1] == "failed"
    assert spark.calls == []
    (report,) = (tmp_path / "reports").glob("*/refused-spec.json")
    assert json.loads(report.read_text())["code"] == "spec-not-found"


def test_a_broker_that_is_away_is_tried_again(spark: StubSpark) -> None:
    task = load().task_dict["restore"]
    assert task.partial_kwargs["retries"] == 2
    assert {rule.exception for rule in task.partial_kwargs["retry_policy"].rules} == {
        f"{failures.__name__}.{name}" for name in ("JobCapacity", "JobUnavailable")
    }
