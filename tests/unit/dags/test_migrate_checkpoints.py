from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import ParamValidationError

from tests.unit.airflow.directory_change.migration_stub import asked, stub
from tests.unit.airflow.stub import StubSpark
from tests.unit.dags.loading import AIRFLOWS_OWN_WARNINGS, assert_explained, load_dag
from tests.unit.dags.test_restore_stores import states, values

pytestmark = AIRFLOWS_OWN_WARNINGS
load = partial(load_dag, "migrate_checkpoints")


@pytest.fixture
def spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StubSpark:
    return stub(tmp_path, monkeypatch)


def conf(*applications: str, **fields: Any) -> dict[str, Any]:
    directories = [{"application_id": one, "state_dir": "/srv/state"} for one in applications]
    return {"directories": directories, "to": "4.3", "approve": "none", **fields}


def validated(params: Any, given: dict[str, Any]) -> Any:
    params.update(given)
    return params.validate()


def outcome(run: Any) -> Any:
    (task,) = [one for one in run.get_task_instances() if one.task_id == "outcome"]
    return task.xcom_pull(task_ids="outcome")


def test_the_dag_explains_itself_and_never_runs_by_itself() -> None:
    dag = load()
    assert "Stop the applications first" in (dag.doc_md or "")
    assert dag.tags == {"statecore", "kafka-streams", "migrate"}
    assert (dag.catchup, dag.schedule) == (False, None)
    assert all(f"`{task}`" in (dag.doc_md or "") for task in dag.task_dict)
    assert_explained(dag, ("directories", "to"))


def test_a_run_has_to_name_directories_and_release() -> None:
    orders = [{"application_id": "a", "state_dir": "/srv"}]
    for given, lacks in (
        ({"to": "4.3"}, "directories"),
        ({"directories": [{"application_id": "a"}], "to": "4.3"}, "state_dir"),
        ({"directories": orders}, "Invalid input for param to"),
    ):
        params = load().params
        with pytest.raises(ParamValidationError, match=lacks):
            validated(params, given)


def test_a_run_does_every_directory_and_names_it_in_the_grid(spark: StubSpark) -> None:
    run = load().test(run_conf=conf("orders", "billing"))
    assert str(run.state) == "success"
    for task in ("plan", "migrate.apply", "migrate.verify"):
        assert set(values(run, task)) == {"orders", "billing"}
    assert [(one["application_id"], one["outcome"]) for one in outcome(run)] == [
        ("orders", "changed"),
        ("billing", "changed"),
    ]
    applied = [call["request"] for call in asked(spark) if call["request"].get("apply")]
    assert {(one["application_id"], one["approved"]) for one in applied} == {
        ("orders", "plan-1"),
        ("billing", "plan-1"),
    }
    assert spark.calls == []


@pytest.mark.full
def test_one_that_is_refused_fails_the_run_and_does_not_keep_the_others_from_being_done(
    spark: StubSpark, capsys: pytest.CaptureFixture[str]
) -> None:
    said = {
        "error": "Fenced",
        "code": "in-use",
        "exit_code": 11,
        "what": "It is in use.",
        "action": "Close it.",
        "context": {},
    }
    spark.behaves({"orders": said})
    run = load().test(run_conf=conf("orders", "billing"))
    assert str(run.state) == "failed"
    found = states(run)
    assert (found["plan", 0], found["plan", 1]) == ("failed", "success")
    assert (found["migrate.apply", 0], found["migrate.apply", 1]) == ("skipped", "success")
    assert (found["migrate.verify", 0], found["migrate.verify", 1]) == ("skipped", "success")
    assert found["outcome", -1] == "failed"
    assert "orders in /srv/state: not planned: Fenced (in-use)" in capsys.readouterr().out


def test_refused_parameters_fail_the_run_at_once(spark: StubSpark, capsys: pytest.CaptureFixture[str]) -> None:
    run = load().test(run_conf=conf("orders", aprove="none"))
    assert str(run.state) == "failed"
    (task,) = [one for one in run.get_task_instances() if one.task_id == "outcome"]
    assert (str(task.state), task.try_number) == ("failed", 1)
    said = capsys.readouterr().out
    assert "(parameter-unknown)" in said
    assert "read_directories failed" in said


@pytest.mark.full
def test_a_failed_application_is_not_verified_and_fails_the_run(spark: StubSpark) -> None:
    said = {"error": "Invalid", "exit_code": 13, "what": "It has changed.", "action": "Look.", "context": {}}
    spark.behaves({"orders": {"apply": said, "plan": {}}})
    run = load().test(run_conf=conf("orders", "billing"))
    assert str(run.state) == "failed"
    found = states(run)
    assert (found["migrate.apply", 0], found["migrate.verify", 0]) == ("failed", "upstream_failed")
    assert found["migrate.verify", 1] == "success"


@pytest.mark.full
def test_where_nothing_is_to_be_done_the_run_is_green_and_nothing_is_applied(
    spark: StubSpark, capsys: pytest.CaptureFixture[str]
) -> None:
    (spark.jobs / "orders.applied").touch()
    run = load().test(run_conf=conf("orders", approve="ask"))
    assert str(run.state) == "success"
    found = states(run)
    assert found["approve", -1] == "skipped"
    assert [one["outcome"] for one in outcome(run)] == ["nothing-to-do"]
    assert not [call for call in asked(spark) if call["request"].get("apply")]


@pytest.mark.full
def test_invalid_parameters_fail_the_run_before_any_inspection(spark: StubSpark) -> None:
    run = load().test(run_conf=conf("orders", "orders"))
    assert str(run.state) == "failed"
    assert states(run)["read_directories", -1] == "failed"
    assert asked(spark) == []


@pytest.mark.full
def test_with_spark_its_settings_are_those_of_the_run(spark: StubSpark) -> None:
    run = load().test(run_conf=conf("orders", engine="spark", executor_memory="2g"))
    assert str(run.state) == "success"
    (call,) = spark.calls
    assert "spark.executor.memory=2g" in call["argv"]
    assert json.loads(call["argv"][-1])["apply"]
