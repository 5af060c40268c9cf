from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from airflow.sdk.exceptions import ParamValidationError

from tests.unit.dags.loading import AIRFLOWS_OWN_WARNINGS, assert_explained, load_dag

DIRECTORY = {"application_id": "a", "state_dir": "/srv", "spec_path": "/srv/a.yaml"}

pytestmark = AIRFLOWS_OWN_WARNINGS
load = partial(load_dag, "recover_global_stores")


def validated(given: dict[str, Any]) -> Any:
    params = load().params
    params.update(given)
    return params.validate()


def test_the_dag_explains_itself_and_never_runs_by_itself() -> None:
    dag = load()
    assert "Stop the applications first" in (dag.doc_md or "")
    assert dag.tags == {"statecore", "kafka-streams", "recover"}
    assert (dag.catchup, dag.schedule) == (False, None)
    assert all(f"`{task}`" in (dag.doc_md or "") for task in dag.task_dict)
    assert_explained(dag)


def test_a_run_has_to_name_directories_with_their_specs() -> None:
    assert validated({"directories": [DIRECTORY]})["approve"] == "ask"
    for left_out in ("application_id", "state_dir", "spec_path"):
        lacking = {name: value for name, value in DIRECTORY.items() if name != left_out}
        with pytest.raises(ParamValidationError, match=left_out):
            validated({"directories": [lacking]})
