from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from statecore.airflow import operators
from statecore.airflow.failures import JobCapacity, JobRefused, JobUnavailable
from statecore.airflow.operators import ProgressRecorder, StatecoreSparkOperator, sentence
from tests.unit.airflow.stub import StubSpark, spec


class FakeTask:
    """As much of a running task instance as an operator sees."""

    dag_id, task_id, run_id, map_index = "a_dag", "restore", "manual__1", 2

    def __init__(self) -> None:
        self.pushed: dict[str, Any] = {}

    def xcom_push(self, key: str, value: Any) -> None:
        json.dumps(value)
        self.pushed[key] = value


class FakeStore(dict[str, Any]):
    """The task state store."""

    def set(self, key: str, value: Any) -> None:
        self[key] = value


@pytest.fixture
def spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StubSpark:
    stub = StubSpark(tmp_path / "spark")
    # The operator puts the directory of its own Python first on the PATH of a local job.
    monkeypatch.setattr(sys, "executable", str(stub.python))
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({"conn_type": "spark", "host": "local[2]"}))
    monkeypatch.setenv("STATECORE_REPORTS", str(tmp_path / "reports"))
    return stub


def operator(spark: StubSpark, application: str = "orders", **fields: Any) -> StatecoreSparkOperator:
    request = {"spec": spec(application), "stores": [], "partitions": [], "state_dir": "/state", "replace": False}
    return StatecoreSparkOperator(
        **{
            "task_id": "restore",
            "application": str(spark.job),
            "application_id": application,
            "request": request,
            **fields,
        }
    )


def context() -> dict[str, Any]:
    return {"ti": FakeTask(), "task_state_store": FakeStore()}


def arguments_of(call: dict[str, Any]) -> dict[str, Any]:
    job = next(index for index, one in enumerate(call["argv"]) if one.endswith(".py"))
    given = call["argv"][job + 1 :]
    return dict(zip(given[::2], given[1::2], strict=True))


def conf_of(call: dict[str, Any]) -> dict[str, str]:
    """The Spark properties of a submission."""
    flags = zip(call["argv"], call["argv"][1:], strict=False)
    return dict(one.split("=", 1) for flag, one in flags if flag == "--conf")


def test_the_command_line_carries_one_request_and_one_report(spark: StubSpark, tmp_path: Path) -> None:
    operator(spark).execute(context())
    (call,) = spark.calls
    given = arguments_of(call)
    assert set(given) == {"--request", "--report"}
    assert json.loads(given["--request"]) == {
        "request_id": "a_dag/manual__1/restore/2",
        "spec": spec(),
        "stores": [],
        "partitions": [],
        "state_dir": "/state",
        "replace": False,
    }
    assert Path(given["--report"]).is_relative_to(tmp_path / "reports" / "orders")
    assert call["argv"][:2] == ["--master", "local[2]"]


def test_a_local_job_is_quiet_stays_on_this_machine_and_runs_this_python(spark: StubSpark) -> None:
    operator(spark).execute(context())
    (call,) = spark.calls
    assert conf_of(call) == {
        "spark.ui.showConsoleProgress": "false",
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }
    options = call["env"].pop("SPARK_SUBMIT_OPTS").split()
    assert call["env"] == {"PYSPARK_PYTHON": str(spark.python), "PYSPARK_DRIVER_PYTHON": str(spark.python)}
    (logging,) = [one for one in options if one.startswith("-Dlog4j2.configurationFile=file://")]
    assert "rootLogger.level = warn" in Path(logging.partition("file://")[2]).read_text()


def test_what_the_caller_set_stays(spark: StubSpark) -> None:
    env_vars = {"PYSPARK_PYTHON": "/usr/bin/other", "SPARK_SUBMIT_OPTS": "-Xss4m"}
    operator(spark, conf={"spark.ui.enabled": "true"}, env_vars=env_vars).execute(context())
    (call,) = spark.calls
    assert "spark.ui.enabled=true" in call["argv"]
    assert {name: call["env"][name] for name in env_vars} == env_vars


def test_a_secret_reaches_the_job_by_its_environment_and_is_on_no_command_line(spark: StubSpark) -> None:
    operator(spark, env_vars={"KAFKA_PASSWORD": "hush"}).execute(context())
    (call,) = spark.calls
    assert call["env"]["KAFKA_PASSWORD"] == "hush"
    assert "hush" not in json.dumps(call["argv"])


