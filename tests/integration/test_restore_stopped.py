"""A restore that is stopped in the middle, or refused: what the operator reads, what is left, and what comes next.

The broker of this module is frozen (SIGSTOP) once the plan is written, so that Spark's tasks hang in their reads.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.harness import topics
from tests.harness.broker import Broker
from tests.harness.topics import Record

pytestmark = [pytest.mark.integration]

PARTITIONS = 2
ROOT = Path(__file__).parents[2]
MARK = "STATECORE_TEST_MARK"


@dataclass
class World:
    """An application's changelog on a broker of its own, a state directory, and ways to run the job."""

    broker: Broker
    application_id: str
    directory: Path

    @property
    def application(self) -> Path:
        return self.directory / "state" / self.application_id

    @property
    def spec(self) -> dict[str, Any]:
        return {
            "application_id": self.application_id,
            "bootstrap_servers": self.broker.bootstrap_servers,
            "processing_guarantee": "exactly_once_v2",
            "subtopologies": {"0": {"stores": {"store": {"kind": "key-value"}}}},
        }

    def command_line(self, *words: str) -> list[str]:
        (self.directory / "stores.yaml").write_text(json.dumps(self.spec))
        command = [sys.executable, "-m", "statecore.cli.main", "restore", "--json"]
        command += [] if "--engine" in words else ["--master", "local[2]"]
        command += ["--spec", str(self.directory / "stores.yaml"), "--state-dir", str(self.directory / "state")]
        return [*command, *words]

    def submitted(self, **request: Any) -> list[str]:
        document = {"spec": self.spec, "state_dir": str(self.directory / "state"), **request}
        command = [str(Path(sys.executable).with_name("spark-submit")), "--master", "local[2]"]
        command += ["--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.ui.enabled=false"]
        command += [str(ROOT / "spark_jobs" / "restore.py"), "--report", str(self.report)]
        return [*command, "--request", json.dumps(document)]

    @property
    def report(self) -> Path:
        return self.directory / "report.json"

    def info(self) -> dict[str, Any]:
        """What ``statecore info`` says of the application."""
        command = [sys.executable, "-m", "statecore.cli.main", "info", "--json"]
        command += ["--state-dir", str(self.directory / "state"), "--application-id", self.application_id]
        code, document, err = run(command)
        assert code == 0, err
        (one,) = document["applications"]
        assert isinstance(one, dict)
        return one

    def tasks(self) -> list[str]:
        return sorted(path.name for path in self.application.glob("0_*"))


@pytest.fixture(scope="module")
def own_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("stopped") / "broker") as running:
        yield running


@pytest.fixture
def world(own_broker: Broker, application_id: str, tmp_path: Path) -> World:
    changelog = f"{application_id}-store-changelog"
    topics.create(own_broker.bootstrap_servers, changelog, PARTITIONS)
    records = [Record(b"key-%d" % key, b"value of %d" % key, key % PARTITIONS) for key in range(200)]
    topics.produce_committed(own_broker.bootstrap_servers, changelog, records)
    return World(own_broker, application_id, tmp_path)


def start(command: list[str], mark: str) -> subprocess.Popen[bytes]:
    environment = {**os.environ, MARK: mark, "PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, cwd=ROOT, start_new_session=True
    )


def run(command: list[str], mark: str = "run") -> tuple[int, dict[str, Any], str]:
    """Exit code, the document on stdout, stderr."""
    process = start(command, mark)
    out, err = process.communicate(timeout=1200)
    document = json.loads(out) if b"--json" in [word.encode() for word in command] else {}
    return process.returncode, document, err.decode()


def processes(mark: str) -> dict[int, str]:
    """Every process that inherited the mark: the driver, its JVM, the Python workers."""
    found = {}
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and f"{MARK}={mark}\0".encode() in (entry / "environ").read_bytes() + b"\0":
                found[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
    return found


def workers_of(mark: str) -> list[int]:
    """The Python workers of Spark, without the daemon that forks them."""
    forked = [pid for pid, words in processes(mark).items() if "statecore.spark.daemon" in words]
    return [pid for pid in forked if parent_of(pid) in forked]


def parent_of(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("PPid:")))


