"""What :mod:`statecore.airflow.verify_operator` makes of a repository; the Dag is in ``tests/unit/dags``."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pytest

from statecore.airflow.failures import JobRefused, JobUnavailable
from statecore.airflow.verify_operator import StatecoreVerifyOperator, verification_requests
from statecore.errors import Invalid, Retryable
from statecore.metrics import SNAPSHOTS_DAMAGED
from tests.harness.collector import Collector
from tests.harness.raising import raises
from tests.unit.repository.published import Publishing, flip

PARAMS = ("repository", "application_ids", "level", "subset")


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("STATECORE_REPORTS", str(tmp_path / "reports"))
    url = (tmp_path / "repository").as_uri()
    Publishing(url, tmp_path).publish(10)
    return url


def execute(repository: str, application_id: str = "orders", **more: Any) -> dict[str, Any]:
    ti = SimpleNamespace(dag_id="verify_snapshots", run_id="run", task_id="verify", map_index=0)
    operator = StatecoreVerifyOperator(
        task_id="verify", application_id=application_id, repository=repository, **{"level": "bytes", **more}
    )
    return operator.execute({"ti": ti})


def test_it_returns_the_report(repository: str) -> None:
    found = execute(repository, subset="1/1")
    assert (found["application_id"], found["read_blobs"], found["damaged"]) == ("orders", 2, [])


def test_what_cannot_be_better_the_next_time_is_not_tried_again(
    repository: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(JobRefused, match="snapshots-not-found"):
        execute(repository, "absent")
    for file in (tmp_path / "repository/apps/orders/files").rglob("*.0"):
        file.unlink()
    with pytest.raises(JobRefused, match="blob-missing"):
        execute(repository, level="files", subset="/7")

    def unreachable(*_: Any, **__: Any) -> Any:
        raise Retryable("No answer.", code="object-store-unreachable", action="Wait.")

    monkeypatch.setattr("statecore.airflow.verify_operator.verify_applications", unreachable)
    with pytest.raises(JobUnavailable, match="object-store-unreachable"):
        execute(repository)


def damaged(repository: str) -> Path:
    """A blob of the repository with a bit flipped; flipping it again mends it."""
    file = next((Path(urlsplit(repository).path) / "apps/orders/files").rglob("*.0"))
    flip(file, 3)
    return file


def test_a_run_in_another_repository_leaves_the_report_and_metrics_of_the_site_alone(
    repository: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica = (tmp_path / "replica").as_uri()
    Publishing(replica, tmp_path).publish(10)
    monkeypatch.setenv("STATECORE_REPOSITORY", f"{repository}/")
    report = tmp_path / "reports/orders/refused-verify_snapshots.json"
    with Collector() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.endpoint)
        mend = damaged(replica)
        with pytest.raises(JobRefused, match="blob-damaged"):
            execute(replica)
        assert not report.exists()
        assert collector.last(SNAPSHOTS_DAMAGED.name) == {}
        flip(mend, 3)
        damaged(repository)
        with pytest.raises(JobRefused, match="blob-damaged"):
            execute(repository)
        before = report.read_bytes()
        execute(replica)
        assert report.read_bytes() == before


def test_an_application_that_the_repository_does_not_have_gets_no_report(repository: str, tmp_path: Path) -> None:
    with pytest.raises(JobRefused, match="snapshots-not-found"):
        execute(repository, "nope")
    assert list((tmp_path / "reports").rglob("*.json")) == []


def test_each_application_gets_a_task_all_or_those_that_are_named(repository: str, tmp_path: Path) -> None:
    Publishing(repository, tmp_path, "payments").publish(10)
    params = {"repository": repository, "application_ids": None, "level": "bytes", "subset": "/7"}
    rest = {name: params[name] for name in ("repository", "level", "subset")}
    assert verification_requests(params, PARAMS) == [
        {"application_id": name, **rest} for name in ("orders", "payments")
    ]
    assert verification_requests({**params, "application_ids": ["orders"]}, PARAMS) == [
        {"application_id": "orders", **rest}
    ]
    with raises(Invalid, "parameter-unknown", parameters=["application"]):
        verification_requests({**params, "application": "orders"}, PARAMS)
    with raises(Invalid, "parameter-invalid", parameter="subset"):
        verification_requests({**params, "subset": "9/7"}, PARAMS)
