from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import ParamValidationError

from statecore.repository.maintenance.verification_record import Level, read_record
from tests.unit.dags.loading import AIRFLOWS_OWN_WARNINGS, assert_explained, bag_of, load_dag
from tests.unit.dags.test_restore_stores import states, values
from tests.unit.repository.published import Publishing, flip

pytestmark = AIRFLOWS_OWN_WARNINGS
load = partial(load_dag, "verify_snapshots")


class Repository:
    """A repository with a snapshot of each of two applications."""

    def __init__(self, directory: Path) -> None:
        self.root = directory / "repository"
        self.url = self.root.as_uri()
        self.orders, self.payments = Publishing(self.url, directory), Publishing(self.url, directory, "payments")
        self.orders.publish(10)
        self.payments.publish(10)

    def damage(self, application_id: str) -> None:
        """Flip a bit of a file of the application."""
        flip(next(one for one in (self.root / "apps" / application_id / "files").rglob("*") if one.is_file()), 3)


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    monkeypatch.setenv("STATECORE_REPORTS", str(tmp_path / "reports"))
    return Repository(tmp_path)


def test_the_dag_explains_itself_and_runs_by_itself_only_where_the_site_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dag = load()
    assert "keep running" in (dag.doc_md or "")
    assert dag.tags == {"statecore", "kafka-streams", "snapshot"}
    assert (dag.catchup, dag.max_active_runs, dag.schedule) == (False, 1, None)
    assert dag.task_dict["verify"].partial_kwargs["retries"] == 2
    assert_explained(dag)
    monkeypatch.setenv("STATECORE_VERIFY_SCHEDULE", "@daily")
    (said,) = bag_of("verify_snapshots").import_errors.values()
    assert "Error code: setting-missing" in said
    monkeypatch.setenv("STATECORE_REPOSITORY", "file:///srv/states")
    dag = load()
    assert dag.schedule == "@daily"
    validated = dag.params.validate()
    expected = {"repository": "file:///srv/states", "application_ids": None, "level": "bytes", "subset": "/7"}
    assert {name: validated[name] for name in expected} == expected


@pytest.mark.parametrize(
    "wrong",
    [{"level": "all"}, {"subset": "7"}, {"subset": "0/7"}, {"application_ids": [""]}, {"repository": ""}],
    ids=str,
)
def test_parameters_of_the_wrong_shape_are_refused(wrong: dict[str, Any]) -> None:
    params = load().params
    with pytest.raises(ParamValidationError):
        params.update(wrong)


def test_the_runs_of_a_rotation_verify_all_applications_and_all_bytes(repository: Repository) -> None:
    reads = []
    for number in range(3):
        run = load().test(run_conf={"repository": repository.url, "subset": "/3"})
        assert str(run.state) == "success", number
        found = values(run, "verify")
        assert set(found) == {"orders", "payments"}
        reads.append({name: one.xcom_pull(task_ids="verify", map_indexes=one.map_index) for name, one in found.items()})
    assert {report["orders"]["part"] for report in reads} == {1, 2, 3}
    assert sum(report["orders"]["read_bytes"] for report in reads) == reads[0]["orders"]["bytes"] > 0
    assert len(read_record(repository.orders.app_repository).whole(Level.BYTES, 1 << 60)) == 3


def test_damage_fails_the_task_of_its_application_at_once(repository: Repository, tmp_path: Path) -> None:
    repository.damage("orders")
    run = load().test(run_conf={"repository": repository.url, "subset": ""})
    assert str(run.state) == "failed"
    found = values(run, "verify")
    assert {name: str(one.state) for name, one in found.items()} == {"orders": "failed", "payments": "success"}
    assert found["orders"].try_number == 1
    (refused,) = (tmp_path / "reports").rglob("refused-verify_snapshots.json")
    assert '"blob-damaged"' in refused.read_text()
    run = load().test(run_conf={"repository": repository.url, "level": "files", "application_ids": ["orders"]})
    assert str(run.state) == "success", "sizes are right"
    assert refused.exists(), "what is known to be damaged stays on the page"


def test_a_misspelt_parameter_and_a_missing_repository_are_refused(repository: Repository, tmp_path: Path) -> None:
    for conf in ({"repository": repository.url, "application": ["orders"]}, {"repository": tmp_path.as_uri()}):
        run = load().test(run_conf=conf)
        assert (str(run.state), states(run)["list_applications", -1]) == ("failed", "failed")
