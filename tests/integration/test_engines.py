"""One plan, two engines, Spark and processes: the same results, and each goes on where the other was killed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from statecore.changelog.ranges import split_range
from statecore.errors import Invalid, StatecoreError
from statecore.faults import FaultInjected, InjectedFault
from statecore.jobs.engine.processes import ProcessEngine
from statecore.jobs.engine.protocol import PROCESSES, Engine
from statecore.jobs.pipeline.build_stage import build_images
from statecore.jobs.read_report import ReadReport
from statecore.jobs.restore.request import RestoreRequest
from statecore.jobs.restore.run import run_restore
from statecore.spark.engine import SparkEngine
from tests.harness.broker import Broker
from tests.harness.on_spark import SPARK_LEFTOVERS
from tests.harness.streams import StreamsJvm
from tests.harness.tables import World
from tests.harness.three_kinds import three_kinds

pytestmark = [pytest.mark.integration, *SPARK_LEFTOVERS]

ENGINES: dict[str, Engine] = {"spark": SparkEngine("local[2]"), "processes": ProcessEngine(2)}


def test_without_java_the_command_line_rebuilds_what_kafka_streams_opens_and_restores_nothing_of(
    broker: Broker, streams_jvm: StreamsJvm, application_id: str, state_dir: Path, tmp_path: Path
) -> None:
    world = World(broker, streams_jvm, application_id, state_dir, "exactly_once_v2")
    world.feed()
    before = world.live()
    rows = world.rows()
    world.lose()
    spec = tmp_path / "stores.yaml"
    spec.write_text(json.dumps(world.request().spec))
    words = ["restore", "--spec", str(spec), "--state-dir", str(state_dir), "--engine", "processes", "--processes", "2"]
    bare = {name: value for name, value in os.environ.items() if name not in ("JAVA_HOME", "SPARK_HOME")}
    bare["PATH"] = str(tmp_path)  # there is no java on it
    process = subprocess.run(
        [sys.executable, "-m", "statecore.cli.main", *words, "--json"],
        env=bare,
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    report = json.loads(process.stdout)
    assert (report["master"], report["executors"]) == (PROCESSES, 2)
    assert world.rows() == rows
    assert world.reopen() == (before, 0)


def test_a_partition_is_read_and_merged_by_all_processes_and_kafka_streams_restores_nothing_of_it(
    broker: Broker,
    streams_jvm: StreamsJvm,
    application_id: str,
    state_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Five ranges and several slices of the keys of each store partition; killed, and gone on with what was merged."""
    world = World(broker, streams_jvm, application_id, state_dir, "exactly_once_v2")
    world.feed(rounds=6)
    before = world.live()
    rows = world.rows()
    world.lose()
    monkeypatch.setattr("statecore.jobs.planning.plan.plan_ranges", cut_in_five)
    monkeypatch.setitem(build_images.__kwdefaults__, "slice_bytes", 4000)
    request = world.request(request_id="killed")
    with pytest.raises(FaultInjected):
        run_restore(request, ProcessEngine(2), faults=InjectedFault("restore.after-images"))
    merged = {path: path.stat().st_ino for path in state_dir.rglob("merged/**/*.json")}
    assert len(merged) >= 2 * len(before)
    for images in list(state_dir.rglob(".statecore/**/images")):
        shutil.rmtree(images)
    kept: dict[Path, int] = {}

    class Look(InjectedFault):
        def reach(self, point: str) -> None:
            if point == "restore.after-images":
                kept.update({path: path.stat().st_ino for path in state_dir.rglob("merged/**/*.json")})

    report = run_restore(request, ProcessEngine(2), faults=Look("restore.after-images"))
    assert isinstance(report, ReadReport)
    assert kept == merged
    assert min(store.runs for store in report.stores) >= 3
    assert world.rows() == rows
    assert world.reopen() == (before, 0)


def cut_in_five(partitions: Any, *_: Any, **__: Any) -> list[Any]:
    return [part for whole in partitions for part in split_range(whole, 5)]


@pytest.fixture(scope="module")
def spec(broker: Broker) -> dict[str, Any]:
    return three_kinds(broker.bootstrap_servers, f"engines-{time.time_ns()}")


def restore(engine: str, spec: Mapping[str, Any], state_dir: Path, request_id: str = "", **more: Any) -> ReadReport:
    request = RestoreRequest(
        state_dir=str(state_dir), spec=spec, versioned="latest", request_id=request_id or engine, memory_budget=1 << 20
    )
    report = run_restore(request, ENGINES[engine], **more)
    assert isinstance(report, ReadReport)
    return report


def test_the_same_plan_has_the_same_results_on_each_engine(spec: dict[str, Any], tmp_path: Path) -> None:
    reports = {engine: restore(engine, spec, tmp_path / engine) for engine in ENGINES}
    one, other = reports.values()
    assert one.plan_id == other.plan_id
    assert len(one.stores) == 3 * 3 + 1
    assert [replace(store, seconds=0) for store in one.stores] == [replace(store, seconds=0) for store in other.stores]
    assert {engine: report.ran_on.master for engine, report in reports.items()} == {
        "spark": "local[2]",
        "processes": PROCESSES,
    }


@pytest.mark.full
@pytest.mark.parametrize(("killed", "next_one"), [("spark", "processes"), ("processes", "spark")])
def test_an_engine_resumes_what_another_left_when_it_was_killed(
    spec: dict[str, Any], tmp_path: Path, killed: str, next_one: str
) -> None:
    with pytest.raises(FaultInjected):
        restore(killed, spec, tmp_path, "request", faults=InjectedFault("restore.after-runs"))
    runs = {path: path.stat().st_ino for path in tmp_path.rglob("runs/**/*.json")}
    assert len(runs) >= 3 * 3 + 2
    kept: dict[Path, int] = {}

    class Look(InjectedFault):
        def reach(self, point: str) -> None:
            if point == "restore.after-images":
                kept.update({path: path.stat().st_ino for path in tmp_path.rglob("runs/**/*.json")})

    report = restore(next_one, spec, tmp_path, "request", faults=Look("restore.after-images"))
    assert kept == runs
    assert any("resumed" in note for note in report.notes)
    whole = restore(next_one, spec, tmp_path / "whole")
    assert [store.digest for store in report.stores] == [store.digest for store in whole.stores]
    shutil.rmtree(tmp_path)


def test_every_engine_reports_a_failed_task_in_the_same_words(spec: dict[str, Any], tmp_path: Path) -> None:
    wrong = {**spec, "subtopologies": {"0": {"stores": {"plain": {"kind": "session", "retention": "10m"}}}}}
    said = set()
    for engine in ENGINES:
        with pytest.raises(StatecoreError) as raised:
            restore(engine, {**wrong, "global_stores": {}}, tmp_path / engine)
        said.add((type(raised.value), raised.value.code, raised.value.context["topic"]))
    assert said == {(Invalid, "record-kind-mismatch", f"{spec['application_id']}-plain-changelog")}
