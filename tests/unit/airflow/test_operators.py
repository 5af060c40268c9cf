from __future__ import annotations

import errno
import json
import os
import socket
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from statecore.airflow import operators
from statecore.airflow.assets import SNAPSHOTS, STORES
from statecore.airflow.failures import JobCapacity, JobRefused, JobUnavailable
from statecore.airflow.operators import StatecoreSparkOperator, clear_report_path, ran_on
from statecore.airflow.settings import Settings
from statecore.errors import KINDS, Capacity, Fenced, Invalid
from statecore.jobs.attempt import Attempt
from statecore.jobs.history.report_head import ReportHead, ReportOutcome
from statecore.jobs.history.report_index import INDEX, ReportIndex
from tests.unit.airflow.stub import FakeStateStore, StubSpark, spec


class FakeTask:
    """As much of a running task instance as an operator sees."""

    dag_id, task_id, run_id, map_index = "a_dag", "restore", "manual__1", 2

    def __init__(self) -> None:
        self.pushed: dict[str, Any] = {}

    def xcom_push(self, key: str, value: Any) -> None:
        json.dumps(value)
        self.pushed[key] = value


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


class FakeEvents:
    """Events of an alias: those that are added, and those that Airflow has."""

    def __init__(self, *known: SimpleNamespace) -> None:
        self.added: list[tuple[str, dict[str, Any]]] = []
        self.known, self.since = known, ""

    def add(self, asset: Any, extra: dict[str, Any]) -> None:
        self.added.append((asset.uri, json.loads(json.dumps(extra))))

    def after(self, since: str) -> tuple[SimpleNamespace, ...]:
        self.since = since
        return self.known


def snapshot_event(snapshot: str) -> SimpleNamespace:
    return SimpleNamespace(asset=SimpleNamespace(uri="statecore://orders/"), extra={"snapshot": snapshot})


def event(store: str, placement: str) -> SimpleNamespace:
    return SimpleNamespace(asset=SimpleNamespace(uri=f"statecore://orders/{store}"), extra={"placement": placement})


def context(*known: SimpleNamespace) -> dict[str, Any]:
    events = FakeEvents(*known)
    return {
        "ti": FakeTask(),
        "task_state_store": FakeStateStore(),
        "dag_run": SimpleNamespace(run_after=datetime(2026, 1, 2, tzinfo=UTC)),
        "inlet_events": {STORES: events, SNAPSHOTS: events},
        "outlet_events": {STORES: events, SNAPSHOTS: events},
    }


def arguments_of(call: dict[str, Any]) -> dict[str, Any]:
    job = next(index for index, one in enumerate(call["argv"]) if one.endswith(".py"))
    given = call["argv"][job + 1 :]
    return dict(zip(given[::2], given[1::2], strict=True))


def conf_of(call: dict[str, Any]) -> dict[str, str]:
    """The Spark properties of a submission."""
    flags = zip(call["argv"], call["argv"][1:], strict=False)
    return dict(one.split("=", 1) for flag, one in flags if flag == "--conf")


