"""What a user installs: the wheel alone, in environments outside the checkout, restores; also on a cluster.

Driver and executors have environments of their own, as on machines that only share a directory.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from statecore.jobs.engine.protocol import PROCESSES
from tests.harness import wheel
from tests.harness.broker import Broker
from tests.harness.small_application import small_application
from tests.harness.spark_cluster import SparkCluster

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]


@dataclass(frozen=True)
class Installed:
    """The wheel in an environment of its own."""

    python: Path
    kernels: Path
    home: Path

    def run(self, *command: str | Path) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment where nothing of the checkout can be imported."""
        bin_ = self.python.parent
        own = {
            "PATH": os.pathsep.join([str(bin_), "/usr/bin", "/bin", *self._java()]),
            "HOME": str(self.home),
            "NUMBA_CACHE_DIR": str(self.kernels),
        }
        java = {name: os.environ[name] for name in ("JAVA_HOME",) if name in os.environ}
        words = [str(bin_ / command[0]), *map(str, command[1:])]
        return subprocess.run(
            words, env={**java, **own}, cwd=self.home, capture_output=True, text=True, timeout=1200, check=False
        )

    @staticmethod
    def _java() -> list[str]:
        java = shutil.which("java")
        return [str(Path(java).parent)] if java else []


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return wheel.build_wheel(tmp_path_factory.mktemp("wheel") / "build")


def installed(built: Path, directory: Path, extra: str) -> Installed:
    home = directory / "home"
    home.mkdir()
    python = wheel.install(built, directory / "environment", extra)
    return Installed(python, wheel.compiled_kernels(directory / "kernels"), home)


