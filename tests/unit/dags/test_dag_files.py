"""What the files of all Dags have in common."""

from __future__ import annotations

import sys

import pytest
from airflow.dag_processing.dagbag import DagBag

from tests.unit.airflow.home import ROOT
from tests.unit.dags.loading import AIRFLOWS_OWN_WARNINGS

pytestmark = AIRFLOWS_OWN_WARNINGS


@pytest.mark.parametrize(
    ("dag", "packages"),
    [
        ("checkpoint_stores", {"pyspark", "pyarrow", "boto3", "kafka"}),
        ("migrate_checkpoints", {"pyspark", "pyarrow"}),
        ("recover_global_stores", {"pyspark", "pyarrow"}),
        ("snapshot_state", {"pyspark"}),
        ("prune_snapshots", {"pyspark", "pyarrow", "boto3", "kafka"}),
        ("verify_snapshots", {"pyspark", "pyarrow", "boto3", "kafka"}),
    ],
)
def test_the_file_is_read_without_packages_of_the_jobs(dag: str, packages: set[str]) -> None:
    file = str(ROOT / "dags" / f"{dag}.py")
    DagBag(file)  # what it imports is loaded once in the parser, which forks for each file
    before = set(sys.modules)
    assert DagBag(file).import_errors == {}
    assert packages.isdisjoint(name.split(".")[0] for name in set(sys.modules) - before)