@pytest.fixture(autouse=True)
def no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """None are in the environment, where other tests of this process have theirs."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)


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


def test_the_result_is_a_summary_with_an_entry_for_each_store(spark: StubSpark) -> None:
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


def test_there_is_progress_before_spark_is_started(spark: StubSpark) -> None:
    seen = []

    class Watched(FakeStateStore):
        def set(self, key: str, value: Any) -> None:
            seen.append((value["phase"], len(spark.calls)))

    operator(spark).execute({**context(), "task_state_store": Watched()})
    assert seen[0] == ("starting Spark", 0)
    assert ("read", 1) in seen


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
    error = KINDS[kind]("It broke.", code="it-broke", action="Mend it.", partition=3)
    assert error.exit_code == code
    spark.behaves({"orders": error.to_json()})
    with pytest.raises(raised) as failure:
        operator(spark).execute(context())
    assert type(failure.value) is raised
    what, action, where = str(failure.value).splitlines()
    assert what == f"{kind} (it-broke): It broke."
    assert (action.endswith("Mend it."), where.endswith("partition=3")) == (True, True)


def test_a_driver_that_died_without_a_report_is_retried(spark: StubSpark, capsys: pytest.CaptureFixture[str]) -> None:
    spark.behaves({"orders": {"silent_exit": 137}})
    with pytest.raises(AirflowException, match="137") as failure:
        operator(spark).execute(context())
    assert not isinstance(failure.value, AirflowFailException)
    (said,) = last_words("orders")
    assert said.outcome is ReportOutcome.FAILED
    assert said.error["code"] == "job-report-missing"
    assert said.error["what"] == "The driver ended without a report: exit code 137"
    assert "Retryable (job-report-missing): " in capsys.readouterr().out
    assert said.attempt.instance == ("orders", socket.gethostname(), "/state")


def last_words(application: str) -> list[ReportHead]:
    """What the page is told of an application's latest attempts."""
    index = ReportIndex(Settings.from_environment().reports)
    assert (index.directory / INDEX / f"{application}.json").exists()
    return [one.last for one in index.application(application).instances]


def test_an_index_that_cannot_be_kept_changes_nothing(
    spark: StubSpark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    scandir = os.scandir

    def refused(path: Any) -> Any:
        if str(path).startswith(str(tmp_path / "reports")):
            raise PermissionError("no rights")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refused)
    assert operator(spark).execute(context())["application_id"] == "orders"
    assert "no rights" in capsys.readouterr().out
    spark.behaves({"orders": {"no_report": True}})
    with pytest.raises(JobRefused, match=r"\(job-report-not-shared\)"):
        operator(spark).execute(context())


def test_the_report_of_an_earlier_try_is_never_taken_for_this_one(spark: StubSpark) -> None:
    operator(spark).execute(context())
    spark.behaves({"orders": {"no_report": True}})
    with pytest.raises(JobRefused, match=r"\(job-report-not-shared\)"):
        operator(spark).execute(context())


def test_a_refused_try_of_a_cleared_task_leaves_the_earlier_success_on_the_page(
    spark: StubSpark, tmp_path: Path
) -> None:
    tried = Attempt("orders", "/state", "a_dag/manual__1/restore/2", "stub", "airflow", 1, "0", "2026-11-29T00:00:00Z")
    fenced = Fenced("It runs.", code="application-running", action="Stop it.").to_json()

    def outcomes() -> list[ReportOutcome]:
        (one,) = ReportIndex(tmp_path / "reports").application("orders").instances
        return [head.outcome for head in one.attempts]

    operator(spark).execute(context())
    for _ in range(2):
        spark.behaves({"orders": tried.failed(fenced)})
        with pytest.raises(JobRefused):
            operator(spark).execute(context())
        assert outcomes() == [ReportOutcome.FAILED, ReportOutcome.RESTORED]
    spark.behaves({})
    operator(spark).execute(context())
    assert outcomes() == [ReportOutcome.RESTORED], "one for each request"


def test_a_report_of_an_unknown_version_is_refused_and_kept(spark: StubSpark, tmp_path: Path) -> None:
    spark.behaves({"orders": {"version": 3}})
    running = context()
    with pytest.raises(JobRefused, match=r"Invalid \(job-report-unsupported\): .* 3, .* 2\b") as refused:
        operator(spark).execute(running)
    assert running["ti"].pushed == {}
    (kept,) = (tmp_path / "reports" / "orders").glob("*.json")
    assert json.loads(kept.read_text())["version"] == 3
    assert str(kept) in str(refused.value)


def test_a_cleared_task_that_did_nothing_says_so(spark: StubSpark, capsys: pytest.CaptureFixture[str]) -> None:
    spark.behaves({"orders": {"placed": False}})
    assert operator(spark).execute(context())["placed"] is False
    said = capsys.readouterr().out
    assert "nothing was changed" in said
    assert "start a new run" in said