def test_the_result_is_a_summary_and_each_store_has_a_part_of_its_own(spark: StubSpark) -> None:
    running = context()
    result = operator(spark).execute(running)
    assert result["application_id"] == "orders"
    assert result["stores"] == ["by-id", "clicks"]
    assert result["map_index"] == 2
    assert json.loads(Path(result["report"]).read_text())["plan_id"] == result["plan_id"]
    pushed = running["ti"].pushed
    assert set(pushed) == {"store_by-id", "store_clicks"}
    assert pushed["store_by-id"]["totals"]["records"] == 1000
    assert [one["partition"] for one in pushed["store_by-id"]["partitions"]] == [0, 1]


def test_every_try_sends_the_same_request_id(spark: StubSpark) -> None:
    for _ in range(2):
        operator(spark).execute(context())
    first, second = (arguments_of(call) for call in spark.calls)
    assert first == second


def test_the_jobs_last_progress_is_kept_in_the_task_state_store(spark: StubSpark) -> None:
    running = context()
    operator(spark).execute(running)
    assert running["task_state_store"]["progress"]["event"] == "done"
    assert running["task_state_store"]["progress"]["count"] == 100


@pytest.mark.parametrize(
    ("kind", "code", "raised"),
    [
        ("Retryable", 10, JobUnavailable),
        ("Fenced", 11, JobRefused),
        ("Corrupted", 12, JobRefused),
        ("Invalid", 13, JobRefused),
        ("NotFound", 14, JobRefused),
        ("Capacity", 15, JobCapacity),
    ],
)
def test_a_jobs_error_decides_whether_it_is_tried_again(
    spark: StubSpark, kind: str, code: int, raised: type[Exception]
) -> None:
    said = {"error": kind, "exit_code": code, "what": "It broke.", "action": "Mend it.", "context": {"partition": 3}}
    spark.behaves({"orders": said})
    with pytest.raises(raised) as failure:
        operator(spark).execute(context())
    assert type(failure.value) is raised
    assert str(failure.value) == f"{kind}: It broke.\nWhat to do: Mend it.\nWhere: partition=3"


def test_a_driver_that_died_without_a_word_is_tried_again(spark: StubSpark) -> None:
    spark.behaves({"orders": {"silent_exit": 137}})
    with pytest.raises(AirflowException, match="137") as failure:
        operator(spark).execute(context())
    assert not isinstance(failure.value, AirflowFailException)


def test_the_report_of_an_earlier_try_is_never_taken_for_this_one(spark: StubSpark) -> None:
    operator(spark).execute(context())
    spark.behaves({"orders": {"no_report": True}})
    with pytest.raises(JobRefused, match="wrote no report"):
        operator(spark).execute(context())


def test_a_cleared_task_that_did_nothing_says_so(spark: StubSpark, capsys: pytest.CaptureFixture[str]) -> None:
    spark.behaves({"orders": {"placed": False}})
    assert operator(spark).execute(context())["placed"] is False
    said = capsys.readouterr().out
    assert "nothing was done" in said
    assert "Start a new run" in said


def test_without_a_spark_connection_nothing_is_started(spark: StubSpark) -> None:
    with pytest.raises(JobRefused, match="spark_elsewhere does not exist"):
        operator(spark, conn_id="spark_elsewhere").execute(context())
    assert spark.calls == []


def test_a_request_that_fits_no_argument_is_refused_before_it_is_sent(spark: StubSpark) -> None:
    with pytest.raises(JobRefused, match="one argument holds"):
        operator(spark, request={"spec": {"application_id": "x" * operators.ARGUMENT_LIMIT}}).execute(context())
    assert spark.calls == []


def test_a_reports_directory_that_is_a_file_is_refused(spark: StubSpark, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(JobRefused, match="STATECORE_REPORTS"):
        operator(spark, reports_dir=str(tmp_path / "file")).execute(context())
    assert spark.calls == []


def on_a_cluster(spark: StubSpark, monkeypatch: pytest.MonkeyPatch, **fields: Any) -> dict[str, Any]:
    """What is submitted to a standalone cluster."""
    cluster = {"conn_type": "spark", "host": "spark://master", "port": 7077, "extra": {"deploy-mode": "client"}}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(cluster))
    path = f"{spark.bin}{os.pathsep}{os.environ['PATH']}"
    operator(spark, env_vars={"PATH": path}, **fields).execute(context())
    (call,) = spark.calls
    return call


