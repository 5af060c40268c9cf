from __future__ import annotations

from typing import Any

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk import DAG
from airflow.sdk.exceptions import ParamValidationError

from tests.unit.airflow.home import ROOT

FILE = ROOT / "dags" / "recover_global_stores.py"
DIRECTORY = {"application_id": "a", "state_dir": "/srv", "spec_path": "/srv/a.yaml"}

# Airflow's own code, reached by DagBag.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning:airflow.*"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


def load() -> DAG:
    bag = DagBag(str(FILE))
    assert bag.import_errors == {}
    return bag.dags["recover_global_stores"]


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
    for name in dag.params:
        param = dag.params.get_param(name)
        assert param.schema["title"]
        assert param.description


def test_a_run_has_to_name_directories_with_their_specs() -> None:
    assert validated({"directories": [DIRECTORY]})["approve"] == "ask"
    for left_out in ("application_id", "state_dir", "spec_path"):
        lacking = {name: value for name, value in DIRECTORY.items() if name != left_out}
        with pytest.raises(ParamValidationError, match=left_out):
            validated({"directories": [lacking]})