def test_a_run_that_had_nothing_to_do_claims_neither_a_restore_nor_an_event(
    spark: StubSpark, capsys: pytest.CaptureFixture[str]
) -> None:
    spark.behaves({"orders": {"stores": [], "placed": True}})
    running = context()
    operator(spark, inlets=[STORES], outlets=[STORES]).execute(running)
    assert running["outlet_events"][STORES].added == []
    said = capsys.readouterr().out
    assert "nothing to do" in said
    assert "asset events" not in said
    assert "restored ;" not in said


def announced(spark: StubSpark, placed: bool, *known: SimpleNamespace) -> list[str]:
    """The stores whose events a task adds that has found, or made, the placement ``p1``."""
    spark.behaves({"orders": {"placed": placed, "placement": "p1"}})
    running = context(*known)
    operator(spark, inlets=[STORES], outlets=[STORES]).execute(running)
    added = running["outlet_events"][STORES].added
    assert {extra["placement"] for _, extra in added} <= {"p1"}
    return [uri.rpartition("/")[2] for uri, _ in added]


def test_what_was_placed_is_announced_by_the_task_that_placed_it(spark: StubSpark) -> None:
    assert announced(spark, True) == ["by-id", "clicks"]


def test_a_try_that_died_after_it_had_placed_the_stores_loses_no_event(spark: StubSpark) -> None:
    assert announced(spark, False) == ["by-id", "clicks"]
    assert announced(spark, False, event("by-id", "of an earlier run")) == ["by-id", "clicks"]


def test_what_was_announced_is_not_announced_again(spark: StubSpark) -> None:
    assert announced(spark, False, event("by-id", "p1"), event("clicks", "p1")) == []
    assert announced(spark, False, event("by-id", "p1")) == ["clicks"]


def test_stores_placed_again_have_new_asset_events(spark: StubSpark) -> None:
    assert announced(spark, True, event("by-id", "p0"), event("clicks", "p0")) == ["by-id", "clicks"]


def test_the_alias_as_outlet_alone_is_refused_when_the_dag_is_read(spark: StubSpark) -> None:
    for name, alias in (("STORES", STORES), ("SNAPSHOTS", SNAPSHOTS)):
        with pytest.raises(ValueError, match=name):
            operator(spark, outlets=[alias])


def test_a_task_without_the_alias_announces_nothing(spark: StubSpark) -> None:
    running = context()
    operator(spark).execute(running)
    assert running["outlet_events"][STORES].added == []


BOTH = {"inlets": [STORES, SNAPSHOTS], "outlets": [STORES, SNAPSHOTS]}
REPOSITORY = "s3://states/production"


def publishing(**fields: Any) -> dict[str, Any]:
    """A request that publishes."""
    return {"spec": spec(), "stores": [], "partitions": [], "repository": REPOSITORY, **fields}


def events_of(
    spark: StubSpark, said: dict[str, Any], *known: SimpleNamespace, **fields: Any
) -> list[tuple[str, dict[str, Any]]]:
    """The events that a task adds whose job says this."""
    spark.behaves({"orders": said})
    running = context(*known)
    operator(spark, request=publishing(**fields), **BOTH).execute(running)
    added: list[tuple[str, dict[str, Any]]] = running["outlet_events"][SNAPSHOTS].added
    return added


def test_a_job_that_only_publishes_announces_the_snapshot_and_no_store(spark: StubSpark) -> None:
    ((uri, extra),) = events_of(spark, {})
    assert uri == "statecore://orders/"
    assert extra == {
        "application_id": "orders",
        "repository": REPOSITORY,
        "snapshot": "snapshot-1",
        "identity": "i" * 32,
        "created_at": "2026-01-02T03:04:05Z",
        "tasks": 2,
        "bytes": 9000,
        "new_bytes": 4000,
        "plan_id": "plan-a_dag/manual__1/restore/2",
    }


def test_a_job_that_places_and_publishes_announces_both(spark: StubSpark) -> None:
    found = [uri for uri, _ in events_of(spark, {}, state_dir="/state")]
    assert found == ["statecore://orders/by-id", "statecore://orders/clicks", "statecore://orders/"]