@pytest.fixture(scope="module")
def drivers_own(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """With Spark."""
    return installed(built, tmp_path_factory.mktemp("of-drivers"), "spark")


@pytest.fixture(scope="module")
def executors_own(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Without Spark: for executors, and for restores by processes."""
    return installed(built, tmp_path_factory.mktemp("of-executors"), "pipeline")


@pytest.fixture(scope="module")
def bare(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment with the base package and nothing else."""
    return wheel.install(built, tmp_path_factory.mktemp("bare") / "environment")


@pytest.fixture(scope="module")
def spec_file(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The spec of an application with 500 rows."""
    spec = {
        **small_application(broker, f"wheel-{os.getpid()}"),
        "spark": {"executor_python": "/nowhere/python"},  # no matter locally, and what is submitted wins
    }
    file = tmp_path_factory.mktemp("specs") / "stores.yaml"
    file.write_text(json.dumps(spec))
    return file


def stores(state_dir: Path) -> Iterator[Path]:
    return state_dir.glob("*/0_*/rocksdb/by-id/CURRENT")


def test_the_command_of_the_wheel_restores(executors_own: Installed, spec_file: Path, state_dir: Path) -> None:
    report = restored(executors_own, spec_file, state_dir, "--engine", "processes", "--processes", "2")
    assert (report["totals"]["rows"], report["master"], report["executors"]) == (500, PROCESSES, 2)


@pytest.mark.full
def test_the_command_of_the_wheel_restores_by_spark(drivers_own: Installed, spec_file: Path, state_dir: Path) -> None:
    report = restored(drivers_own, spec_file, state_dir, "--master", "local[2]")
    assert (report["totals"]["rows"], report["master"], report["executors"]) == (500, "local[2]", 1)


def restored(environment: Installed, spec_file: Path, state_dir: Path, *words: str) -> dict[str, Any]:
    """The report of a restore by the command of an environment."""
    where = environment.run("python", "-c", "import statecore; print(statecore.__file__)").stdout.strip()
    assert Path(where).is_relative_to(environment.python.parents[1])
    done = environment.run("statecore", "restore", "--json", "--spec", spec_file, "--state-dir", state_dir, *words)
    assert done.returncode == 0, done.stderr
    assert len(list(stores(state_dir))) == 2
    assert "INFO" not in done.stderr  # the log configuration is in the wheel, too
    report: dict[str, Any] = json.loads(done.stdout)
    return report


@pytest.mark.full
def test_the_job_of_the_wheel_restores_on_executors_with_an_environment_of_their_own(
    drivers_own: Installed,
    executors_own: Installed,
    spec_file: Path,
    state_dir: Path,
    tmp_path: Path,
    spark_cluster: SparkCluster,
) -> None:
    job = drivers_own.python.parents[1] / "share" / "statecore" / "spark_jobs" / "restore.py"
    report = tmp_path / "report.json"
    conf = {
        "spark.pyspark.python": str(executors_own.python),
        "spark.pyspark.driver.python": str(drivers_own.python),
        "spark.executorEnv.NUMBA_CACHE_DIR": str(executors_own.kernels),
        "spark.executor.memory": "512m",
        "spark.cores.max": "2",
        "spark.driver.host": "127.0.0.1",
    }
    done = drivers_own.run(
        *("spark-submit", "--master", spark_cluster.master),
        *(word for name, value in conf.items() for word in ("--conf", f"{name}={value}")),
        *(job, "--report", report, "--master", spark_cluster.master, "--request"),
        json.dumps({"spec_path": str(spec_file), "state_dir": str(state_dir)}),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    said = json.loads(report.read_text())
    assert (said["totals"]["rows"], said["master"], said["executors"]) == (500, spark_cluster.master, 2)
    assert said["hosts"] == list(spark_cluster.hosts)
    assert len(list(stores(state_dir))) == 2


def test_the_wheel_carries_what_airflow_is_pointed_to(executors_own: Installed) -> None:
    share = executors_own.python.parents[1] / "share" / "statecore"
    for name in ("dags/restore_stores.py", "plugins/statecore_plugin.py", "spark_jobs/restore.py"):
        assert (share / name).read_text() == (wheel.ROOT / name).read_text()
    # The Dag looks for its job beside its own folder.
    assert (share / "dags").parents[0] / "spark_jobs" == share / "spark_jobs"


def test_the_base_package_is_a_store_that_survives_kills_without_any_package_of_the_pipeline(
    bare: Path, tmp_path: Path
) -> None:
    script = Path(__file__).with_name("bare_install.py")
    for offset in range(3):
        command = [str(bare), "-I", "-X", "dev", "-W", "error::ResourceWarning", str(script), str(tmp_path)]
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        with subprocess.Popen(command, **pipes, text=True, cwd=tmp_path) as one:
            try:
                assert one.stdout is not None
                assert one.stderr is not None
                said = one.stdout.readline()
            finally:
                one.kill()
            assert said == f"committed {offset}\n", one.stderr.read()


def test_the_command_of_the_base_package_shows_a_store_and_names_the_extra_that_a_restore_needs(
    bare: Path, tmp_path: Path
) -> None:
    def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
        command = [str(bare.with_name("statecore")), *map(str, words)]
        return subprocess.run(command, capture_output=True, text=True, timeout=1200, cwd=tmp_path, check=False)

    assert run("--help").returncode == run("restore", "--help").returncode == 0
    assert run("--version").stdout.startswith("statecore ")
    spec = tmp_path / "stores.yaml"
    spec.write_text(
        "application_id: bare\nbootstrap_servers: localhost:1\nprocessing_guarantee: at_least_once\n"
        "subtopologies: {0: {stores: {counts: {kind: timestamped-key-value}}}}\n"
    )
    refused = run("restore", "--spec", spec, "--state-dir", tmp_path)
    assert refused.returncode == 13
    assert refused.stderr.startswith("statecore: [extra-missing] ")
    assert "pip install '.[spark]'" in refused.stderr
    assert "Traceback" not in refused.stderr
    code = (
        "from pathlib import Path; from statecore import RocksDBStore, StoreKind, TopicPartition\n"
        "with RocksDBStore(Path('bare/0_0/rocksdb/counts'), StoreKind.KEY_VALUE, create_if_missing=True) as store:\n"
        "    store.put(b'k', b'v')\n"
        "    store.commit({TopicPartition('bare-counts-changelog', 0): 0})"
    )
    subprocess.run([str(bare), "-I", "-c", code], cwd=tmp_path, check=True)
    # The messages that kafka-python lacks are made from files of the wheel.
    subprocess.run([str(bare), "-I", "-c", "import statecore.changelog.protocol"], cwd=tmp_path, check=True)
    seen = run("inspect", "--state-dir", tmp_path, "--json")
    assert seen.returncode == 0, seen.stderr
    (store,) = json.loads(seen.stdout)["applications"][0]["stores"]
    assert (store["store"], store["rows"]) == ("counts", 1)
    assert run("info", "--state-dir", tmp_path).returncode == 0