def test_on_a_cluster_the_job_is_told_which_one_is_meant(spark: StubSpark, monkeypatch: pytest.MonkeyPatch) -> None:
    call = on_a_cluster(spark, monkeypatch)
    assert call["argv"][:2] == ["--master", "spark://master:7077"]
    assert arguments_of(call)["--master"] == "spark://master:7077"
    assert "PYSPARK_PYTHON" not in call["env"]
    assert "spark.driver.host=127.0.0.1" not in call["argv"]
    assert call["argv"][call["argv"].index("--name") + 1] == "statecore orders"


def test_on_a_cluster_the_executors_python_is_not_the_drivers(
    spark: StubSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STATECORE_EXECUTOR_PYTHON", "/opt/site/bin/python")
    monkeypatch.setenv("STATECORE_SPARK_CONF", '{"spark.cores.max": 8, "spark.executor.memory": "1g"}')
    call = on_a_cluster(spark, monkeypatch, conf={"spark.executor.memory": "2g"})
    assert conf_of(call) == {
        "spark.ui.showConsoleProgress": "false",
        "spark.pyspark.python": "/opt/site/bin/python",
        "spark.pyspark.driver.python": str(spark.python),
        "spark.cores.max": "8",
        "spark.executor.memory": "2g",
    }


def test_the_executors_python_of_the_site_is_of_no_use_to_a_local_job(
    spark: StubSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STATECORE_EXECUTOR_PYTHON", "/opt/site/bin/python")
    monkeypatch.setenv("STATECORE_EXECUTOR_ARCHIVES", "/opt/site.tar.gz#site")
    operator(spark).execute(context())
    (call,) = spark.calls
    assert not {"spark.pyspark.python", "spark.archives"} & conf_of(call).keys()


def test_the_request_can_be_templated_and_mapped() -> None:
    assert {"request", "application_id", "env_vars", "application"} <= set(StatecoreSparkOperator.template_fields)


def advance(count: int, **fields: Any) -> dict[str, Any]:
    return {
        "event": "advance",
        "phase": "read",
        "count": count,
        "total": 9,
        "unit": "records",
        "seconds": 1.0,
        **fields,
    }


class Log:
    """Keeps what was logged."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def info(self, text: str, *values: Any) -> None:
        self.lines.append(text % values if values else text)

    warning = info


def test_progress_is_written_at_most_once_a_second_and_each_step_begins_and_ends_in_the_log() -> None:
    now, log, store = [0.0], Log(), FakeStore()
    recorder = ProgressRecorder({"task_state_store": store}, log, clock=lambda: now[0])
    written = []
    for seconds, line in (
        (0.0, advance(0, event="begin")),
        (0.1, advance(1)),
        (0.9, advance(2)),
        (1.1, advance(3)),
        (1.2, advance(9, event="done", message="ok")),
    ):
        now[0] = seconds
        recorder(line)
        written.append(store["progress"]["count"])
    assert written == [0, 0, 0, 3, 9]
    assert log.lines == ["read: 0 of 9 records after 1.0 s", "read: 9 of 9 records after 1.0 s (ok)"]


def test_progress_that_cannot_be_written_does_not_stop_the_job() -> None:
    class Broken:
        calls = 0

        def set(self, key: str, value: Any) -> None:
            self.calls += 1
            raise ConnectionError("no API server")

    log, broken = Log(), Broken()
    recorder = ProgressRecorder({"task_state_store": broken}, log)
    for _ in range(3):
        recorder(advance(1, event="done"))
    assert broken.calls == 1
    assert len([line for line in log.lines if "no API server" in line]) == 1


@pytest.mark.parametrize("line", [{}, {"count": None, "total": None, "seconds": None}, {"phase": "x", "message": "m"}])
def test_a_progress_line_with_fields_missing_is_still_a_sentence(line: dict[str, Any]) -> None:
    assert "after 0.0 s" in sentence(line)
