"""Reads a Dag file as Airflow does."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk import DAG

from tests.unit.airflow.home import ROOT

AIRFLOWS_OWN_WARNINGS = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning:airflow.*"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]
"""Marks of tests that reach Airflow's own code, by ``DagBag`` or ``dag.test``."""


def bag_of(dag_id: str, **kwargs: Any) -> DagBag:
    return DagBag(str(ROOT / "dags" / f"{dag_id}.py"), **kwargs)


def load_dag(dag_id: str, **kwargs: Any) -> DAG:
    bag = bag_of(dag_id, **kwargs)
    assert bag.import_errors == {}
    return bag.dags[dag_id]


def assert_explained(dag: DAG, first: Collection[str] | None = None) -> None:
    """Each parameter has a title and a description; only those ``first`` are in the form's first section."""
    for name in dag.params:
        param = dag.params.get_param(name)
        assert param.schema["title"]
        assert param.description
        if first is not None:
            assert ("section" in param.schema) is (name not in first)