def test_a_snapshot_of_a_try_that_died_is_announced_by_the_next_one(spark: StubSpark) -> None:
    assert [uri for uri, _ in events_of(spark, {"earlier": True})] == ["statecore://orders/"]
    assert len(events_of(spark, {"earlier": True}, snapshot_event("of an earlier run"))) == 1


def test_a_snapshot_that_was_announced_is_not_announced_again(spark: StubSpark) -> None:
    assert events_of(spark, {"earlier": True}, snapshot_event("snapshot-1")) == []
    # Whoever finds its stores in place returns the report of the try that placed and published.
    known = (event("by-id", "p"), event("clicks", "p"), snapshot_event("snapshot-1"))
    assert events_of(spark, {"placed": False, "placement": "p"}, *known, state_dir="/state") == []
    found = events_of(spark, {"placed": False, "placement": "p"}, *known[:2], state_dir="/state")
    assert [uri for uri, _ in found] == ["statecore://orders/"]


def test_log_and_result_name_the_published_snapshot(spark: StubSpark, capsys: pytest.CaptureFixture[str]) -> None:
    running = context()
    result = operator(spark, request=publishing(), **BOTH).execute(running)
    assert (result["repository"], result["published"]["snapshot"], result["state_dir"]) == (
        REPOSITORY,
        "snapshot-1",
        "",
    )
    assert (result["totals"]["records"], result["totals"]["rows"], result["totals"]["bytes"]) == (2000, None, None)
    part = running["ti"].pushed["store_by-id"]
    assert (part["totals"]["rows"], part["digest"]) == (None, "")
    said = capsys.readouterr().out
    (line,) = [line for line in said.splitlines() if f" in {REPOSITORY}: " in line]
    assert {"snapshot-1", "2", "9,000", "4,000"} <= set(line.split())
    assert "restored" not in said
    spark.behaves({"orders": {"earlier": True}})
    operator(spark, request=publishing(), **BOTH).execute(context())
    assert f"earlier try in {REPOSITORY}: " in capsys.readouterr().out


