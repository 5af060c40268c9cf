"""A restore tells the collector that its environment names, from the command line and as a Spark job."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from statecore.metrics import RESTORE_REMAINING, RESTORED
from tests.harness import topics
from tests.harness.broker import Broker
from tests.harness.case_selection import one_of
from tests.harness.collector import Collector
from tests.harness.topics import Record

pytestmark = [pytest.mark.integration]

ROOT = Path(__file__).parents[2]
NOW = int(time.time() * 1000)
RECORDS = 500


@pytest.fixture
def spec(broker: Broker, application_id: str, tmp_path: Path) -> Path:
    """The spec of an application that has one store, with records in its changelog."""
    changelog = f"{application_id}-s-changelog"
    topics.create(broker.bootstrap_servers, changelog, 2)
    records = [Record(b"key-%d" % n, b"value", n % 2, NOW) for n in range(RECORDS)]
    topics.produce(broker.bootstrap_servers, changelog, records)
    file = tmp_path / "stores.yaml"
    file.write_text(
        f"application_id: {application_id}\nbootstrap_servers: {broker.bootstrap_servers}\n"
        "processing_guarantee: at_least_once\nsubtopologies: {'0': {stores: {s: {kind: key-value}}}}\n"
    )
    return file


@pytest.mark.parametrize("way", one_of(["Spark job", "command line"]))
def test_a_collector_sees_what_was_restored_and_that_nothing_is_left(
    spec: Path, state_dir: Path, application_id: str, way: str, tmp_path: Path
) -> None:
    request = json.dumps({"state_dir": str(state_dir), "spec_path": str(spec)})
    places = ["--spec", str(spec), "--state-dir", str(state_dir)]
    command = {
        "command line": ["-m", "statecore.cli.main", "restore", "--json", "--master", "local[2]", *places],
        "Spark job": ["spark_jobs/restore.py", "--request", request, "--report", str(tmp_path / "report.json")],
    }[way]
    with Collector() as collector:
        environment = {**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": collector.endpoint}
        done = subprocess.run(
            [sys.executable, *command], env=environment, cwd=ROOT, capture_output=True, text=True, check=False
        )
    assert done.returncode == 0, done.stderr
    tags = ("application-id", application_id)
    assert collector.last(RESTORED.name) == {tags: RECORDS}
    assert collector.last(RESTORE_REMAINING.name) == {tags: 0}
    report = json.loads(done.stdout if way == "command line" else (tmp_path / "report.json").read_text())
    assert report["totals"]["records"] == RECORDS
