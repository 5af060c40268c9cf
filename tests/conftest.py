"""Fixtures of the real systems. Nothing here starts anything, or sets anything global, until a test asks for it.

Under pytest-xdist all workers share one broker: the first worker that needs it starts it, and it lives as long as the
controlling pytest process does. Names of topics and applications are unique, so tests do not meet on it.
"""

from __future__ import annotations

import fcntl
import gc
import logging
import os
import random
import re
import signal
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.harness.airflow_site import AirflowSite, airflow_site
from tests.harness.broker import Broker
from tests.harness.fleet import Fleet
from tests.harness.s3_server import CREDENTIALS
from tests.harness.spark_cluster import SparkCluster
from tests.harness.streams import StreamsJvm

LONGEST_FIRST = (
    "integration/test_airflow_cluster.py",
    "integration/test_airflow_migrate.py",
    "integration/test_airflow.py",
    "integration/test_airflow_snapshots.py",
    "integration/test_airflow_checkpoints.py",
    "integration/test_spark_cluster.py",
    "integration/test_publish_on_cluster.py",
    "integration/test_kinds.py",
    "integration/test_repair.py",
    "integration/test_migrate_versions.py",
    "integration/test_restore_stopped.py",
    "integration/test_every_kind.py",
    "integration/test_group_member.py",
    "integration/test_checkpoint.py",
    "integration/test_checkpoint_reconcile.py",
    "integration/test_restore.py",
    "integration/test_reader.py",
    "integration/test_checkpoint_bases.py",
    "integration/test_dump.py",
    "integration/test_deletes_gone.py",
    "integration/test_backup.py",
    "integration/test_checkpoint_follow.py",
    "integration/test_transactional_directories.py",
    "integration/test_emitted.py",
    "integration/test_zero_action.py",
    "integration/test_leader_change.py",
    "integration/test_versioned_started.py",
    "integration/test_active_task.py",
    "integration/test_checkpoint_stopped.py",
    "integration/test_transactional_snapshots.py",
    "integration/test_security.py",
    "integration/test_unlogged.py",
    "integration/test_processor_restore.py",
    "integration/test_doctor_topics.py",
    "integration/test_migrate_kills.py",
    "unit/jobs/backup/test_run.py",
    "unit/doctor/test_diagnosis_golden.py",
    "unit/jobs/recover_global/test_run.py",
    "unit/jobs/compact/test_run.py",
    "unit/jobs/fetch/test_files.py",
    "unit/objectstore/test_s3.py",
    "unit/statedir/test_placement_kills.py",
    "unit/objectstore/test_conformance.py",
    "unit/images/test_reconcile.py",
    "unit/doctor/test_golden_directories.py",
    "unit/standby/promote/test_run.py",
    "unit/standby/promote/test_unfinished_creations.py",
    "unit/repository/test_simulation.py",
    "unit/images/test_segments_campaign.py",
)
"""Files that take minutes, or much of one: who began the last of them at the end would be waited for.

Counts only where workers take the files in their order (``--no-loadscope-reorder``; else: those with most tests first).
"""

TOGETHER = dict.fromkeys(
    ("integration/test_airflow", "integration/test_spark_cluster", "integration/test_publish_on_cluster"), "airflow"
)
"""Files whose names begin so run on one worker, because they share servers that take long to start."""

SYSTEMS = (
    "airflow",
    "broker",
    "own_broker",
    "cluster",
    "streams_jvm",
    "jvm",
    "fleet",
    "spark",
    "spark_cluster",
    "server",
    "s3",
)
"""Fixtures that start or use a real system: ``make test-times`` tells time by them."""

# Tests talk to servers of their own, whoever the developer is elsewhere.
for _name in [name for name in os.environ if name.startswith("AWS_")]:
    del os.environ[_name]
os.environ.update(AWS_CONFIG_FILE=os.devnull, AWS_SHARED_CREDENTIALS_FILE=os.devnull, AWS_EC2_METADATA_DISABLED="true")
for _name in ("NO_PROXY", "no_proxy"):
    os.environ[_name] = ",".join(filter(None, [os.environ.get(_name), "127.0.0.1", "localhost"]))

