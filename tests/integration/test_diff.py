"""State directories that real Kafka Streams made, compared with their changelogs, snapshots and copies."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import rocksdict

from statecore.jobs.backup.request import BackupRequest
from statecore.jobs.backup.run import run_backup
from statecore.jobs.diff.report import DiffReport, DiffVerdict, ExistsIn
from statecore.jobs.diff.request import DiffRequest
from statecore.jobs.diff.row_diff import Difference, RowCounts
from statecore.jobs.diff.run import run_diff
from statecore.jobs.engine.in_process import InProcessEngine
from statecore.jobs.program import main
from statecore.jobs.restore.request import RestoreRequest
from statecore.jobs.restore.run import run_restore
from statecore.repository.repository import create_repository
from statecore.spark.engine import SparkEngine
from statecore.spark.session import spark_context
from tests.harness import directory
from tests.harness.broker import Broker
from tests.harness.feeds import EVENTS
from tests.harness.kinds import PLAIN
from tests.harness.rebuilding import PARTITIONS, KindsWorld
from tests.harness.shop_application import Shop
from tests.harness.spark_cluster import EXECUTORS_COME, SPARK_HOME, SparkCluster
from tests.harness.streams import StreamsJvm

pytestmark = pytest.mark.integration

ROOT = Path(__file__).resolve().parents[2]
STORES = ("key-value", "timestamped-key-value", "window", "session")
KINDS = replace(
    PLAIN,
    cases=tuple(case for case in PLAIN.cases if case.store in STORES),
    feed=lambda base, partitions: [one for one in PLAIN.feed(base, partitions) if one[0] == EVENTS],
)


@pytest.fixture(scope="module")
def world(broker: Broker, streams_jvm: StreamsJvm, tmp_path_factory: pytest.TempPathFactory) -> KindsWorld:
    """A closed application whose directory is not changed."""
    application_id = f"diff-{uuid.uuid4().hex[:8]}"
    made = KindsWorld(broker, streams_jvm, application_id, tmp_path_factory.mktemp("diff"), "exactly_once_v2", KINDS)
    with made.application():
        made.feed(KINDS.feed(made.base, PARTITIONS))
    return made


@pytest.fixture
def copy(world: KindsWorld, tmp_path: Path) -> Path:
    """A state.dir with a copy of the application's directory, to be damaged."""
    shutil.copytree(world.directory, tmp_path / "copy" / world.application_id)
    return tmp_path / "copy"


def diff(world: KindsWorld, state_dir: Path, **asked: Any) -> DiffReport:
    request = DiffRequest(spec=world.spec(), state_dir=str(state_dir), transaction_wait=5.0, **asked)
    return run_diff(request, InProcessEngine())


def change(database: Path, family: str, rows: Mapping[bytes, bytes | None]) -> None:
    """Write rows of a database, or delete them."""
    options = rocksdict.Options(raw_mode=True)
    names = rocksdict.Rdict.list_cf(str(database), options)
    opened = rocksdict.Rdict(str(database), options, column_families=dict.fromkeys(names, options))
    handle = opened if family == "default" else opened.get_column_family(family)
    for key, value in rows.items():
        if value is None:
            del handle[key]
        else:
            handle[key] = value
    if handle is not opened:
        handle.close()
    opened.close()
    (database / "rocksdict-config.json").unlink()


def counts(report: DiffReport) -> dict[tuple[str, str], RowCounts]:
    """How the rows compare of the stores that are not equal."""
    return {(one.task, one.store): one.counts for one in report.stores if not one.counts.are_equal}


def test_lost_updates_are_found_by_store_task_and_segment(world: KindsWorld, copy: Path) -> None:
    rows = world.rows()
    task = copy / world.application_id / "0_0"
    of_table = rows["0_0", "key-value"]["default"]
    (first, _), (second, old), *_ = of_table
    change(task / "rocksdb" / "key-value", "default", {first: None, second: old + b"!", b"\xff nobody": b"wrote it"})
    segment = min(name for at, name in rows if at == "0_0" and name.startswith("window/")).partition("/")[2]
    late = rows["0_0", f"window/{segment}"]["default"][0][0]
    change(task / "window" / segment, "default", {late: None})
    shutil.rmtree(task / "rocksdb" / "timestamped-key-value")
    before = directory.inodes(copy)

    report = diff(world, copy, with_changelog=True, tasks=("0_0",), examples=1)
    assert directory.inodes(copy) == before
    lost = len(rows["0_0", "timestamped-key-value"]["keyValueWithTimestamp"])
    assert counts(report) == {
        ("0_0", "key-value"): RowCounts(equal=len(of_table) - 2, missing=1, extra=1, different=1),
        ("0_0", "window"): RowCounts(
            equal=sum(len(rows[key]["default"]) for key in rows if key[0] == "0_0" and key[1].startswith("window/"))
            - 1,
            missing=1,
        ),
        ("0_0", "timestamped-key-value"): RowCounts(missing=lost),
    }
    assert report.verdict is DiffVerdict.DIFFERENT
    found = {store.store: store for store in report.stores}
    (of_segment,) = found["window"].compared.segments
    assert (of_segment.segment, of_segment.counts.missing) == (int(segment.rpartition(".")[2]), 1)
    (example,) = found["window"].compared.examples
    assert (example.difference, example.key) == (Difference.MISSING, late.hex())
    assert example.words["window_start"] == str(int.from_bytes(late[-12:-4]))
    assert {one.difference for one in found["key-value"].compared.examples} == set(Difference)
    assert found["timestamped-key-value"].only is ExistsIn.REFERENCE


