from __future__ import annotations

import inspect
import json
from typing import Any

import pytest
from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

from statecore.airflow.hooks import ProgressHook, checked_master
from statecore.errors import Invalid
from tests.harness.raising import raises


def connection(monkeypatch: pytest.MonkeyPatch, value: Any) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_TRIED", value if isinstance(value, str) else json.dumps(value))


@pytest.mark.parametrize(
    ("value", "master"),
    [
        ({"conn_type": "spark", "host": "local[*]", "extra": {"deploy-mode": "client"}}, "local[*]"),
        ({"conn_type": "spark", "host": "local"}, "local"),
        ({"conn_type": "spark", "host": "local[2, 4]"}, "local[2, 4]"),
        ({"conn_type": "spark", "host": "spark://spark-master", "port": 7077}, "spark://spark-master:7077"),
        ({"conn_type": "spark", "host": "yarn"}, "yarn"),
        ("spark://spark-master:7077", "spark://spark-master:7077"),
        ("spark://local%5B2%5D/?deploy-mode=client", "local[2]"),
    ],
)
def test_a_master_that_is_meant_is_taken(monkeypatch: pytest.MonkeyPatch, value: Any, master: str) -> None:
    connection(monkeypatch, value)
    assert checked_master("spark_tried") == master


@pytest.mark.parametrize(
    ("value", "code"),
    [
        ("spark://local[2]", "spark-connection-missing"),
        ("local[*]", "spark-connection-invalid"),
        ("{not json", "spark-connection-missing"),
        ({"conn_type": "spark"}, "spark-connection-invalid"),
        ({"conn_type": "http", "host": "example"}, "spark-connection-invalid"),
        ({"conn_type": "spark", "host": "locl[2]"}, "spark-connection-invalid"),
        ({"conn_type": "spark", "host": "spark://"}, "spark-connection-invalid"),
    ],
)
def test_a_connection_that_ends_nowhere_is_refused_with_an_example(
    monkeypatch: pytest.MonkeyPatch, value: Any, code: str
) -> None:
    connection(monkeypatch, value)
    with raises(Invalid, code, conn_id="spark_tried") as refused:
        checked_master("spark_tried")
    assert "AIRFLOW_CONN_SPARK_TRIED=" in refused.value.action


def test_an_absent_connection_is_refused_instead_of_meaning_yarn() -> None:
    with raises(Invalid, "spark-connection-missing", conn_id="spark_absent"):
        checked_master("spark_absent")


def test_the_provider_still_reads_the_output_where_progress_is_taken_from_it() -> None:
    assert "_process_spark_submit_log" in SparkSubmitHook.__dict__
    assert list(inspect.signature(SparkSubmitHook._process_spark_submit_log).parameters) == ["self", "itr"]
    assert "self._process_spark_submit_log(" in inspect.getsource(SparkSubmitHook.submit)


def test_progress_lines_are_handed_on_and_do_not_reach_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    connection(monkeypatch, {"conn_type": "spark", "host": "local"})
    hook = ProgressHook(conn_id="spark_tried")
    seen: list[dict[str, Any]] = []
    hook.on_progress = seen.append
    lines = ["before\n", 'STATECORE_PROGRESS {"count": 1}\n', "STATECORE_PROGRESS {broken\n", "after\n"]
    hook._process_spark_submit_log(iter(lines))
    assert seen == [{"count": 1}]
    # The provider keeps every line it saw for its error message; a broken progress line is an ordinary one.
    assert list(hook._last_submit_log_lines) == ["before", "STATECORE_PROGRESS {broken", "after"]


def test_without_a_listener_progress_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    connection(monkeypatch, {"conn_type": "spark", "host": "local"})
    hook = ProgressHook(conn_id="spark_tried")
    hook._process_spark_submit_log(iter(['STATECORE_PROGRESS {"count": 1}\n', "line\n"]))
    assert list(hook._last_submit_log_lines) == ["line"]
