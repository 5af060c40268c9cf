from __future__ import annotations

import json
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from statecore.airflow.assets import SNAPSHOTS
from statecore.airflow.checkpoint_operator import (
    KEPT_REPORTS,
    SPARK_NEEDED,
    StatecoreCheckpointOperator,
    delete_old_reports,
)
from statecore.airflow.failures import JobRefused, JobUnavailable
from statecore.airflow.ui import failing_applications as refusals
from statecore.errors import Retryable
from statecore.jobs import program
from tests.harness.process_guard import started_at
from tests.unit.airflow.stub import StubSpark, spec
from tests.unit.airflow.test_operators import arguments_of, context, last_words, snapshot_event

REPOSITORY = "file:///srv/states"


def operator(spark: StubSpark, **fields: Any) -> StatecoreCheckpointOperator:
    request = {"spec": spec(), "stores": [], "partitions": [], "repository": REPOSITORY}
    return StatecoreCheckpointOperator(
        **{
            "task_id": "checkpoint",
            "application": str(spark.jobs / "checkpoint.py"),
            "application_id": "orders",
            "request": request,
            "inlets": [SNAPSHOTS],
            "outlets": [SNAPSHOTS],
            **fields,
        }
    )


def local_calls(spark: StubSpark) -> list[dict[str, Any]]:
    """The processes on the worker so far."""
    file = spark.jobs / "local.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def behaves(spark: StubSpark, how: str) -> None:
    spark.behaves({"local": how})  # type: ignore[dict-item]


def test_a_little_tail_starts_no_spark_and_leaves_a_summary_alone(spark: StubSpark) -> None:
    running = context()
    summary = operator(spark).execute(running)
    assert spark.calls == []
    (call,) = local_calls(spark)
    assert call["argv"][0] == "--local"
    assert call["argv"][-2:] == ["--master", "local[2]"]
    request = json.loads(call["argv"][call["argv"].index("--request") + 1])
    assert (request["repository"], request["request_id"]) == (REPOSITORY, "a_dag/manual__1/restore/2")
    assert summary["published"]["snapshot"] == "snapshot-1"
    assert running["ti"].pushed == {}
    assert [uri for uri, _ in running["outlet_events"][SNAPSHOTS].added] == ["statecore://orders/"]
    assert running["task_state_store"]["progress"]["phase"] == "read"


