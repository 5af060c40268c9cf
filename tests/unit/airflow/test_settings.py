from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from statecore.airflow.settings import Settings
from statecore.errors import Invalid
from tests.harness.raising import raises
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
        "STATECORE_REPOSITORY",
        "STATECORE_SNAPSHOT_SCHEDULE",
        "STATECORE_PRUNE_SCHEDULE",
        "STATECORE_VERIFY_SCHEDULE",
        "STATECORE_AWS_CONN",
        "STATECORE_CHECKPOINT_TICK",
        "STATECORE_SPARK_FROM",
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


def test_how_spark_runs_the_jobs_is_the_sites_to_say() -> None:
    settings = Settings.from_environment(
        {
            "STATECORE_SPARK_CONF": '{"spark.cores.max": 8}',
            "STATECORE_EXECUTOR_PYTHON": "/opt/python",
            "STATECORE_EXECUTOR_MEMORY": "2g",
            "STATECORE_EXECUTOR_CORES": "4",
            "STATECORE_EXECUTOR_ARCHIVES": "/a.tar.gz#a,/b.tar.gz#b",
        }
    )
    assert settings.spark.to_conf() == {
        "spark.cores.max": "8",
        "spark.pyspark.python": "/opt/python",
        "spark.executor.memory": "2g",
        "spark.executor.cores": "4",
        "spark.archives": "/a.tar.gz#a,/b.tar.gz#b",
    }


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("STATECORE_SPARK_CONF", "spark.cores.max=8"),
        ("STATECORE_SPARK_CONF", "[]"),
        ("STATECORE_SPARK_CONF", '{"cores": 1}'),
        ("STATECORE_EXECUTOR_CORES", "many"),
    ],
)
def test_a_setting_of_sparks_that_cannot_be_read_is_refused(name: str, value: str) -> None:
    with raises(Invalid, "spark-property-invalid" if value.startswith('{"cores') else "setting-invalid"):
        Settings.from_environment({name: value})


SCHEDULED = {
    "STATECORE_SNAPSHOT_SCHEDULE": "@hourly",
    "STATECORE_SPECS": "/a.yaml",
    "STATECORE_REPOSITORY": "file:///r",
}


def test_a_schedule_needs_applications_and_a_repository() -> None:
    Settings.from_environment({}).check_schedule()
    Settings.from_environment(SCHEDULED).check_schedule()
    for absent in ("STATECORE_SPECS", "STATECORE_REPOSITORY"):
        said = {name: value for name, value in SCHEDULED.items() if name != absent}
        with raises(Invalid, "setting-missing", settings=[absent]):
            Settings.from_environment(said).check_schedule()


def test_a_schedule_of_collections_needs_a_repository() -> None:
    Settings.from_environment({}).check_prune_schedule()
    site = {"STATECORE_PRUNE_SCHEDULE": "@daily", "STATECORE_REPOSITORY": "file:///r"}
    Settings.from_environment(site).check_prune_schedule()
    with raises(Invalid, "setting-missing", settings=["STATECORE_REPOSITORY"]):
        Settings.from_environment({**site, "STATECORE_REPOSITORY": ""}).check_prune_schedule()


def test_a_schedule_of_verifications_needs_a_repository() -> None:
    Settings.from_environment({}).check_verify_schedule()
    said = {"STATECORE_VERIFY_SCHEDULE": "@daily"}
    Settings.from_environment({**said, "STATECORE_REPOSITORY": "file:///r"}).check_verify_schedule()
    with raises(Invalid, "setting-missing", settings=["STATECORE_REPOSITORY"]):
        Settings.from_environment(said).check_verify_schedule()


@pytest.mark.parametrize("tick", ["0s", "1s", "2h", "-1m", "often", "60"])
def test_a_tick_that_is_none_or_too_short_or_too_long_is_refused(tick: str) -> None:
    with raises(Invalid, "setting-invalid", setting="STATECORE_CHECKPOINT_TICK") as refused:
        Settings.from_environment({"STATECORE_CHECKPOINT_TICK": tick})
    assert "statestore.checkpoint.interval.ms" in refused.value.action


def test_a_number_of_offsets_that_is_none_is_refused() -> None:
    assert Settings.from_environment({"STATECORE_SPARK_FROM": "5000"}).spark_from == 5000
    with raises(Invalid, "setting-invalid", setting="STATECORE_SPARK_FROM"):
        Settings.from_environment({"STATECORE_SPARK_FROM": "-1"})


def test_checkpoints_by_schedule_need_applications_and_a_repository() -> None:
    said = {"STATECORE_CHECKPOINT_TICK": "1m", "STATECORE_SPECS": "/a.yaml"}
    assert Settings.from_environment(said).checkpoint_tick_ms == 60_000
    with raises(Invalid, "setting-missing", settings=["STATECORE_REPOSITORY"]):
        Settings.from_environment(said).check_tick()
    Settings.from_environment({**said, "STATECORE_REPOSITORY": "s3://states"}).check_tick()
    Settings.from_environment({"STATECORE_SPECS": "/a.yaml"}).check_tick()


@pytest.mark.parametrize(
    ("site", "named", "is_elsewhere"),
    [
        ("s3://states/production?region=a&sse=b", "s3://states/production/?sse=b&region=a", False),
        ("s3://states/production", "s3://states/production?region=a", False),
        ("/data/repository", "file:///data/repository/", False),
        ("/data/repository", None, False),
        (None, "/data/repository", False),
        ("s3://states/production", "s3://states/replica", True),
    ],
)
def test_a_repository_is_the_same_whatever_its_options_are(
    monkeypatch: pytest.MonkeyPatch, site: str | None, named: str | None, is_elsewhere: bool
) -> None:
    settings = replace(Settings.from_environment(), repository=site)
    assert settings.is_elsewhere(named) is is_elsewhere
