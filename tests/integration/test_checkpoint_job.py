"""A checkpoint as a program: here where the tails are little, by Spark and the same plan where they are long."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from statecore.jobs.checkpoint.schedule import check_due
from statecore.jobs.in_progress_marker import marker_age
from statecore.jobs.planning.planned_tails import RESUMED_NOTE
from statecore.jobs.program import SPARK_NEEDED
from statecore.progress import MACHINE_PREFIX
from statecore.repository.repository import create_repository
from statecore.spec.reader import parse_spec
from tests.harness.broker import Broker
from tests.harness.shop_application import Shop
from tests.unit.airflow.stub import spec

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

ROOT = Path(__file__).resolve().parents[2]


class Asked(NamedTuple):
    """What a job is asked for: as much of a shop as it is given."""

    spec: dict[str, Any]
    url: str
    scratch: Path


class Job:
    """The program, started.

    Args:
        shop: the application, and its repository.
        request_id: names the request.
        program: what Python is given, before the arguments.
        arguments: further arguments.
    """

    def __init__(self, shop: Shop | Asked, request_id: str, program: list[str], *arguments: str) -> None:
        self.report_file = shop.scratch / f"{uuid.uuid4().hex}.json"
        request = {"spec": shop.spec, "repository": shop.url, "request_id": request_id}
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        self.process = subprocess.Popen(
            [
                sys.executable,
                *program,
                *("--request", json.dumps(request), "--report", str(self.report_file)),
                *arguments,
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            text=True,
        )

    @classmethod
    def here(cls, shop: Shop | Asked, request_id: str, *arguments: str) -> Job:
        return cls(shop, request_id, ["-m", "statecore.jobs.program", "checkpoint", "--local"], *arguments)

    def ends(self) -> tuple[int, dict[str, Any]]:
        """Exit code and report."""
        assert self.process.stdout is not None
        assert self.process.stdin is not None
        with self.process.stdin, self.process.stdout as lines:
            self.said = lines.read()
            code = self.process.wait(120)
        return code, json.loads(self.report_file.read_text())


@pytest.fixture
def shop(broker: Broker, tmp_path: Path) -> Shop:
    made = Shop(broker.bootstrap_servers, tmp_path)
    made.write()
    made.checkpoint()
    return made


def identities(shop: Shop) -> dict[tuple[str, str], str]:
    """What the stores of the newest snapshot are made of."""
    return {key: store.identity for key, store in shop.stores_there().items()}


def test_a_long_tail_is_planned_here_and_read_by_spark_and_what_is_published_is_the_same(shop: Shop) -> None:
    before = shop.app_repository.head()
    shop.write(300)
    code, said = Job.here(shop, "long", "--small-tail", "1").ends()
    assert (code, said.get("stores"), said.get("error")) == (SPARK_NEEDED, None, None)
    assert shop.app_repository.head() == before
    twin = Job.here(shop, "twin", "--small-tail", "1")  # freezes the same offsets
    assert twin.ends()[0] == SPARK_NEEDED
    assert marker_age(shop.app_repository, time.time()) is not None, "a schedule waits"
    shop.write(50)  # what comes later is not read: the plan is frozen
    program = [
        str(ROOT / "spark_jobs" / "checkpoint.py"),
        "--small-tail",
        "1",
        "--continues-own-plan",
        "--master",
        "local[1]",
    ]
    spark = Job(shop, "long", program)
    code, report = spark.ends()
    assert code == 0, spark.said
    assert report["master"] == "local[1]"
    assert marker_age(shop.app_repository, time.time()) is not None, "that of the twin"
    assert RESUMED_NOTE not in report["notes"]
    assert report["totals"]["records"] == 900
    by_spark = identities(shop)
    # The twin finds all of it published by then, and has nothing to add: its runs are the very same.
    code, report = Job.here(shop, "twin").ends()
    assert (code, report["master"]) == (0, "")
    assert identities(shop) == by_spark
    assert marker_age(shop.app_repository, time.time()) is None, "the next one is due at its interval"


def test_a_small_tail_is_read_in_this_process_and_progress_is_printed_by_line(shop: Shop) -> None:
    shop.write(100)
    job = Job.here(shop, "little")
    code, report = job.ends()
    assert code == 0, job.said
    assert report["master"] == ""
    assert report["totals"]["records"] == 300
    newest = next(entry for entry in shop.app_repository.head().snapshots if entry.origin == "checkpoint")
    assert report["published"]["snapshot"] == newest.snapshot
    phases = [json.loads(line.removeprefix(MACHINE_PREFIX)) for line in job.said.splitlines() if MACHINE_PREFIX in line]
    assert {"plan", "read", "publish"} <= {one["phase"] for one in phases}


@pytest.mark.full
def test_two_at_once_do_no_harm(shop: Shop) -> None:
    shop.write(200)
    both = [Job.here(shop, name) for name in ("one", "other")]
    ended = [one.ends() for one in both]
    assert [code for code, _ in ended] == [0, 0], [one.said for one in both]
    assert sum(one["published"] is not None for _, one in ended) >= 1
    verdict = check_due(shop.app_repository, parse_spec(shop.spec, "test"), clock=lambda: time.time() + 300)
    assert (verdict.is_due, verdict.why.split(";")[0]) == (False, "nothing is new")
    assert shop.fetched() == shop.restored()


@pytest.mark.parametrize("how", ["its starter is gone", "it is told to"])
def test_it_ends_with_its_starter_in_the_middle_of_work(tmp_path: Path, how: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # a broker that lets one in and never answers
        waiting = {**spec("waiting"), "bootstrap_servers": f"127.0.0.1:{silent.getsockname()[1]}"}
        url = (tmp_path / "repository").as_uri()
        create_repository(url)
        job = Job.here(Asked(waiting, url, tmp_path), "killed")
        assert job.process.stdout is not None
        assert job.process.stdin is not None
        assert '"phase":"plan"' in job.process.stdout.readline()
        if how == "it is told to":
            job.process.send_signal(signal.SIGTERM)
        else:
            job.process.stdin.close()
        assert job.process.wait(120) in (128 + signal.SIGTERM, 128 + signal.SIGHUP)
        job.process.stdout.close()
        job.process.stdin.close()