def test_a_long_tail_goes_to_spark_as_the_same_request_and_report(
    spark: StubSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STATECORE_SPARK_FROM", "70000")
    behaves(spark, "long")
    running = context()
    assert operator(spark).execute(running)["published"]["snapshot"] == "snapshot-1"
    (first,), (second,) = local_calls(spark), spark.calls
    second["argv"].remove("--continues-own-plan")
    given = arguments_of(second)
    assert given["--small-tail"] == "70000" == first["argv"][first["argv"].index("--small-tail") + 1]
    assert given["--request"] == first["argv"][first["argv"].index("--request") + 1]
    assert given["--report"] == first["argv"][first["argv"].index("--report") + 1]
    assert len(running["outlet_events"][SNAPSHOTS].added) == 1


def test_without_a_usable_connection_of_spark_little_tails_are_read_all_the_same(
    spark: StubSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AIRFLOW_CONN_SPARK_DEFAULT")
    assert operator(spark).execute(context())["published"]
    assert "--master" not in local_calls(spark)[0]["argv"]
    behaves(spark, "long")
    with pytest.raises(JobRefused, match=r"Invalid \(spark-connection-missing\)"):
        operator(spark).execute(context())
    assert last_words("orders")[0].error["code"] == "spark-connection-missing"


def test_the_exit_code_for_spark_is_the_one_of_the_job() -> None:
    assert program.SPARK_NEEDED == SPARK_NEEDED


def test_what_was_announced_is_not_announced_again(spark: StubSpark) -> None:
    spark.behaves({"orders": {"earlier": True}})
    running = context(snapshot_event("snapshot-1"))
    operator(spark).execute(running)
    assert running["outlet_events"][SNAPSHOTS].added == []


@pytest.mark.parametrize(("kind", "raised"), [("Retryable", JobUnavailable), ("Fenced", JobRefused)])
def test_a_jobs_error_decides_whether_it_is_tried_again(spark: StubSpark, kind: str, raised: type[Exception]) -> None:
    said = {"error": kind, "exit_code": 11, "what": "It broke.", "action": "Mend it.", "context": {}}
    spark.behaves({"orders": said})
    with pytest.raises(raised, match="It broke"):
        operator(spark).execute(context())
    assert spark.calls == []


def test_a_process_that_was_killed_is_reported_and_tried_again(spark: StubSpark) -> None:
    behaves(spark, "killed")
    with pytest.raises(JobUnavailable, match=r"\(job-report-missing\)"):
        operator(spark).execute(context())
    assert last_words("orders")[0].error["code"] == "job-report-missing"
    assert "signal 9" in last_words("orders")[0].error["what"]


def test_an_undecidable_checkpoint_fails_with_its_reason_and_starts_no_job(spark: StubSpark, tmp_path: Path) -> None:
    error = Retryable("No broker.", code="broker-unreachable", action="Look.")
    refusal = error.to_json()
    with pytest.raises(JobRefused, match=r"\(broker-unreachable\)"):
        operator(spark, refusal=refusal).execute(context())
    assert (local_calls(spark), spark.calls) == ([], [])
    assert list((tmp_path / "reports").rglob("*.json")) == [], "decide has reported it, and it may be over"


def test_a_refusal_is_none_of_the_reports_of_which_a_number_is_kept(spark: StubSpark, tmp_path: Path) -> None:
    reports = tmp_path / "reports" / "orders"
    refusals.record(tmp_path / "reports", "orders", "d/r/decide/-1", {"error": "Invalid"})
    for number in range(KEPT_REPORTS):
        (reports / f"a_dag_{number}.json").touch()
    operator(spark).execute(context())
    left = {file.name for file in reports.iterdir()}
    assert len(left) == KEPT_REPORTS + 1
    assert refusals.FILE in left


def test_a_task_that_is_killed_kills_its_process(spark: StubSpark) -> None:
    behaves(spark, "waits")
    task, raised = operator(spark), list[BaseException]()

    def execute() -> None:
        try:
            task.execute(context())
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=execute)
    thread.start()
    deadline = time.monotonic() + 300
    while not local_calls(spark) and time.monotonic() < deadline:
        time.sleep(0.05)
    (call,) = local_calls(spark)
    assert started_at(call["pid"]) is not None
    task.on_kill()
    thread.join(300)
    assert started_at(call["pid"]) is None
    assert f"signal {int(signal.SIGTERM)}" in str(raised[0])


def test_the_secrets_are_in_the_process_and_not_in_its_arguments(
    spark: StubSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_ORDERS", json.dumps({"conn_type": "generic", "password": "hush"}))
    operator(spark).execute(context())
    (call,) = local_calls(spark)
    assert call["env"]["KAFKA_PASSWORD"] == "hush"
    assert "hush" not in json.dumps(call["argv"])
    assert "KAFKA_PASSWORD" not in os.environ


def test_old_reports_of_checkpoints_go_and_those_of_other_dags_stay(tmp_path: Path) -> None:
    for number in range(6):
        for dag in ("checkpoint_stores", "restore_stores"):
            file = tmp_path / f"{dag}_run-{number}.json"
            file.write_text("{}")
            os.utime(file, (number, number))
    delete_old_reports(tmp_path / "checkpoint_stores_run-5.json", "checkpoint_stores_", 2)
    assert sorted(one.name for one in tmp_path.glob("checkpoint*")) == [
        "checkpoint_stores_run-4.json",
        "checkpoint_stores_run-5.json",
    ]
    assert len(list(tmp_path.glob("restore*"))) == 6
