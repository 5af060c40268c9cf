"""What can be told of docker-compose.yml without a container engine: its shape, its pins, its secrets, its ports."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from tests.unit.airflow.home import ROOT

TEXT = (ROOT / "docker-compose.yml").read_text()
COMPOSE: dict[str, Any] = yaml.safe_load(TEXT)
SERVICES: dict[str, Any] = COMPOSE["services"]
AIRFLOW = ("init", "apiserver", "scheduler", "dag-processor", "triggerer")
SECRET = re.compile(r"\$\{([A-Z0-9_]+):\?[^}]+\}")


def pinned(package: str) -> str:
    (line,) = [one for one in (ROOT / "constraints.txt").read_text().splitlines() if one.startswith(f"{package}==")]
    return line.partition("==")[2]


def test_every_part_is_there() -> None:
    assert set(SERVICES) == {*AIRFLOW, "volumes", "postgres", "kafka", "s3"}


def test_every_image_names_its_version() -> None:
    for name, service in SERVICES.items():
        assert re.search(r":v?\d", service["image"]), name


def test_the_image_is_built_from_the_airflow_that_is_tested() -> None:
    dockerfile = (ROOT / "docker" / "Dockerfile").read_text()
    assert f"FROM apache/airflow:{pinned('apache-airflow')}-python3.11" in dockerfile
    assert f"'apache-airflow=={pinned('apache-airflow')}'" in dockerfile


def test_what_the_image_is_built_from_reaches_the_build() -> None:
    dockerfile = (ROOT / "docker" / "Dockerfile").read_text()
    let_in = (ROOT / "docker" / "Dockerfile.dockerignore").read_text().splitlines()
    copied = [part for line in re.findall(r"^COPY \S+ (.+) \S+$", dockerfile, re.MULTILINE) for part in line.split()]
    assert copied
    for path in copied:
        assert (ROOT / path).exists(), path
        assert f"!{path}" in let_in, path


def test_nothing_listens_beyond_the_loopback_address() -> None:
    ports = [port for service in SERVICES.values() for port in service.get("ports", ())]
    assert len(ports) == 3
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_every_secret_comes_from_outside_and_is_listed_in_the_example() -> None:
    example = (ROOT / "docker" / "environment.example").read_text()
    listed = set(re.findall(r"^([A-Z0-9_]+)=$", example, re.MULTILINE))
    assert set(SECRET.findall(TEXT)) == listed
    for service in SERVICES.values():
        for name, value in service.get("environment", {}).items():
            if re.search(r"PASSWORD$|SECRET|_KEY$|ACCESS_KEY", name) and not name.endswith("_FILE"):
                assert SECRET.fullmatch(value), name


@pytest.mark.parametrize("name", AIRFLOW)
def test_all_parts_of_airflow_share_their_secrets_and_the_database(name: str) -> None:
    environment = SERVICES[name]["environment"]
    for shared in ("API_AUTH__JWT_SECRET", "CORE__FERNET_KEY", "DATABASE__SQL_ALCHEMY_CONN"):
        assert environment[f"AIRFLOW__{shared}"] == SERVICES["init"]["environment"][f"AIRFLOW__{shared}"]
    assert environment["AIRFLOW__CORE__EXECUTION_API_SERVER_URL"].startswith("http://apiserver:8080/")


def test_the_scheduler_runs_spark_and_has_what_it_needs_while_the_api_server_sees_the_reports() -> None:
    assert "mem_limit" in SERVICES["scheduler"]
    mounts = {name: {one.split(":")[1] for one in SERVICES[name]["volumes"]} for name in ("scheduler", "apiserver")}
    assert {"/state", "/reports", "/specs", "/opt/airflow/logs"} <= mounts["scheduler"]
    assert {"/reports", "/opt/airflow/logs", "/opt/airflow/auth"} <= mounts["apiserver"]
    assert SERVICES["scheduler"]["environment"]["STATECORE_REPORTS"] == "/reports"


def test_every_volume_and_every_dependency_that_is_named_exists() -> None:
    for service in SERVICES.values():
        for mount in service.get("volumes", ()):
            source = mount.split(":")[0]
            assert source.startswith("./") or source in COMPOSE["volumes"], mount
        for needed, condition in service.get("depends_on", {}).items():
            assert needed in SERVICES
            if condition["condition"] == "service_healthy":
                assert "healthcheck" in SERVICES[needed], needed