def until(condition: Callable[[], bool], what: str, seconds: float = 300.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


@contextmanager
def hanging(world: World, command: list[str], mark: str) -> Iterator[subprocess.Popen[bytes]]:
    """The job with its workers in the middle of reading from a broker that does not answer."""
    process = start(command, mark)
    plans = world.application / ".statecore" / "plans"
    try:
        until(lambda: bool(list(plans.glob("*.json"))) or process.poll() is not None, "no plan was made")
        world.broker.freeze()
        staged = world.application / ".statecore"
        until(lambda: bool(list(staged.glob("*/attempts/*"))) or process.poll() is not None, "no task began")
        if process.poll() is not None:
            pytest.fail(f"the job ended before it could be stopped: {process.communicate()}")
        yield process
    finally:
        world.broker.thaw()
        process.kill()
        process.communicate()


def nobody_left(mark: str) -> None:
    until(lambda: not processes(mark), f"left behind: {processes(mark)}")


@pytest.mark.parametrize(
    ("number", "code", "kind"),
    [pytest.param(signal.SIGINT, 130, "Interrupted", marks=pytest.mark.full), (signal.SIGTERM, 143, "Terminated")],
)
def test_a_signal_ends_the_command_and_its_processes_and_a_retry_finishes(
    world: World, number: int, code: int, kind: str
) -> None:
    words = ("--request-id", "one")
    with hanging(world, world.command_line(*words), world.application_id) as process:
        # A terminal's Ctrl-C goes to every process of the group: the driver, the JVM, Spark's workers.
        os.killpg(process.pid, number) if number == signal.SIGINT else process.send_signal(number)
        out, err = process.communicate(timeout=1200)
        assert process.returncode == code
        error = json.loads(out)
        assert (error["error"], error["request_id"]) == (kind, "one")
        said = err.decode()
        assert said.splitlines()[-1].startswith(f"statecore: {kind}. ")
        assert "--request-id one" in said.splitlines()[-1]
        for trace in ("Traceback", "\tat ", "java.", "py4j", "ERROR"):
            assert trace not in said, said
        assert world.tasks() == []
        nobody_left(world.application_id)
    before = world.info()
    (unfinished,) = before["unfinished"]
    assert (unfinished["request_id"], unfinished["reached"], unfinished["running"]) == ("one", "read", False)
    assert (unfinished["done"], unfinished["total"]) == (0, PARTITIONS)
    assert (before["holder"], before["last_restore"]) == (None, None)
    done, report, err = run(world.command_line(*words))
    assert done == 0, err
    assert report["totals"]["rows"] == 200
    assert world.tasks() == ["0_0", "0_1"]
    after = world.info()
    assert (after["unfinished"], after["leftovers"], after["problems"]) == ([], [], [])
    assert (after["last_restore"]["attempt"]["request_id"], after["last_restore"]["rows"]) == ("one", 200)
    assert after["last_restore"]["plan_id"] == unfinished["plan_id"]
    assert after["host"] == report["host"] == socket.gethostname()


@pytest.mark.full
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGKILL, -signal.SIGKILL)])
def test_a_submitted_job_whose_jvm_ends_leaves_no_process_and_no_lock(world: World, number: int, code: int) -> None:
    with hanging(world, world.submitted(), world.application_id) as process:
        during = world.info()
        assert [one["running"] for one in during["unfinished"]] == [True]
        assert during["holder"]["process"] == during["unfinished"][0]["attempt"]["attempt"]["process"]
        process.send_signal(number)
        process.communicate(timeout=1200)
        assert process.returncode == code
        nobody_left(world.application_id)
        assert world.tasks() == []
        assert json.loads(world.report.read_text())["error"] == "Retryable"
    assert run(world.submitted())[0] == 0
    assert world.tasks() == ["0_0", "0_1"]


def test_a_killed_driver_leaves_no_worker_and_the_next_start_finishes(world: World) -> None:
    with hanging(world, world.command_line(), world.application_id) as process:
        process.kill()
        process.wait(300)
        assert world.tasks() == []
        nobody_left(world.application_id)
    assert run(world.command_line())[0] == 0


@pytest.mark.parametrize(
    ("number", "code", "kind", "what", "action"),
    [
        (signal.SIGKILL, 15, "Capacity", "worker process of Spark died while", "memory budget"),
        pytest.param(
            signal.SIGSEGV,
            1,
            "StatecoreError",
            "died of a signal (Segmentation fault)",
            "Report it together with the trace",
            marks=pytest.mark.full,
        ),
    ],
    ids=["killed by the system", "a crash"],
)
def test_a_worker_that_dies_is_named_without_a_stack_trace(
    world: World, number: int, code: int, kind: str, what: str, action: str
) -> None:
    with hanging(world, world.command_line(), world.application_id) as process:
        for worker in workers_of(world.application_id):
            os.kill(worker, number)
        world.broker.thaw()
        out, err = process.communicate(timeout=1200)
    error = json.loads(out)
    assert (process.returncode, error["error"]) == (code, kind)
    assert what in error["what"]
    assert action in error["action"]
    assert "py4j" not in err.decode()
    assert world.tasks() == []


def test_a_second_restore_of_the_same_application_is_fenced_and_the_first_continues(world: World) -> None:
    engine = ("--engine", "processes")
    with hanging(world, world.command_line(*engine), world.application_id) as process:
        code, error, _ = run(world.command_line(*engine, "--request-id", "second"))
        assert (code, error["error"]) == (11, "Fenced")
        assert f"in use: process {process.pid} (" in error["what"]
        world.broker.thaw()
        out, err = process.communicate(timeout=1200)
        assert process.returncode == 0, err.decode()
    assert json.loads(out)["totals"]["rows"] == 200
