from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowSkipException

from statecore.airflow.directory_change.operator import CHANGES, StatecoreDirectoryChangeOperator
from statecore.airflow.failures import JobRefused, JobUnavailable
from statecore.airflow.worker_operator import PROGRAM
from statecore.jobs import program
from tests.unit.airflow.directory_change.migration_stub import asked, stub
from tests.unit.airflow.stub import StubSpark, spec
from tests.unit.airflow.test_operators import context

FENCED = {"error": "Fenced", "exit_code": 11, "what": "It is in use.", "action": "Close it.", "context": {}}


@pytest.fixture
def spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StubSpark:
    return stub(tmp_path, monkeypatch)


def operator(
    step: str, spark: StubSpark, options: dict[str, Any] | None = None, **fields: Any
) -> StatecoreDirectoryChangeOperator:
    entry = {
        "title": "orders",
        "name": "statecore migrate orders",
        "application_id": "orders",
        "host": None,
        "engine": "processes",
        "request": {"application_id": "orders", "state_dir": "/srv/state", "to": "4.3"},
        "plan_id": "plan-1",
        "why": "",
        **fields,
    }
    job = str(spark.jobs / "migrate_checkpoints.py")
    return StatecoreDirectoryChangeOperator(
        task_id=step, change="migrate", step=step, application=job, **entry, **(options or {})
    )


def test_commands_are_verbs_of_the_program() -> None:
    assert program.__name__ == PROGRAM
    assert {change.command for change in CHANGES.values()} | {"diagnose", "checkpoint"} <= program.PROGRAMS.keys()


@pytest.mark.parametrize("step", ["plan", "verify"])
def test_an_inspection_requests_no_change(spark: StubSpark, step: str) -> None:
    (spark.jobs / "orders.applied").touch()
    found = operator(step, spark).execute(context())
    (call,) = asked(spark)
    assert call["local"]
    assert call["request"] == {
        "application_id": "orders",
        "state_dir": "/srv/state",
        "to": "4.3",
        "request_id": "a_dag/manual__1/restore/2",
    }
    assert (found["outcome"], found["changed"]) == ("nothing to do", 0)


def test_what_is_applied_is_the_plan_that_was_approved(spark: StubSpark) -> None:
    found = operator("apply", spark).execute(context())
    (call,) = asked(spark)
    assert (call["request"]["apply"], call["request"]["approved"]) == (True, "plan-1")
    assert (found["outcome"], found["plan_id"]) == ("migrated", "plan-1")


def test_without_an_approved_plan_nothing_is_started(spark: StubSpark) -> None:
    with pytest.raises(AirflowSkipException, match=r"It is whole\."):
        operator("apply", spark, plan_id="", why="It is whole.").execute(context())
    assert asked(spark) == []


def test_the_report_is_not_in_the_directory_of_restore_reports(spark: StubSpark, tmp_path: Path) -> None:
    found = operator("plan", spark).execute(context())
    assert Path(found["report"]).parent == tmp_path / "reports" / "orders" / "migrations"
    assert json.loads(Path(found["report"]).read_text())["plan_id"] == "plan-1"
    assert found["done"]["rows"][0]["what"].endswith("which says its offset")


def test_a_directory_that_is_refused_fails_at_once_with_all_reasons(spark: StubSpark) -> None:
    tasks: list[dict[str, Any]] = [
        {"task": f"0_{n}", "seen": "4.2", "stores": [], "steps": [], "left": [], "notes": [], "refused": [f"why {n}"]}
        for n in range(2)
    ]
    spark.behaves(
        {"orders": {"outcome": "refused", "tasks": [*tasks, {**tasks[0], "task": "1_0", "refused": ["other"]}]}}
    )
    asked_for = context()
    with pytest.raises(JobRefused) as refused:
        operator("plan", spark).execute(asked_for)
    assert asked_for["ti"].pushed["refused"].startswith("Invalid (migration-impossible): ")
    said = str(refused.value).splitlines()
    assert said[0].startswith("Invalid (migration-impossible): ")
    assert "orders in /srv/state" in said[0]
    assert said[1:3] == ["  0_0, 0_1: why …", "  1_0: other"]


@pytest.mark.parametrize(("kind", "raised"), [("Retryable", JobUnavailable), ("Fenced", JobRefused)])
def test_a_jobs_error_decides_whether_it_is_tried_again(spark: StubSpark, kind: str, raised: type[Exception]) -> None:
    spark.behaves({"orders": {**FENCED, "error": kind}})
    with pytest.raises(raised, match="It is in use"):
        operator("apply", spark).execute(context())


def test_remaining_changes_after_an_application_fail_the_task(spark: StubSpark) -> None:
    with pytest.raises(JobRefused, match=r"Corrupted \(migration-incomplete\)"):
        operator("verify", spark).execute(context())


def test_a_running_application_is_skipped_and_reported(spark: StubSpark) -> None:
    spark.behaves({"orders": FENCED})
    assert operator("verify", spark).execute(context()) == {"verified": False}
    spark.behaves({"orders": {**FENCED, "error": "Corrupted"}})
    with pytest.raises(JobRefused, match="Corrupted"):
        operator("verify", spark).execute(context())