def test_the_secret_of_the_object_store_is_in_the_environment_of_the_job_alone(
    spark: StubSpark, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    connection = {"conn_type": "aws", "login": "AKIA", "password": "hush", "extra": {"aws_session_token": "psst"}}
    monkeypatch.setenv("AIRFLOW_CONN_STORE", json.dumps(connection))
    monkeypatch.setenv("STATECORE_AWS_CONN", "store")
    running = context()
    task = operator(spark, request=publishing(), **BOTH)
    result = task.execute(running)
    local = operator(spark, request=publishing(repository="file:///srv/states"), **BOTH)
    local.execute(context())
    operator(spark).execute(context())
    published, *others = spark.calls
    given = {name: value for name, value in published["env"].items() if name.startswith("AWS_")}
    assert given == {"AWS_ACCESS_KEY_ID": "AKIA", "AWS_SECRET_ACCESS_KEY": "hush", "AWS_SESSION_TOKEN": "psst"}
    assert not [name for call in others for name in call["env"] if name.startswith("AWS_")]
    assert "AWS_SECRET_ACCESS_KEY" not in os.environ
    templates = [getattr(task, name) for name in task.template_fields if hasattr(task, name)]
    added = running["outlet_events"][SNAPSHOTS].added
    shown = [published["argv"], result, running["ti"].pushed, running["task_state_store"], added]
    said = capsys.readouterr().out
    assert "Spark-Submit cmd" in said
    for secret in ("hush", "psst"):
        assert secret not in json.dumps(shown)
        assert secret not in repr(templates)
        assert secret not in said


def test_a_missing_object_store_connection_fails_the_task(spark: StubSpark, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATECORE_AWS_CONN", "nowhere")
    with pytest.raises(JobRefused, match=r"\(connection-not-found\): .*\bnowhere\b"):
        operator(spark, request=publishing()).execute(context())
    assert spark.calls == []


def test_a_plan_is_shown_and_returned_and_is_no_report(
    spark: StubSpark, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    request = {"spec": spec(), "stores": [], "partitions": [], "state_dir": "/state", "plan_only": True}
    running = context()
    result = operator(spark, request=request, inlets=[STORES], outlets=[STORES]).execute(running)
    assert result["plan_only"] is True
    assert result["totals"] == {"partitions": 4, "offsets": 2000}
    plan = running["ti"].pushed["plan"]
    assert [(one["task"], one["store"], one["tail_left"], one["ranges"]) for one in plan["partitions"][:2]] == [
        ("0_0", "by-id", 3, 2),
        ("0_1", "by-id", 3, 2),
    ]
    assert set(running["ti"].pushed) == {"plan"}
    assert running["outlet_events"][STORES].added == []
    assert list((tmp_path / "reports" / "orders").glob("*.json")) == []
    said = capsys.readouterr().out
    assert "2,000 records" in said
    assert "by-id-log" in said


@pytest.mark.parametrize("field", ["state_dir", "staging_dir", "spec_path"])
def test_a_relative_path_is_refused_before_spark_is_started(spark: StubSpark, field: str) -> None:
    request = {"spec_path": "/stores.yaml", "state_dir": "/state", field: "here"}
    with pytest.raises(JobRefused, match=r"Invalid \(path-relative\): "):
        operator(spark, request=request).execute(context())
    assert spark.calls == []


def test_the_credentials_of_an_application_reach_its_job_alone(
    spark: StubSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = {"conn_type": "generic", "login": "o", "password": "hush", "extra": {"ssl_password": "psst"}}
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_ORDERS", json.dumps(connection))
    operator(spark).execute(context())
    operator(spark, "billing").execute(context())
    orders, billing = spark.calls
    kafka = {name: value for name, value in orders["env"].items() if name.startswith("KAFKA_")}
    assert kafka == {"KAFKA_USERNAME": "o", "KAFKA_PASSWORD": "hush", "KAFKA_SSL_PASSWORD": "psst"}
    assert "hush" not in json.dumps(orders["argv"])
    assert not [name for name in billing["env"] if name.startswith("KAFKA_")]


def test_a_missing_connection_named_by_a_spec_fails_the_task(spark: StubSpark) -> None:
    with pytest.raises(JobRefused, match=r"\(connection-not-found\): .*\bteam_a\b"):
        operator(spark, kafka_conn_id="team_a").execute(context())
    assert spark.calls == []


def test_a_failure_is_logged_line_by_line(spark: StubSpark, capsys: pytest.CaptureFixture[str]) -> None:
    spark.behaves({"orders": Invalid("Two\nlines.", code="it-broke", action="Mend it.").to_json()})
    with pytest.raises(JobRefused):
        operator(spark).execute(context())
    said = capsys.readouterr().out.splitlines()
    for text in ("Invalid (it-broke): Two", "lines.", "What to do: Mend it."):
        assert [line for line in said if text in line], text


def test_without_a_spark_connection_nothing_is_started(spark: StubSpark) -> None:
    with pytest.raises(JobRefused, match=r"\(spark-connection-missing\): .*elsewhere"):
        operator(spark, conn_id="spark_elsewhere").execute(context())
    assert spark.calls == []


def test_what_was_refused_before_the_job_is_on_the_page(spark: StubSpark) -> None:
    with pytest.raises(JobRefused, match="does not exist"):
        operator(spark, conn_id="absent").execute(context())
    (said,) = last_words("orders")
    assert (said.outcome, said.attempt.request_id) == (ReportOutcome.FAILED, "a_dag/manual__1/restore/2")


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


def test_the_job_gets_the_master_of_the_cluster(spark: StubSpark, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_no_room_for_the_report_is_no_fault_of_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "mkdir", full)
    with pytest.raises(Capacity, match="cannot be written to"):
        clear_report_path(tmp_path / "orders" / "r.json")


def test_one_executor_is_one() -> None:
    one = {"master": "spark://m:7077", "executors": 1, "hosts": ["a"]}
    assert ran_on(one) == "ran on spark://m:7077 with 1 executor on a"
    assert "2 executors" in ran_on({**one, "executors": 2})
    assert ran_on({**one, "master": "processes"}) == "ran in 1 process on a"
