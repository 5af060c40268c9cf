"""A state directory is published unchanged, whole or not at all."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from statecore.errors import Fenced, NotFound
from statecore.faults import BACKUP_POINTS, PUBLISH_POINTS, VARIABLE, FaultInjected, InjectedFault
from statecore.formats.kinds import StoreKind
from statecore.jobs.backup.report import BACKUP_REPORT, BackupOutcome
from statecore.jobs.fetch.request import FetchRequest
from statecore.jobs.fetch.run import run_fetch
from statecore.statedir.database_state import read_database_state
from statecore.statedir.readonly_database import Database
from statecore.statedir.state_directory import StateDirectory
from tests.harness.case_selection import three_of
from tests.unit.doctor.stored import CASES, write_golden
from tests.unit.jobs.backup.snapshots import CLICKS, INTERVAL, ROWS, World, segment_of, tree


def test_a_closed_store_is_published_unchanged(world: World) -> None:
    world.write(ROWS, 7)
    before = tree(world.path / "0_0")
    report = world.snapshot()
    assert report.outcome is BackupOutcome.PUBLISHED
    assert [(store.task, store.store, store.offsets, store.tail) for store in report.stores] == [
        ("0_0", "counts", {"app-counts-changelog-0": 7}, -1)
    ]
    assert tree(world.path / "0_0") == before
    (path,) = world.laid_out().values()
    assert world.rows(path) == (ROWS, {world.changelog(): 7}, 0)
    linked = {name for name in before if name.endswith(".sst")}
    assert linked
    for name in linked:
        assert (path / Path(name).name).read_bytes() == before[name][2]
    assert not list(path.glob("statecore-witness")), "it is for Kafka Streams"
    assert [one.name for one in (world.path / ".statecore").iterdir()] == []


def test_the_manifest_has_only_known_values(world: World) -> None:
    world.write(ROWS, 7)
    world.snapshot()
    ((_, store),) = world.stored().items()
    (end,) = store.changelogs
    assert (end.offset, end.end, end.topic_id, end.log_end) == (7, 8, "", -1)
    assert (store.read_at_ms, store.stream_time, store.content, store.restored_by_kafka_streams) == (
        None,
        -1,
        None,
        False,
    )
    assert store.isolation == "read_uncommitted"
    (database,) = store.databases
    assert database.segment is None
    assert not database.runs
    names = {file.name.rstrip("0123456789-") for file in database.base if not file.name.endswith(".sst")}
    assert names == {"CURRENT", "IDENTITY", "MANIFEST", "OPTIONS"}


def test_a_report_is_a_document(world: World) -> None:
    world.write(ROWS, 7)
    report = world.snapshot()
    document = json.loads(json.dumps(report.to_json()))
    assert document["outcome"] == "published"
    assert BACKUP_REPORT.from_json(document) == report


def test_a_retry_finds_the_snapshot_of_an_earlier_attempt(world: World) -> None:
    world.write(ROWS, 7)
    first = world.snapshot(request_id="one")
    shutil.rmtree(world.path / "0_0")
    again = world.snapshot(request_id="one")
    assert (again.outcome, again.snapshot, again.identity) == (BackupOutcome.EARLIER, first.snapshot, first.identity)
    assert len(again.notes) == 1  # that nothing was read


@pytest.mark.parametrize("point", three_of(BACKUP_POINTS))
def test_a_killed_attempt_publishes_nothing_and_the_next_one_finishes(world: World, point: str) -> None:
    world.write(ROWS, 7)
    before = tree(world.path / "0_0")
    with pytest.raises(FaultInjected):
        world.snapshot(request_id="one", faults=InjectedFault(point, "raise"))
    assert world.app_repository.read_head() is None
    assert tree(world.path / "0_0") == before
    assert world.snapshot(request_id="one").outcome is BackupOutcome.PUBLISHED


@pytest.mark.parametrize("point", three_of([*BACKUP_POINTS, *PUBLISH_POINTS]))
def test_a_command_that_is_killed_anywhere_is_finished_by_its_retry(world: World, tmp_path: Path, point: str) -> None:
    world.write(ROWS, 7)
    before = tree(world.path / "0_0")
    (tmp_path / "stores.yaml").write_text(json.dumps(world.spec))
    words = [sys.executable, "-m", "statecore.cli.main", "backup", "--json", "--offline", "--request-id", "one"]
    words += ["--spec", str(tmp_path / "stores.yaml"), "--state-dir", str(world.state_dir), "--repository", world.url]
    killed = subprocess.run(words, env={**os.environ, VARIABLE: f"{point}:kill"}, capture_output=True, check=False)
    assert killed.returncode == -signal.SIGKILL
    retried = subprocess.run(words, capture_output=True, check=True)
    earlier = point == "publish.after-head"
    assert json.loads(retried.stdout)["outcome"] == (BackupOutcome.EARLIER if earlier else BackupOutcome.PUBLISHED)
    assert len(world.app_repository.head().snapshots) == 1
    assert tree(world.path / "0_0") == before
    (path,) = world.laid_out().values()
    assert world.rows(path) == (ROWS, {world.changelog(): 7}, 0)


def test_files_of_a_killed_attempt_are_deleted_and_those_of_a_running_one_are_not(world: World) -> None:
    world.write(ROWS, 7)
    work = world.path / ".statecore"
    dead, alive, young = work / "snapshot-dead", work / "snapshot-alive", work / "snapshot-young"
    for path in (dead, alive, young):
        path.mkdir(parents=True)
        (path / "held").touch()
    for path in (dead, alive):
        os.utime(path, (time.time() - 3600,) * 2)
    with (alive / "held").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        world.snapshot()
    assert sorted(path.name for path in work.iterdir()) == ["snapshot-alive", "snapshot-young"]


def test_a_plan_lists_the_stores_and_leaves_nothing(world: World) -> None:
    world.write(ROWS, 7)
    before = tree(world.path)
    report = world.snapshot(plan_only=True)
    assert report.outcome is BackupOutcome.PLANNED
    assert [store.store for store in report.stores] == ["counts"]
    assert world.app_repository.read_head() is None
    assert tree(world.path) == before
    assert not (world.path / ".statecore").exists()


def test_a_plan_counts_files_and_bytes_and_new_ones(world: World) -> None:
    world.write(ROWS, 7)
    (first,) = world.snapshot(plan_only=True).stores
    (taken,) = world.snapshot().stores
    assert first == taken
    assert 0 < first.new_files == first.files
    assert 0 < first.new_bytes == first.bytes
    (known,) = world.snapshot(plan_only=True).stores
    assert (known.files, known.bytes) == (first.files, first.bytes)
    assert (known.new_files, known.new_bytes) == (0, 0)
    world.write({b"more": b"1"}, 8)
    (more,) = world.snapshot(plan_only=True).stores
    assert 0 < more.new_files < more.files
    report = world.snapshot()
    assert report.stores == (more,)
    assert report.put_bytes == more.new_bytes


def test_a_missing_application_or_repository_is_not_found(world: World, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no directory"):
        world.snapshot()
    world.write(ROWS, 7)
    world.url = (tmp_path / "another").as_uri()
    with pytest.raises(NotFound, match="There is no repository"):
        world.snapshot()


def test_another_job_s_lock_is_not_taken_for_a_running_application(world: World) -> None:
    world.write(ROWS, 7)
    with StateDirectory(world.state_dir, "app").lock(), pytest.raises(Fenced, match="holds its lock"):
        world.snapshot()


@pytest.mark.parametrize("case", CASES)
def test_every_kind_is_published_as_kafka_streams_wrote_it(tmp_path: Path, case: str) -> None:
    world = World(tmp_path)
    made = write_golden(world.path, case)
    subtopology, _, partition = made["task"].partition("_")
    declared = {"kind": made["kind"], "changelog": made["changelog"]}
    if "segments" in made or made["kind"] == "versioned-key-value":
        declared["retention"] = "10m"
    if made["kind"] == "grace-buffer":
        del declared["retention"]
    world.spec["subtopologies"] = {subtopology: {"stores": {made["store"]: declared}}}
    before = tree(world.path)
    report = world.snapshot()
    assert report.outcome is BackupOutcome.PUBLISHED
    assert {name: file for name, file in tree(world.path).items() if name != ".lock"} == before
    stored = world.stored()[made["task"], made["store"]]
    (end,) = stored.changelogs
    assert (end.topic, end.partition, end.end) == (made["changelog"], int(partition), made["log_end_offset"])
    assert stored.kind == made["kind"]
    laid = world.laid_out()
    rows = {
        f"{made['store']}.{(key[2] or 0) * (stored.segment_interval_ms or 0)}": dict(_rows(path))
        for key, path in laid.items()
    }
    expected = made.get("segments") or {f"{made['store']}.0": made["families"]}
    family = StoreKind(made["kind"]).data_column_family
    assert rows == {
        name: {bytes.fromhex(key): bytes.fromhex(value) for key, value in families.get(family, ())}
        for name, families in expected.items()
    }


def _rows(path: Path) -> list[tuple[bytes, bytes]]:
    with Database(path) as database:
        (family,) = database.families - {"offsets", "default"} or {"default"}
        return list(database.rows(family))


def test_a_backup_of_every_shape_can_be_fetched(tmp_path: Path) -> None:
    world = World(tmp_path, **CLICKS, empty={"kind": "key-value"}, idle={"kind": "session", "retention": "10m"})
    world.write(ROWS, 7)
    segment_of(world, 0, 9)
    segment_of(world, INTERVAL, 12)
    world.write({}, -4, path=world.database("empty"), changelog=world.changelog("empty"))
    (world.path / "0_0" / "idle").mkdir()
    world.spec["global_stores"] = {"products": {"kind": "key-value", "topic": "products"}}
    topic = world.changelog()._replace(topic="products")
    world.write(ROWS, 5, path=world.database("products", "global"), changelog=topic)
    world.snapshot()
    elsewhere = tmp_path / "elsewhere"
    run_fetch(FetchRequest(repository=world.url, application_id="app", state_dir=str(elsewhere)))
    directory = StateDirectory(elsewhere, "app")
    found = {
        f"{task}/{store.store}/{path.name}": read_database_state(path)
        for task in ("0_0", "global")
        for store in directory.stores(task)
        for path in store.databases
    }
    assert {name: (list(state.offsets.values()), state.status) for name, state in found.items()} == {
        "0_0/counts/counts": ([7], 0),
        "0_0/clicks/clicks.0": ([9], 0),
        f"0_0/clicks/clicks.{INTERVAL}": ([9], 0),
        "0_0/empty/empty": ([-4], 0),
        "0_0/idle/idle.0": ([-4], 0),
        "global/products/products": ([5], 0),
    }
    assert world.rows(elsewhere / "app" / "0_0" / "rocksdb" / "counts")[0] == ROWS


def test_the_command_reports_a_snapshot_and_then_no_change(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from statecore.cli.main import main

    world.write(ROWS, 7)
    (tmp_path / "stores.yaml").write_text(json.dumps(world.spec))
    words = ["backup", "--spec", str(tmp_path / "stores.yaml"), "--state-dir", str(world.state_dir)]
    words += ["--repository", world.url, "--offline", "--task", "0_0"]
    assert main(words) == 0
    out = capsys.readouterr()
    assert "published 20" in out.out
    assert "the application may be started" in out.err
    assert main(words) == 0
    assert "nothing has changed since" in capsys.readouterr().out
