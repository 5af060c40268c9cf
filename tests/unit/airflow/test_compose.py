"""What can be told of docker-compose.yml without a container engine: its shape, its pins, its secrets, its ports."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from statecore.airflow import settings
from statecore.objectstore.s3_location import CUSTOMER_KEY
from tests.unit.airflow.home import ROOT
from tests.unit.kernels.libraries import LIBRARIES

TEXT = (ROOT / "docker-compose.yml").read_text()
COMPOSE: dict[str, Any] = yaml.safe_load(TEXT)
SERVICES: dict[str, Any] = COMPOSE["services"]
AIRFLOW = ("init", "apiserver", "scheduler", "dag-processor", "triggerer")
SPARK = ("spark-master", "spark-worker")
JOBS = ("scheduler", "spark-worker")
"""Where jobs run: the driver, and the executors."""

ONCE = {"volumes", "init", "kernels"}
"""Services that run to their end."""
OF_THE_OBJECT_STORE = {
    f"AWS_{one}" for one in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN", "DEFAULT_REGION", "ENDPOINT_URL")
}
OF_METRICS = set(COMPOSE.get("x-metrics", ()))
PASSED_ON = {*OF_THE_OBJECT_STORE, CUSTOMER_KEY, *OF_METRICS}
"""Passed on from .env or the shell as they are."""

SECRET = re.compile(r"\$\{([A-Z0-9_]+):\?[^}]+\}")


def pinned(package: str) -> str:
    (line,) = [one for one in (ROOT / "constraints.txt").read_text().splitlines() if one.startswith(f"{package}==")]
    return line.partition("==")[2]


def test_every_service_is_defined() -> None:
    assert set(SERVICES) == {*AIRFLOW, *SPARK, "volumes", "kernels", "postgres", "kafka"}
    assert (ROOT / "specs" / "README.md").is_file()


def targets(name: str) -> dict[str, str]:
    """Path in the container → what is mounted there."""
    found = {}
    for one in SERVICES[name]["volumes"]:
        source, target = (one["source"], one["target"]) if isinstance(one, dict) else one.split(":")[:2]
        found[target] = source
    return found


def test_every_image_names_its_version() -> None:
    for name, service in SERVICES.items():
        assert re.search(r":v?\d", service["image"]), name


def test_the_image_is_built_from_the_airflow_that_is_tested() -> None:
    dockerfile = (ROOT / "docker" / "Dockerfile").read_text()
    assert f"FROM apache/airflow:slim-{pinned('apache-airflow')}-python3.11" in dockerfile
    assert 'PYTHON = "3.11"' in (ROOT / "tests" / "integration" / "test_image.py").read_text()
    wanted = (ROOT / "docker" / "requirements.txt").read_text().splitlines()
    assert f"apache-airflow=={pinned('apache-airflow')}" in wanted


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
    assert len(ports) == 2
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_every_secret_comes_from_outside_and_is_listed_in_the_example() -> None:
    example = (ROOT / "docker" / "environment.example").read_text()
    listed = set(re.findall(r"^([A-Z0-9_]+)=$", example, re.MULTILINE))
    assert set(SECRET.findall(TEXT)) == listed
    passed = {
        name for service in SERVICES.values() for name, value in service.get("environment", {}).items() if value is None
    }
    assert passed == PASSED_ON
    optional = set(re.findall(r"\$\{([A-Z0-9_]+):-", TEXT)) | passed
    assert optional == set(re.findall(r"^# ([A-Z0-9_]+)=", example, re.MULTILINE))
    for service in SERVICES.values():
        for name, value in service.get("environment", {}).items():
            if (
                re.search(r"PASSWORD$|SECRET|_KEY$|ACCESS_KEY", name)
                and not name.endswith("_FILE")
                and name not in passed
            ):
                assert SECRET.fullmatch(value), name


@pytest.mark.parametrize("name", AIRFLOW)
def test_all_services_of_airflow_share_secrets_and_database(name: str) -> None:
    environment = SERVICES[name]["environment"]
    for shared in ("API_AUTH__JWT_SECRET", "CORE__FERNET_KEY", "DATABASE__SQL_ALCHEMY_CONN"):
        assert environment[f"AIRFLOW__{shared}"] == SERVICES["init"]["environment"][f"AIRFLOW__{shared}"]
    assert environment["AIRFLOW__CORE__EXECUTION_API_SERVER_URL"].startswith("http://apiserver:8080/")


def test_jobs_have_the_state_directories_and_the_api_server_sees_the_reports() -> None:
    for name in JOBS:
        assert "mem_limit" in SERVICES[name], name
        assert targets(name)["/state"].startswith("${STATE_DIR:?")
        (mount,) = [one for one in SERVICES[name]["volumes"] if isinstance(one, dict)]
        assert mount["type"] == "bind"
        assert mount["bind"] == {"create_host_path": False}  # a directory that Docker makes is root's
    assert {"/reports", "/specs", "/opt/airflow/logs"} <= targets("scheduler").keys()
    assert {"/reports", "/opt/airflow/logs", "/opt/airflow/auth"} <= targets("apiserver").keys()


@pytest.mark.parametrize("name", [*AIRFLOW, *SPARK, "kernels"])
def test_writing_services_run_as_the_owner_of_the_state_directories(name: str) -> None:
    assert SERVICES[name]["user"].startswith("${AIRFLOW_UID:?")
    assert SERVICES[name]["image"] == SERVICES["scheduler"]["image"]


def test_a_state_directory_of_another_user_is_refused_before_anything_starts(tmp_path: Path) -> None:
    """The command of the service, run as the container would run it."""
    script = SERVICES["volumes"]["command"][0].replace("$$", "$").replace("/state", str(tmp_path))
    uid = tmp_path.stat().st_uid
    made = [tmp_path / name for name in ("logs", "auth", "reports", "kernels")]
    for path, mounted in zip(made, ("/opt/airflow/logs", "/opt/airflow/auth", "/reports", "/kernels"), strict=True):
        path.mkdir()
        path.chmod(0o775)  # as the image has them, and so the volumes
        script = script.replace(mounted, str(path))
    for owner, code in ((uid + 1, 1), (uid, 0)):
        environment = {**os.environ, "OWNER": str(owner), "ADMIN_PASSWORD": "secret"}
        done = subprocess.run(
            ["/bin/bash", "-ec", script], env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == code, done.stderr
        assert (f"belongs to uid {uid}" in done.stdout) is (code == 1)
    assert (tmp_path / "auth" / "passwords.json").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "kernels").stat().st_mode & 0o777 == 0o700  # else no machine code is taken from there


@pytest.mark.parametrize("name", AIRFLOW)
def test_every_service_of_airflow_has_the_dags_and_the_site_settings(name: str) -> None:
    for directory in ("dags", "plugins", "spark_jobs"):
        assert targets(name)[f"/opt/airflow/{directory}"] == f"./{directory}"
    assert targets(name)["/specs"] == "./specs"
    environment = SERVICES[name]["environment"]
    assert environment["STATECORE_REPORTS"] == "/reports"
    assert environment["STATECORE_STATE_DIR"] == "/state"
    assert settings_of_the_page() <= environment.keys()


def settings_of_the_page() -> set[str]:
    """The settings of docs/airflow.md, without those that need no value here."""
    section = (ROOT / "docs" / "airflow.md").read_text().partition("\n## Settings\n")[2].partition("\n## ")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `STATECORE_")]
    # The jobs are beside the folder of the Dags; faults are for tests.
    found = set(re.findall(r"`(STATECORE_[A-Z0-9_]+)`", "".join(rows))) - {"STATECORE_SPARK_JOBS", "STATECORE_FAULT"}
    assert set(re.findall(r"^``(STATECORE_[A-Z_]+)``", settings.__doc__ or "", re.MULTILINE)) == found
    return found


def test_long_jobs_leave_slots_for_checkpoints() -> None:
    environment = SERVICES["scheduler"]["environment"]
    words = SERVICES["init"]["command"][-1].split()
    name, slots = words[words.index("set") + 1 :][:2]
    assert name == environment["STATECORE_JOBS_POOL"]
    assert int(slots) < int(environment["AIRFLOW__CORE__PARALLELISM"])


def test_jobs_export_metrics_where_the_environment_says() -> None:
    documented = set(re.findall(r"`(OTEL_[A-Z_]+)[=`]", (ROOT / "docs" / "metrics.md").read_text()))
    assert documented <= OF_METRICS
    assert SERVICES["scheduler"]["environment"].keys() >= OF_METRICS


@pytest.mark.parametrize("name", SERVICES)
def test_driver_and_executors_alone_have_the_credentials_of_the_object_store(name: str) -> None:
    """Without a value compose passes on what is set, and leaves out what is not: an empty region is no region."""
    given = {key: value for key, value in SERVICES[name].get("environment", {}).items() if key.startswith("AWS_")}
    assert given == (dict.fromkeys(OF_THE_OBJECT_STORE) if name in JOBS else {})
    assert (CUSTOMER_KEY in SERVICES[name].get("environment", {})) is (name in JOBS)


def test_one_address_of_the_broker_serves_in_containers_and_on_the_host() -> None:
    environment = SERVICES["kafka"]["environment"]
    advertised = environment["KAFKA_ADVERTISED_LISTENERS"].split(",")
    assert advertised == ["CLIENTS://kafka:9092"]
    assert "127.0.0.1:9092:9092" in SERVICES["kafka"]["ports"]
    assert "127.0.0.1 kafka" in TEXT


def test_the_default_connection_is_the_cluster_that_is_there() -> None:
    connection = json.loads(SERVICES["scheduler"]["environment"]["AIRFLOW_CONN_SPARK_DEFAULT"])
    master = f"{connection['host']}:{connection['port']}"
    assert master in SERVICES["spark-worker"]["command"][-1].split()
    assert {"--host spark-master", "--port 7077"} <= {
        " ".join(pair) for pair in pairwise(SERVICES["spark-master"]["command"][-1].split())
    }


def test_a_stop_waits_for_the_restores_that_run() -> None:
    assert re.fullmatch(r"\$\{STOP_GRACE_PERIOD:-\d+h\}", SERVICES["scheduler"]["stop_grace_period"])
    assert SERVICES["scheduler"]["environment"]["DUMB_INIT_SETSID"] == "0"  # else the jobs get the signal too
    assert "spark-worker" in SERVICES["scheduler"]["depends_on"]  # else the executors are stopped first


def test_every_service_that_stays_says_whether_it_is_well() -> None:
    for name, service in SERVICES.items():
        assert ("healthcheck" in service) is (name not in ONCE), name


def test_kernels_are_compiled_before_a_job_needs_them() -> None:
    assert SERVICES["kernels"]["command"] == ["python", "-m", "statecore.spark.warm"]
    for name in (*JOBS, "kernels"):
        assert SERVICES[name]["environment"]["NUMBA_CACHE_DIR"] == "/kernels"
        assert targets(name)["/kernels"] == "kernels"
    for name in JOBS:
        assert SERVICES[name]["depends_on"]["kernels"]["condition"] == "service_completed_successfully"


def test_all_kernels_are_compiled_ahead() -> None:
    """Every module that has kernels is reached by those that ``warm`` names."""
    code = (
        "from statecore.kernels import native; found = []\n"
        "real = native.load\n"
        "def load(module): found.append(module); return real(module)\n"
        "native.load = load\n"
        "from statecore.spark import warm; code = warm.main(); print(*found); raise SystemExit(code)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert len(LIBRARIES) >= 4
    assert {library.source for library in LIBRARIES} == set(done.stdout.split())


def test_a_warming_that_keeps_nothing_fails() -> None:
    code = (
        "from statecore.kernels import native; from statecore.spark import warm\n"
        "warm.KERNELS = (); native.compiled_in_vain.add('a.library'); raise SystemExit(warm.main())"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False, cwd=ROOT).returncode == 1


def test_every_volume_and_every_dependency_that_is_named_exists() -> None:
    for service in SERVICES.values():
        for mount in service.get("volumes", ()):
            if isinstance(mount, str):
                source = mount.split(":")[0]
                assert source in COMPOSE["volumes"] or (source.startswith("./") and (ROOT / source).is_dir()), mount
        for needed, condition in service.get("depends_on", {}).items():
            assert needed in SERVICES
            if condition["condition"] == "service_healthy":
                assert "healthcheck" in SERVICES[needed], needed
