"""Snapshots by a real Spark cluster whose machines share nothing but the object store."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from statecore.jobs.engine.processes import ProcessEngine
from statecore.jobs.read_report import ReadReport
from statecore.jobs.restore.request import RestoreRequest
from statecore.jobs.restore.run import run_restore
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.manifest import StoreSnapshot
from statecore.repository.repository import create_repository
from tests.harness import s3_server
from tests.harness.broker import Broker
from tests.harness.spark_cluster import EXECUTORS_COME, SPARK_HOME, SparkCluster, can_hide
from tests.harness.three_kinds import NOW, three_kinds
from tests.harness.topics import Record

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def server(drivers: Path) -> Iterator[s3_server.S3Server]:
    """On the driver's machine."""
    started = s3_server.S3Server(drivers / "s3").start()
    yield started
    started.stop()


@pytest.fixture(autouse=True)
def free_workers(spark_cluster: SparkCluster) -> None:
    """What the test before has submitted has given its cores back."""
    spark_cluster.await_idle()


@pytest.fixture(scope="module")
def application(broker: Broker) -> dict[str, Any]:
    return declared(broker, f"on-cluster-{os.getpid()}", 4_000)


def declared(broker: Broker, application_id: str, count: int) -> dict[str, Any]:
    """An application of three kinds in four partitions, with so many records of each."""

    def records(end: bytes) -> list[Record]:
        return [
            Record(b"key-%d" % (n % 3000) + end, None if n % 7 == 0 else b"value %d" % n * 9, n % 4, timestamp=NOW + n)
            for n in range(count)
        ]

    return three_kinds(broker.bootstrap_servers, application_id, records, 4, has_global=False)


def url_of(server: s3_server.S3Server, name: str) -> str:
    url = server.bucket("states").below(name).url
    create_repository(url)
    return url


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in s3_server.CREDENTIALS.items():
        monkeypatch.setenv(name, value)