def test_spark_applies_changes_and_inspections_run_beside_the_task(spark: StubSpark) -> None:
    conf = {"spark.executor.memory": "2g"}
    for step in ("plan", "apply", "verify"):
        operator(step, spark, engine="spark", conf=conf).execute(context())
    assert [call["local"] for call in asked(spark)] == [True, False, True]
    (call,) = spark.calls
    assert "spark.executor.memory=2g" in call["argv"]
    assert call["argv"][call["argv"].index("--name") + 1] == "statecore migrate orders"


def test_inspections_run_on_the_machine_of_the_driver(spark: StubSpark, monkeypatch: pytest.MonkeyPatch) -> None:
    connection = {"conn_type": "spark", "host": "yarn", "extra": {"deploy-mode": "cluster"}}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(connection))
    monkeypatch.setenv("PATH", f"{spark.bin}:/usr/bin:/bin")
    operator("plan", spark, {"durable": False}, engine="spark").execute(context())
    assert [call["local"] for call in asked(spark)] == [False]


def test_without_a_usable_connection_spark_is_refused_when_it_is_planned_and_processes_need_none(
    spark: StubSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AIRFLOW_CONN_SPARK_DEFAULT")
    with pytest.raises(JobRefused, match=r"Invalid \(spark-connection-missing\)"):
        operator("plan", spark, engine="spark").execute(context())
    assert asked(spark) == []
    operator("plan", spark).execute(context())


def test_a_task_on_another_machine_than_the_directory_s_refuses(spark: StubSpark) -> None:
    with pytest.raises(JobRefused, match=r"Invalid \(host-mismatch\)"):
        operator("plan", spark, host="elsewhere").execute(context())
    assert asked(spark) == []
    operator("plan", spark, host=socket.gethostname()).execute(context())


def test_the_secrets_that_a_spec_asks_for_are_in_the_process_and_nowhere_else(
    spark: StubSpark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = {"conn_type": "generic", "password": "hush"}
    monkeypatch.setenv("AIRFLOW_CONN_OF_ORDERS", json.dumps(connection))
    path = tmp_path / "stores.yaml"
    path.write_text(json.dumps({**spec(), "kafka_connection": "of_orders"}))
    request = {"application_id": "orders", "state_dir": "/srv/state", "to": "4.3", "spec_path": str(path)}
    operator("plan", spark, request=request).execute(context())
    (call,) = asked(spark)
    assert call["env"]["KAFKA_PASSWORD"] == "hush"
    assert "hush" not in json.dumps(call["argv"])


def test_a_spec_that_is_not_there_fails_its_own_directory(spark: StubSpark) -> None:
    request = {"application_id": "orders", "state_dir": "/srv/state", "to": "4.3", "spec_path": "/nowhere/a.yaml"}
    with pytest.raises(JobRefused, match=r"\(spec-not-found\): .*/a\.yaml"):
        operator("plan", spark, request=request).execute(context())


def test_verification_runs_the_doctor_and_fails_on_findings(spark: StubSpark) -> None:
    (spark.jobs / "orders.applied").touch()
    warning = {"severity": "warning", "code": "file-leftover", "task": "", "store": "", "what": "A file."}
    spark.behaves({"doctor": [warning]})  # type: ignore[dict-item]
    assert operator("verify", spark).execute(context())["findings"] == {"warning": 1}
    asked_for = json.loads((spark.jobs / "doctor.json").read_text())
    assert {name: asked_for[name] for name in ("state_dir", "release", "offline")} == {
        "state_dir": "/srv/state",
        "release": "4.3",
        "offline": True,
    }
    spark.behaves({"doctor": [warning, {**warning, "severity": "error", "what": "Bad."}]})  # type: ignore[dict-item]
    with pytest.raises(JobRefused, match=r"unsound\): .*:\n  error file-leftover"):
        operator("verify", spark).execute(context())
    spark.behaves({"doctor": {**FENCED, "error": "Invalid"}})
    with pytest.raises(JobRefused, match="It is in use"):
        operator("verify", spark).execute(context())
    spark.behaves({"doctor": None})
    with pytest.raises(JobUnavailable, match=r"\(job-report-missing\): "):
        operator("verify", spark).execute(context())


def test_planning_and_applying_run_no_doctor(spark: StubSpark) -> None:
    for step in ("plan", "apply"):
        operator(step, spark).execute(context())
    assert not (spark.jobs / "doctor.json").exists()


def test_a_report_that_is_not_understood_is_refused(spark: StubSpark) -> None:
    spark.behaves({"orders": {"version": 1}})
    with pytest.raises(JobRefused, match=r"\(job-report-unsupported\): .* version 1"):
        operator("plan", spark).execute(context())
    spark.behaves({"orders": {"tasks": [{"task": "0_0"}]}})
    with pytest.raises(JobRefused, match=r"Invalid \(job-report-unsupported\)"):
        operator("plan", spark).execute(context())