# A shell that runs tests in the background has Ctrl-C ignored, which every process that a test starts would inherit.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Time decides nothing: neither how long an example takes, nor how long it takes to make one.
settings.register_profile("statecore", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("statecore")

# Connections that are collected at exit would log to a stream that pytest has closed.
logging.getLogger("py4j").setLevel(logging.WARNING)


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--shuffle SEED`` runs files, and the tests of each, in a random order: no test may lean on another."""
    parser.addoption("--shuffle", type=int, default=None, metavar="SEED", help="run tests in the order of this seed")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Puts the longest files first; within a file nothing changes. Each test's report names the systems it uses."""
    for item in items:
        used = [name for name in SYSTEMS if name in getattr(item, "fixturenames", ())]
        item.user_properties.append(("systems", " ".join(used) or item.path.parent.name))
    if (seed := config.getoption("--shuffle")) is not None:
        files = sorted({item.path for item in items})
        random.Random(seed).shuffle(files)
        places = {path: place for place, path in enumerate(files)}
        random.Random(seed).shuffle(items)
        items.sort(key=lambda item: places[item.path])
        return
    tests = Path(__file__).parent
    places = {tests / name: place for place, name in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: places.get(item.path, len(places)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Workers take whole files, and all files of ``TOGETHER`` that share a server."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class ByServer(LoadFileScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            return next((server for name, server in TOGETHER.items() if name in file), file)

    return ByServer(config, log)


def pytest_collection_finish() -> None:
    """Leaves what was imported and collected out of every later collection of garbage, of which tests ask for many."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One running broker for the whole test run; its topics are the test's own business."""
    base = tmp_path_factory.getbasetemp()
    shared = "PYTEST_XDIST_WORKER" in os.environ
    directory = (base.parent if shared else base) / "broker"
    # A worker's parent is the controlling process: the broker ends with the run, not with the worker that was first.
    owner = os.getppid() if shared else os.getpid()
    directory.parent.mkdir(exist_ok=True)
    with directory.with_suffix(".lock").open("w") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX)
        running = Broker.attach(directory) or Broker(directory, owner=owner).start()
    yield running
    if shared:
        running.detach()
    else:
        running.stop()


@pytest.fixture(scope="session")
def streams_jvm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StreamsJvm]:
    """One JVM with Kafka Streams, shared by the tests of a worker. A test that kills its JVM starts one of its own."""
    with StreamsJvm(tmp_path_factory.mktemp("streams") / "streams.log") as jvm:
        yield jvm


@pytest.fixture(scope="session")
def fleet(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """JVMs with Kafka Streams of every version of ``VERSIONS``, shared by the tests of a worker; each starts on demand.

    A test may kill one: it then runs nothing of anybody else's, because tests leave nothing running.
    """
    with Fleet(broker.bootstrap_servers, tmp_path_factory.mktemp("fleet")) as made:
        yield made


@pytest.fixture(scope="session")
def drivers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of the driver's machine, which the workers of ``spark_cluster`` do not see."""
    return tmp_path_factory.mktemp("driver")


@pytest.fixture(scope="session")
def spark_cluster(tmp_path_factory: pytest.TempPathFactory, drivers: Path) -> Iterator[SparkCluster]:
    """A standalone cluster with two workers of one core each, shared by the tests of a worker.

    The credentials of the tests' S3 servers are in the workers' environment, as a pod's or an instance's are.
    """
    directory = tmp_path_factory.mktemp("spark-cluster")
    with SparkCluster(directory, hidden=(drivers,), environment=CREDENTIALS) as running:
        yield running


@pytest.fixture(scope="session")
def airflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AirflowSite]:
    """One Airflow, shared by the tests of a worker; its Dags are paused until a test wants them."""
    with airflow_site(tmp_path_factory.mktemp("airflow")) as site:
        yield site


@pytest.fixture
def application_id(request: pytest.FixtureRequest) -> str:
    """An application id nobody else uses, which tells the test it belongs to."""
    return _unique(request)


@pytest.fixture
def topic_name(request: pytest.FixtureRequest) -> str:
    """A topic name nobody else uses, which tells the test it belongs to. The topic is not made."""
    return _unique(request)


@pytest.fixture
def state_dir(tmp_path: Path) -> Path:
    """An empty ``state.dir`` for a Kafka Streams application."""
    made = tmp_path / "state"
    made.mkdir()
    return made


def _unique(request: pytest.FixtureRequest) -> str:
    # Kafka keeps "." and "_" apart badly in metric names, and allows 249 characters of letters, digits, dot, _ and -.
    stem = re.sub(r"[^a-zA-Z0-9]+", "-", request.node.name).strip("-")[:60]
    return f"{stem}-{uuid.uuid4().hex[:8]}"


@pytest.fixture(autouse=True)
def no_handler_of_sigterm_is_left() -> Iterator[None]:
    """A handler that a test leaves would change how its worker ends, and what later tests see."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    assert signal.getsignal(signal.SIGTERM) is before