def submit(directory: Path, request: dict[str, Any], master: str, *conf: str) -> tuple[int, str, dict[str, Any]]:
    """``spark-submit`` of the job as an operator would: exit code, what it printed, its report or error."""
    directory.mkdir(parents=True)
    report = directory / "report.json"
    more = (
        *("spark.executor.memory=512m", "spark.cores.max=2", "spark.driver.host=127.0.0.1"),
        *(f"{name}={value}" for name, value in EXECUTORS_COME.items()),
        *(f"spark.pyspark.python={sys.executable}", *conf),
    )
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "SPARK"))}
    done = subprocess.run(
        [
            *(str(SPARK_HOME / "bin" / "spark-submit"), "--master", master),
            *(word for one in more for word in ("--conf", one)),
            *(str(ROOT / "spark_jobs" / "restore.py"), "--report", str(report), "--request", json.dumps(request)),
        ],
        env={**kept, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore", "PYSPARK_DRIVER_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )
    said = done.stdout + done.stderr
    assert report.exists(), said
    return done.returncode, said, json.loads(report.read_text())


def request_of(application: dict[str, Any], url: str, **more: Any) -> dict[str, Any]:
    return {"spec": application, "repository": url, "versioned": "latest", **more}


def stores_of(url: str, application: dict[str, Any]) -> dict[tuple[str, str], StoreSnapshot]:
    app_repository = ApplicationRepository.open(url, application["application_id"])
    newest = app_repository.head().newest
    assert newest is not None
    task_manifests = app_repository.task_manifests(app_repository.manifest(newest).value.task_manifests)
    return {(task, store.store): store for task, read in task_manifests.items() for store in read.manifest.stores}


Identities = dict[tuple[str, str], tuple[str, Sequence[str]]]


@pytest.fixture(scope="module")
def identities(application: dict[str, Any], server: s3_server.S3Server) -> Identities:
    return published_alone(application, server)


def published_alone(application: dict[str, Any], server: s3_server.S3Server) -> Identities:
    """What processes of one machine publish of it: identity and run hashes of each store."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in s3_server.CREDENTIALS.items():
            patch.setenv(name, value)
        url = url_of(server, f"alone-{application['application_id']}")
        report = run_restore(RestoreRequest(**request_of(application, url)), ProcessEngine(2))
        assert isinstance(report, ReadReport)
        return identities_in(url, application)


def identities_in(url: str, application: dict[str, Any]) -> Identities:
    return {key: (store.identity, hashes(store)) for key, store in stores_of(url, application).items()}


def hashes(store: StoreSnapshot) -> list[str]:
    return [digest for digest, _ in store.extents]


def test_machines_that_share_nothing_publish_what_one_machine_does(
    spark_cluster: SparkCluster,
    application: dict[str, Any],
    server: s3_server.S3Server,
    drivers: Path,
    identities: Identities,
) -> None:
    url = url_of(server, "shared-nothing")
    known = {one["id"] for one in spark_cluster.applications()}
    code, said, document = submit(drivers / "alone", request_of(application, url), spark_cluster.master)
    assert code == 0, said
    assert (document["master"], document["executors"]) == (spark_cluster.master, 2)
    assert document["hosts"] == ["127.0.0.2", "127.0.0.3"]
    assert identities_in(url, application) == identities
    assert s3_server.SECRET not in said
    (mine,) = [one["id"] for one in spark_cluster.applications() if one["id"] not in known]
    assert len(spark_cluster.executors_of(mine)) == 2
    assert not any(s3_server.SECRET in line for line in command_lines())
    if can_hide():
        (worker, *_) = processes_of(spark_cluster, "deploy.worker.Worker")
        assert list(drivers.iterdir())
        assert not list(Path(f"/proc/{worker}/root{drivers}").iterdir())


@pytest.mark.full
def test_images_of_what_they_published_are_built_where_they_are_used(
    spark_cluster: SparkCluster,
    application: dict[str, Any],
    server: s3_server.S3Server,
    drivers: Path,
    identities: Identities,
) -> None:
    url, state_dir = url_of(server, "placed"), drivers / "placed-state"
    code, said, document = submit(
        drivers / "placed", request_of(application, url, state_dir=str(state_dir)), spark_cluster.master
    )
    assert code == 0, said
    assert (document["master"], document["executors"]) == (spark_cluster.master, 2)
    published = stores_of(url, application)
    assert {key: (store.identity, hashes(store)) for key, store in published.items()} == identities
    here = drivers / "placed-alone"
    alone = run_restore(RestoreRequest(state_dir=str(here), spec=application, versioned="latest"), ProcessEngine(2))
    assert isinstance(alone, ReadReport)
    assert {(one["task"], one["store"]): one["digest"] for one in document["stores"]} == {
        (one.task, one.store): one.digest for one in alone.stores
    }
    for store in alone.stores:
        assert published[store.task, store.store].content == (store.rows, store.bytes, store.digest)
    app_repository = ApplicationRepository.open(url, application["application_id"])
    assert not list(app_repository.blobs.list(app_repository.names.stagings))
    work = state_dir / application["application_id"] / ".statecore"
    assert sorted(path.name for path in work.iterdir()) == ["placed.json", "plans"]


def command_lines() -> list[str]:
    lines = []
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            lines.append(process.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue
    return lines


@pytest.mark.full
def test_an_executor_that_dies_in_the_middle_changes_nothing_of_the_snapshot(
    spark_cluster: SparkCluster,
    broker: Broker,
    application_id: str,
    server: s3_server.S3Server,
    drivers: Path,
) -> None:
    application = declared(broker, application_id, 40_000)  # an executor can be killed while they are read
    identities = published_alone(application, server)
    url = url_of(server, "killed")
    app_repository = ApplicationRepository.open(url, application["application_id"])
    killed: list[int] = []
    done = threading.Event()

    def kill() -> None:
        deadline = time.monotonic() + 600
        while time.monotonic() < deadline and not killed and not done.is_set():
            if any("/runs/" in blob.name for blob in app_repository.blobs.list(app_repository.names.stagings)):
                killed.extend(processes_of(spark_cluster, "CoarseGrainedExecutorBackend")[:1])
                for process in killed:
                    os.kill(process, signal.SIGKILL)
            time.sleep(0.02)

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    code, said, _ = submit(drivers / "killed", request_of(application, url), spark_cluster.master)
    done.set()
    killer.join()
    assert code == 0, said
    assert killed, "no executor was killed while ranges were read"
    assert identities_in(url, application) == identities


def processes_of(cluster: SparkCluster, called: str) -> list[int]:
    """The processes of a cluster's workers that are called so."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            is_java = b"org.apache.spark." in (words := (process / "cmdline").read_bytes()) and b"java" in words
            if is_java and called.encode() in words and (process / "cwd").readlink().is_relative_to(cluster.directory):
                found.append(int(process.name))
        except OSError:
            continue
    return found


@pytest.mark.full
def test_an_executor_without_credentials_is_refused_with_what_to_do(
    application: dict[str, Any], server: s3_server.S3Server, drivers: Path, tmp_path: Path
) -> None:
    url = url_of(server, "no-credentials")
    with SparkCluster(tmp_path / "without") as cluster:
        code, said, document = submit(drivers / "refused", request_of(application, url), cluster.master)
    assert (code, document["error"], document["code"]) == (13, "Invalid", "object-store-credentials-missing"), said
    assert not ApplicationRepository.open(url, application["application_id"]).read_head()
