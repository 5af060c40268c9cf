from __future__ import annotations

import re
from pathlib import Path

from statecore.airflow.settings import Settings
from tests.unit.airflow.home import ROOT


def test_nothing_set_means_reports_in_the_airflow_home_and_no_defaults() -> None:
    settings = Settings.from_environment({"AIRFLOW_HOME": "/srv/airflow"})
    assert settings == Settings((), None, None, Path("/srv/airflow/statecore/reports"), "spark_default", None)


def test_an_empty_variable_counts_as_absent() -> None:
    names = (
        "STATECORE_SPECS",
        "STATECORE_STATE_DIR",
        "STATECORE_STAGING_DIR",
        "STATECORE_REPORTS",
        "STATECORE_SPARK_CONN",
        "STATECORE_KAFKA_CONN",
    )
    empty = dict.fromkeys(names, "")
    home = {"AIRFLOW_HOME": "/h"}
    assert Settings.from_environment(home | empty) == Settings.from_environment(home)


def test_several_specs_are_separated_as_paths_are() -> None:
    assert Settings.from_environment({"STATECORE_SPECS": "/a.yaml:/b.yaml:"}).specs == ("/a.yaml", "/b.yaml")


def test_every_variable_that_the_code_reads_is_documented() -> None:
    read = ("statecore", "dags", "plugins", "spark_jobs", "docker", "docker-compose.yml")
    files = [file for name in read for file in ([ROOT / name] if (ROOT / name).is_file() else (ROOT / name).rglob("*"))]
    names = {
        name
        for file in files
        if file.is_file() and file.suffix in (".py", ".yml", ".example", "")
        for name in re.findall(r"\bSTATECORE_[A-Z_]+[A-Z]\b", file.read_text(errors="replace"))
    }
    assert {"STATECORE_SPECS", "STATECORE_KAFKA_CONN", "STATECORE_FAULT"} <= names
    page = (ROOT / "docs" / "airflow.md").read_text()
    assert sorted(name for name in names if f"`{name}" not in page) == []
