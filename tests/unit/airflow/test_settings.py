from __future__ import annotations

from pathlib import Path

from statecore.airflow.settings import Settings


def test_nothing_set_means_reports_in_the_airflow_home_and_no_defaults() -> None:
    settings = Settings.from_environment({"AIRFLOW_HOME": "/srv/airflow"})
    assert settings == Settings((), None, Path("/srv/airflow/statecore/reports"), "spark_default", None)
    assert settings.secret_env_vars() == {}


def test_an_empty_variable_counts_as_absent() -> None:
    names = (
        "STATECORE_SPECS",
        "STATECORE_STATE_DIR",
        "STATECORE_REPORTS",
        "STATECORE_SPARK_CONN",
        "STATECORE_KAFKA_CONN",
    )
    empty = dict.fromkeys(names, "")
    home = {"AIRFLOW_HOME": "/h"}
    assert Settings.from_environment(home | empty) == Settings.from_environment(home)


def test_several_specs_are_separated_as_paths_are() -> None:
    assert Settings.from_environment({"STATECORE_SPECS": "/a.yaml:/b.yaml:"}).specs == ("/a.yaml", "/b.yaml")


def test_secrets_are_templates_over_the_connection_and_no_values() -> None:
    settings = Settings.from_environment({"STATECORE_KAFKA_CONN": "broker"})
    assert settings.secret_env_vars() == {
        "KAFKA_USERNAME": "{{ conn.broker.login }}",
        "KAFKA_PASSWORD": "{{ conn.broker.password }}",
    }
