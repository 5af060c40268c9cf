from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
from airflow.sdk.exceptions import AirflowFailException, ParamValidationError

from statecore.errors import Corrupted
from statecore.repository.head import Retention
from statecore.repository.maintenance.forget import forget
from tests.unit.dags.loading import AIRFLOWS_OWN_WARNINGS, bag_of, load_dag
from tests.unit.dags.test_restore_stores import states, values
from tests.unit.repository.published import Publishing

pytestmark = AIRFLOWS_OWN_WARNINGS
load = partial(load_dag, "prune_snapshots")


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A repository with two applications; what one of them has forgotten is garbage."""
    url = (tmp_path / "repository").as_uri()
    for application_id in ("orders", "payments"):
        published = Publishing(url, tmp_path, application_id)
        for end in (10, 20):
            published.publish(end)
        if application_id == "orders":
            forget(published.app_repository, Retention(1, 0, 0, 0))
    return url


def run(url: str, **fields: Any) -> Any:
    return load().test(run_conf={"repository": url, "min_age": "0s", **fields})


def returned(done: Any, task_id: str) -> dict[str, Any]:
    """What the mapped tasks have returned, by application."""
    return {
        name: one.xcom_pull(task_ids=task_id, map_indexes=one.map_index) for name, one in values(done, task_id).items()
    }


def test_the_dag_explains_itself_and_runs_by_itself_only_where_the_site_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dag = load()
    assert all(f"`{task}`" in (dag.doc_md or "") for task in dag.task_dict)
    assert (dag.catchup, dag.max_active_runs, dag.schedule) == (False, 1, None)
    for name in dag.params:
        assert dag.params.get_param(name).schema["title"]
    with pytest.raises(ParamValidationError, match="repository"):
        dag.params.validate()
    monkeypatch.setenv("STATECORE_PRUNE_SCHEDULE", "@daily")
    (said,) = bag_of("prune_snapshots").import_errors.values()
    assert "Error code: setting-missing" in said
    monkeypatch.setenv("STATECORE_REPOSITORY", "file:///srv/states")
    assert (load().schedule, load().params.validate()["repository"]) == ("@daily", "file:///srv/states")


@pytest.mark.full
def test_runs_delete_what_no_snapshot_needs(url: str) -> None:
    found = [run(url) for _ in range(3)]
    assert [str(one.state) for one in found] == ["success"] * 3
    deleted = [returned(one, "prune") for one in found]
    assert [one.keys() for one in deleted] == [{"orders", "payments"}] * 3
    assert [one["orders"]["deleted"]["blobs"] > 0 for one in deleted] == [False, True, True]
    assert [one["payments"]["deleted"]["blobs"] for one in deleted] == [0, 0, 0]


def test_above_the_bound_a_person_is_asked_and_nothing_is_deleted_before(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from statecore.airflow.prune import CollectionApproval

    for _ in range(2):
        run(url, application_ids=["orders"])
    asked: list[str] = []

    def ask(self: CollectionApproval, context: Any) -> Any:
        asked.append(str(self.body))
        raise AirflowFailException("Nobody has answered.")

    monkeypatch.setattr("airflow.providers.standard.operators.hitl.ApprovalOperator.execute", ask)
    done = run(url, application_ids=["orders"], approve_above="1")
    assert (str(done.state), len(asked)) == ("failed", 1)
    assert "orders" in asked[0]
    assert states(done)["prune", -1] == "upstream_failed"
    assert str(run(url, application_ids=["orders"], approve_above=None).state) == "success"


def test_one_that_cannot_be_planned_fails_the_run_and_the_others_are_collected(url: str) -> None:
    head = Path(url.removeprefix("file://")) / "apps/payments/HEAD"
    head.write_bytes(b"{")
    done = run(url)
    assert str(done.state) == "failed"
    found = states(done)
    assert (found["plan", -1], found["check_plans", -1], found["approve", -1]) == ("success", "failed", "success")
    assert returned(done, "prune").keys() == {"orders"}
    assert head.read_bytes() == b"{"


def test_the_table_to_approve_says_what_could_not_be_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    from statecore.airflow.prune import CollectionApproval, PlannedCollection

    error = Corrupted("The head is | damaged.", code="head-damaged", action="Rebuild it.").to_json()
    planned = [
        PlannedCollection(application_id="orders", deleted_blobs=2, deleted_bytes=2048, lists=["a list"], error=None),
        PlannedCollection(application_id="payments", deleted_blobs=0, deleted_bytes=0, lists=[], error=error),
    ]
    approval = CollectionApproval(task_id="approve", planned=planned)
    monkeypatch.setattr("airflow.providers.standard.operators.hitl.ApprovalOperator.execute", lambda *_: None)
    values = {"repository": "file:///r", "approve_above": "1"}
    approval.execute(cast("Any", {"params": values}))
    *_, first, second = str(approval.body).splitlines()
    assert first == "| orders | 2 | 2 KiB |"
    assert second.startswith("| payments | not planned, nothing is deleted: Corrupted (head-damaged): The head is \\| ")
    monkeypatch.setattr("airflow.providers.standard.operators.hitl.ApprovalOperator.execute_complete", lambda *_: None)
    assert approval.execute_complete(cast("Any", {}), {}) == [{"application_id": "orders", "lists": ["a list"]}]


@pytest.mark.parametrize(
    ("field", "value"), [("min_age", "soon"), ("approve_above", "much"), ("application_id", "orders")]
)
def test_a_wrong_parameter_fails_the_run_at_once(url: str, field: str, value: str) -> None:
    done = run(url, **{field: value})
    assert str(done.state) == "failed"
    (task,) = [one for one in done.get_task_instances() if one.task_id == "plan"]
    assert (str(task.state), task.try_number) == ("failed", 1)