def test_a_snapshot_equals_its_directory_and_differs_from_a_changed_copy(
    world: KindsWorld, copy: Path, tmp_path: Path
) -> None:
    repository = (tmp_path / "repository").as_uri()
    create_repository(repository)
    taken = BackupRequest(spec=world.spec(), state_dir=str(copy), repository=repository, tasks=("0_1",))
    published = run_backup(taken)
    before = directory.inodes(copy)
    report = diff(world, copy, with_snapshot="newest", repository=repository, tasks=("0_1",))
    assert (report.verdict, counts(report)) == (DiffVerdict.EQUAL, {})
    assert published.snapshot in report.reference
    assert {store.verdict for store in report.stores} == {DiffVerdict.EQUAL}
    assert directory.inodes(copy) == before

    (key, _), *_ = world.rows()["0_1", "session/" + segment_of(world, "0_1", "session")]["default"]
    segment = copy / world.application_id / "0_1" / "session" / segment_of(world, "0_1", "session")
    change(segment, "default", {key: b"other"})
    report = diff(world, copy, with_snapshot=published.snapshot, repository=repository, tasks=("0_1",))
    assert {at: one.different for at, one in counts(report).items()} == {("0_1", "session"): 1}
    assert not list(copy.glob(".statecore*"))


def segment_of(world: KindsWorld, task: str, store: str) -> str:
    """The oldest segment of a store that has rows."""
    return min(name for at, name in world.rows() if at == task and name.startswith(f"{store}/")).partition("/")[2]


def test_while_the_application_runs_what_it_has_flushed_is_compared(world: KindsWorld, copy: Path) -> None:
    with world.at(copy).application():
        report = diff(world, copy, with_state_dir=str(world.state_dir))
    assert report.running
    assert not report.reference_running
    assert counts(report) == {}


def test_a_store_that_is_behind_is_held_against_the_log_up_to_its_own_offset(broker: Broker, tmp_path: Path) -> None:
    shop = Shop(broker.bootstrap_servers, tmp_path)
    for name, count in (("behind", 500), ("there", 100)):
        shop.write(count)
        run_restore(RestoreRequest(spec=shop.spec, state_dir=str(tmp_path / name)), InProcessEngine())
    behind = {"spec": shop.spec, "state_dir": str(tmp_path / "behind")}
    report = run_diff(DiffRequest(**behind, with_changelog=True), InProcessEngine())
    assert report.verdict is DiffVerdict.EQUAL
    assert report.counts.equal > 0
    assert all(store.offsets == store.reference_offsets for store in report.stores)

    report = run_diff(DiffRequest(**behind, with_state_dir=str(tmp_path / "there")), InProcessEngine())
    assert report.verdict is DiffVerdict.AT_OTHER_OFFSETS
    assert report.counts.missing or report.counts.different


def lacking_a_row(world: KindsWorld, state_dir: Path) -> str:
    """Deletes a row of the store ``key-value``; a request that finds it."""
    (key, _), *_ = world.rows()["0_1", "key-value"]["default"]
    change(state_dir / world.application_id / "0_1" / "rocksdb" / "key-value", "default", {key: None})
    stores = ["key-value", "window"]
    return json.dumps({"spec": world.spec(), "state_dir": str(state_dir), "with_changelog": True, "stores": stores})


def found_by_spark(file: Path, state_dir: Path) -> dict[str, Any]:
    """The report, in which that row is missing and nothing else."""
    report: dict[str, Any] = json.loads(file.read_text())
    found = {(one["task"], one["store"]): one["compared"]["counts"] for one in report["stores"]}
    assert found.pop(("0_1", "key-value"))["missing"] == 1
    assert not any(one["missing"] or one["extra"] or one["different"] for one in found.values())
    assert not list(state_dir.glob(".statecore*"))
    return report


# PySpark leaves its gateway's sockets and pipe to the end of the process.
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_spark_builds_and_compares(world: KindsWorld, copy: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    request = lacking_a_row(world, copy)
    with spark_context("tests", "local[2]"):
        assert (
            main(["--report", str(report), "--request", request], verb="diff", spark=SparkEngine)
            == DiffVerdict.DIFFERENT.exit_code
        )
    assert found_by_spark(report, copy)["ran_on"]["master"] == "local[2]"


@pytest.mark.full
def test_executors_of_a_cluster_build_and_compare(
    world: KindsWorld, copy: Path, tmp_path: Path, spark_cluster: SparkCluster
) -> None:
    spark_cluster.await_idle()
    known = {one["id"] for one in spark_cluster.applications()}
    request = lacking_a_row(world, copy)
    conf = (
        *(f"spark.pyspark.python={sys.executable}", f"spark.executorEnv.PYTHONPATH={ROOT}"),
        *("spark.executor.memory=512m", "spark.cores.max=2", "spark.driver.host=127.0.0.1"),
        *(f"{name}={value}" for name, value in EXECUTORS_COME.items()),
    )
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "SPARK"))}
    done = subprocess.run(
        [
            *(str(SPARK_HOME / "bin" / "spark-submit"), "--master", spark_cluster.master),
            *(word for one in conf for word in ("--conf", one)),
            *(str(ROOT / "spark_jobs" / "diff.py"), "--report", str(tmp_path / "report.json"), "--request", request),
        ],
        env={**kept, "PYTHONPATH": str(ROOT), "PYSPARK_DRIVER_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=1200,
    )
    assert done.returncode == DiffVerdict.DIFFERENT.exit_code, done.stdout + done.stderr
    report = found_by_spark(tmp_path / "report.json", copy)
    assert (report["ran_on"]["master"], report["ran_on"]["executors"]) == (spark_cluster.master, 2)
    (mine,) = [one for one in spark_cluster.applications() if one["id"] not in known]
    assert spark_cluster.executors_of(mine["id"]) == set(spark_cluster.hosts)
