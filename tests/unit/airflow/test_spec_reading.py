"""What ``read_specs`` refuses is shown at the application that it is about, with its code."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from statecore.airflow.failures import JobRefused
from statecore.airflow.requests import restore_requests
from statecore.airflow.spec_reading import read_specs
from statecore.airflow.ui import failing_applications as refusals
from statecore.jobs.history.report_index import ReportIndex
from tests.unit.airflow.stub import spec

LOG = logging.getLogger(__name__)


@pytest.fixture(autouse=True)
def reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATECORE_REPORTS", str(tmp_path / "reports"))


def run(*applications: str, dag: str = "restore_stores", **fields: Any) -> list[dict[str, Any]]:
    ti = SimpleNamespace(dag_id=dag, run_id="manual__1", task_id="read_specs", map_index=-1)
    params = {"applications": list(applications), "stores": [], "partitions": [], "state_dir": "/state", **fields}
    return read_specs(restore_requests, {"ti": ti, "params": params}, LOG)


def shown(tmp_path: Path) -> dict[str, str]:
    """The applications on the page, each with the code that its last attempt failed with."""
    index = ReportIndex(tmp_path / "reports")
    found = [one for name in index.names() for one in index.application(name).instances]
    assert {one.instance.state_dir for one in found} <= {"/state"}
    assert {one.last.attempt.request_id for one in found} <= {"restore_stores/manual__1/read_specs/-1"}
    return {one.instance.application_id: one.last.error["code"] for one in found}


def test_every_application_that_is_refused_is_shown_until_its_spec_can_be_read(tmp_path: Path) -> None:
    wrong = tmp_path / "orders.yaml"
    wrong.write_text("application_id: orders\nstores: {}\nno such field: 1\n")
    gone = str(tmp_path / "gone.yaml")
    with pytest.raises(JobRefused) as caught:
        run(str(wrong), json.dumps(spec("billing")), gone)
    assert caught.value.reason.startswith("Invalid (spec-invalid): ")
    assert shown(tmp_path) == {"orders": "spec-invalid", gone: "spec-not-found"}
    wrong.write_text(json.dumps(spec("orders")))
    assert len(run(str(wrong))) == 1
    assert shown(tmp_path) == {gone: "spec-not-found"}
    Path(gone).write_text(json.dumps(spec("gone")))
    assert len(run(gone)) == 1
    assert shown(tmp_path) == {}


def test_a_spec_is_mended_when_any_dag_can_read_it(tmp_path: Path) -> None:
    file = tmp_path / "orders.yaml"
    file.write_text("application_id: orders\nno such field: 1\n")
    with pytest.raises(JobRefused):
        run(str(file))
    file.write_text(json.dumps(spec()))
    with pytest.raises(JobRefused):
        run(str(file), stores=["no-such-store"])
    run(str(file), dag="snapshot_state")
    assert shown(tmp_path) == {"orders": "store-not-declared"}, "which is about the parameters of that Dag"


def test_an_application_that_is_named_twice_is_not_the_one_that_is_wrong(tmp_path: Path) -> None:
    second = tmp_path / "second.yaml"
    second.write_text(json.dumps(spec()))
    with pytest.raises(JobRefused):
        run(json.dumps(spec()), str(second))
    assert shown(tmp_path) == {str(second): "application-duplicated"}


def test_a_store_that_an_application_does_not_have_is_shown_there(tmp_path: Path) -> None:
    with pytest.raises(JobRefused):
        run(json.dumps(spec()), stores=["no-such-store"])
    assert shown(tmp_path) == {"orders": "store-not-declared"}


def test_what_is_only_planned_and_what_is_wrong_with_the_run_is_shown_nowhere(tmp_path: Path) -> None:
    for fields in ({"plan_only": True, "stores": ["no-such-store"]}, {"no_such_parameter": 1}):
        with pytest.raises(JobRefused):
            run(json.dumps(spec()), **fields)
    assert shown(tmp_path) == {}


def test_a_possible_checkpoint_clears_no_failure_of_a_restore(tmp_path: Path) -> None:
    with pytest.raises(JobRefused):
        run(json.dumps(spec()), stores=["no-such-store"])
    refusals.delete(tmp_path / "reports", {"orders"})
    assert shown(tmp_path) == {"orders": "store-not-declared"}
