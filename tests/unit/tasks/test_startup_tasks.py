"""Standbys that are open before the group is joined."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from statecore.errors import Capacity, Corrupted, Fenced, Invalid, Retryable
from statecore.faults import STARTUP_POINTS
from statecore.formats.kinds import StoreKind
from statecore.spec.model import ProcessingGuarantee, StoreSpec
from statecore.statedir.quarantine import KEPT_MS, quarantine_task, quarantined
from statecore.stores.rocksdb.store import RocksDBStore
from statecore.tasks.offset_sums import Task, TaskDirectoryState
from statecore.tasks.startup_tasks import StartupSettings, StartupTasks
from tests.harness.case_selection import three_of
from tests.harness.forked import Forks
from tests.harness.raising import raises
from tests.unit.tasks.startup_tasks_world import KV, WINDOW, OpenStores, World, changelog, lock_lost, opener, spec_of

ALOS, EOS = ProcessingGuarantee.AT_LEAST_ONCE, ProcessingGuarantee.EXACTLY_ONCE_V2


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path / "state")
    with world.directory.lock():
        yield world


def break_it(world: World, task: str) -> None:
    next((world.path(task) / "rocksdb" / KV).glob("MANIFEST-*")).write_bytes(b"nonsense")


def test_every_task_is_open_with_its_sum_before_anybody_asks(world: World) -> None:
    world.put_task("0_0", 4)
    world.put_task("0_1", 9)
    log: list[str] = []
    tasks = StartupTasks(world.directory, spec_of(), opener(world, log))
    assert {task: one.sum for task, one in tasks.start().items()} == {"0_0": 10, "0_1": 20}
    assert log == ["open 0_0", "open 0_1"]
    taken = tasks.take("0_1")
    assert (taken.name, list(tasks.open_tasks)) == ("0_1", ["0_0"])
    tasks.close_rest()
    tasks.close_rest()
    assert log == ["open 0_0", "open 0_1", "close 0_0"]
    assert taken.offsets() == {changelog(KV, 1): 9, changelog("per-hour", 1): 9}
    taken.close()


@pytest.mark.parametrize(("bound", "opened"), [(0, 0), (1, 0), (2, 1), (3, 1), (5, 2), (6, 3)])
def test_no_more_databases_are_open_than_the_setting_says_and_all_sums_are_known(
    world: World, bound: int, opened: int
) -> None:
    for partition in range(3):
        world.put_task(f"0_{partition}", 4)
    log: list[str] = []
    tasks = StartupTasks(world.directory, spec_of(), opener(world, log), settings=StartupSettings(bound))
    assert {task: one.sum for task, one in tasks.start().items()} == dict.fromkeys(("0_0", "0_1", "0_2"), 10)
    assert (len(log), len(tasks.open_tasks)) == (opened, opened)
    assert 2 * opened <= bound
    last = tasks.take("0_2")
    assert log[-1] == "open 0_2"
    last.close()
    tasks.close_rest()
    assert sorted(one for one in log if one.startswith("close")) == sorted(
        one.replace("open", "close") for one in log if one.startswith("open")
    )


def test_directories_of_others_are_left_alone_and_reported(world: World) -> None:
    world.put_task("0_0", 4)
    world.put_task("7_0", 4)
    world.put_plain("0_1", 30, application="other")
    world.path("0_2").mkdir()
    log: list[str] = []
    tasks = StartupTasks(world.directory, spec_of(), opener(world, log))
    assert set(tasks.start()) == {"0_0"}
    assert {task: one.state for task, one in tasks.skipped.items()} == {
        "7_0": TaskDirectoryState.UNDECLARED,
        "0_1": TaskDirectoryState.FOREIGN,
    }
    for task, says in (("7_0", "declares no"), ("0_1", "other"), ("9_9", "declares no"), ("../x", "not a task id")):
        with pytest.raises(Invalid, match=says):
            tasks.take(task)
    tasks.close_rest()
    assert log == ["open 0_0", "close 0_0"]
    assert {path.name for path in world.directory.path.iterdir()} >= {"0_0", "7_0", "0_1", "0_2"}


def test_a_directory_of_another_application_is_refused_without_a_start_too_and_taken_when_it_is_gone(
    world: World,
) -> None:
    world.put_plain("0_1", 30, application="other")
    for started in (False, True):
        tasks = StartupTasks(world.directory, spec_of(), opener(world, []))
        if started:
            tasks.start()
        with pytest.raises(Invalid, match="other"):
            tasks.take("0_1")
    world.path("0_1").rename(world.directory.path.parent / "elsewhere")
    tasks.take("0_1").close()


def test_a_task_open_in_another_process_is_not_moved(world: World) -> None:
    world.put_task("0_0", 4)
    world.put_task("0_1", 4)
    tasks = StartupTasks(world.directory, spec_of(), opener(world, []))
    with RocksDBStore(world.path("0_0") / "rocksdb" / KV, StoreKind.KEY_VALUE):
        assert set(tasks.start()) == {"0_1"}
        assert tasks.skipped["0_0"].state is TaskDirectoryState.OPEN
        with pytest.raises(Fenced):
            tasks.take("0_0")
    tasks.close_rest()


@pytest.mark.parametrize("bound", [0, 100])
def test_a_corrupt_task_is_quarantined_under_exactly_once_after_a_search_for_copies(world: World, bound: int) -> None:
    world.put_task("0_0", 4)
    world.put_task("0_1", 9)
    break_it(world, "0_1")
    files = {path.name for path in (world.path("0_1") / "rocksdb" / KV).iterdir()}
    asked: list[tuple[str, bool]] = []

    def find_copy(task: str) -> str:
        asked.append((task, world.path(task).is_dir()))
        return "snapshot-7"

    tasks = StartupTasks(
        world.directory,
        spec_of(),
        opener(world, []),
        settings=StartupSettings(bound),
        find_snapshot=find_copy,
        clock=lambda: 1000.0,
    )
    assert set(tasks.start()) == {"0_0"}
    assert asked == [("0_1", True)]
    (found,) = tasks.corrupt.values()
    assert (found.task, found.snapshot, found.quarantined.at_ms) == ("0_1", "snapshot-7", 1_000_000)
    assert found.quarantined.path == world.directory.work_path / "corrupt" / "0_1@1000000"
    assert {path.name for path in (found.quarantined.path / "rocksdb" / KV).iterdir()} == files
    assert not world.path("0_1").exists()
    assert found.reason
    tasks.close_rest()


@pytest.mark.parametrize("bound", [0, 3])
@pytest.mark.parametrize("checkpoint", [True, False])
def test_a_closed_task_that_kafka_streams_left_open_is_found_under_exactly_once_whatever_its_checkpoint_says(
    world: World, checkpoint: bool, bound: int
) -> None:
    for task in ("0_0", "0_1", "0_2"):
        world.put_task(task, 9)
    world.leave_open("0_1")
    if checkpoint:
        for number in range(3):
            world.write_checkpoint(f"0_{number}", {changelog(KV, number): 9, changelog("per-hour", number): 9})
    log: list[str] = []
    tasks = StartupTasks(world.directory, spec_of(), opener(world, log), settings=StartupSettings(bound))
    assert set(tasks.start()) == {"0_0", "0_2"}
    assert "was not closed cleanly" in tasks.corrupt["0_1"].reason
    assert log == (["open 0_0"] if bound else [])
    tasks.close_rest()


def test_a_task_left_open_by_kafka_streams_resumes_under_at_least_once(world: World) -> None:
    world.put_task("0_1", 9)
    world.leave_open("0_1")
    tasks = StartupTasks(world.directory, spec_of(ALOS), opener(world, []), settings=StartupSettings(0))
    assert set(tasks.start()) == {"0_1"}


def test_what_a_killed_job_left_is_settled_before_a_task_is_read(world: World) -> None:
    world.put_task("0_0", 4)
    left = world.directory.work_path / "placement-dead"
    left.mkdir()
    StartupTasks(world.directory, spec_of(), opener(world, []), settings=StartupSettings(0)).start()
    assert not left.exists()


def test_a_task_found_corrupt_at_the_open_is_quarantined_and_recreated(world: World) -> None:
    world.put_task("0_0", 4)
    world.put_task("0_1", 9)
    log: list[str] = []
    tasks = StartupTasks(world.directory, spec_of(), opener(world, log, corrupt="0_1"))
    assert set(tasks.start()) == {"0_0"}
    assert set(tasks.corrupt) == {"0_1"}
    tasks.take("0_1").close()
    assert not tasks.corrupt
    tasks.close_rest()


def test_a_task_that_is_found_corrupt_when_it_is_taken_goes_the_same_way(world: World) -> None:
    world.put_task("0_1", 9)
    tasks = StartupTasks(
        world.directory, spec_of(), opener(world, [], corrupt="0_1"), settings=StartupSettings(max_open_databases=0)
    )
    assert set(tasks.start()) == {"0_1"}
    with pytest.raises(Corrupted):
        tasks.take("0_1")
    assert set(tasks.corrupt) == {"0_1"}
    assert not tasks.sums
    tasks.take("0_1").close()


@pytest.mark.parametrize("seen", ["at the start", "when it is opened", "when it is taken", "closed"])
@pytest.mark.parametrize("other", ["scratch", "nobody-knows"])
def test_a_corrupt_task_with_an_unlogged_store_is_not_moved(world: World, seen: str, other: str) -> None:
    world.put_task("0_1", 9)
    world.put_plain("0_1", None, other)
    if seen == "at the start":
        break_it(world, "0_1")
    if seen == "closed":
        world.leave_open("0_1")
    settings = StartupSettings(0 if seen in ("closed", "when it is taken") else 256)
    tasks = StartupTasks(world.directory, spec_of(), opener(world, [], corrupt="0_1"), settings=settings)
    tasks.start()
    with pytest.raises(Corrupted):
        tasks.take("0_1")
    assert isinstance(tasks.refused["0_1"], Corrupted)
    assert not tasks.corrupt
    assert (world.path("0_1") / "rocksdb" / other / "CURRENT").exists()
    with pytest.raises(Corrupted):
        tasks.take("0_1")
    assert "0_1" not in tasks.sums


def test_a_corrupt_task_with_a_store_open_elsewhere_is_not_moved(world: World) -> None:
    world.put_task("0_1", 9)
    break_it(world, "0_1")
    tasks = StartupTasks(world.directory, spec_of(), opener(world, [], corrupt="0_1"))
    with RocksDBStore(world.path("0_1") / WINDOW / f"{WINDOW}.0", StoreKind.KEY_VALUE):
        tasks.start()
        with pytest.raises(Corrupted):
            tasks.take("0_1")
    assert isinstance(tasks.refused["0_1"], Fenced)
    assert not tasks.corrupt
    assert world.path("0_1").is_dir()


@pytest.mark.parametrize("seen", [True, False])
def test_at_least_once_refuses_a_corrupt_task_and_moves_nothing(world: World, seen: bool) -> None:
    world.put_task("0_0", 4)
    world.put_task("0_1", 9)
    if seen:
        break_it(world, "0_1")
    tasks = StartupTasks(world.directory, spec_of(ALOS), opener(world, [], corrupt="0_1"))
    assert set(tasks.start()) == {"0_0"}
    assert isinstance(tasks.refused["0_1"], Corrupted)
    assert not tasks.corrupt
    assert world.path("0_1").is_dir()
    with pytest.raises(Corrupted):
        tasks.take("0_1")
    assert world.path("0_1").is_dir()
    tasks.close_rest()


def test_a_task_that_cannot_be_opened_is_refused_and_the_others_go_on(world: World) -> None:
    world.put_task("0_0", 4)
    world.put_task("0_1", 9)

    def open_task(task: str) -> Task:
        if task == "0_0":
            raise Retryable("No memory.", code="test-error", action="Later.")
        return OpenStores(world, task, [])

    tasks = StartupTasks(world.directory, spec_of(), open_task)
    assert set(tasks.start()) == {"0_1"}
    assert isinstance(tasks.refused["0_0"], Retryable)
    tasks.close_rest()


def test_where_descriptors_run_out_the_copies_count_all_the_same_and_no_more_are_opened(world: World) -> None:
    for partition in range(3):
        world.put_task(f"0_{partition}", 4)
    tried: list[str] = []

    def open_task(task: str) -> Task:
        tried.append(task)
        if len(tried) == 2:
            raise Capacity("Too many open files.", code="test-error", action="Raise the limit.")
        return OpenStores(world, task, [])

    tasks = StartupTasks(world.directory, spec_of(), open_task)
    assert {task: one.sum for task, one in tasks.start().items()} == dict.fromkeys(("0_0", "0_1", "0_2"), 10)
    assert (tried, tasks.refused, list(tasks.open_tasks)) == (["0_0", "0_1"], {}, ["0_0"])
    tasks.take("0_1").close()
    tasks.close_rest()


def test_a_repository_that_does_not_answer_leaves_unknown_whether_there_is_a_copy(world: World) -> None:
    world.put_task("0_0", 4)

    def find_copy(task: str) -> str:
        raise Retryable("No answer.", code="broker-unreachable", action="Later.")

    tasks = StartupTasks(world.directory, spec_of(), opener(world, [], "0_0"), find_snapshot=find_copy)
    tasks.start()
    (found,) = tasks.corrupt.values()
    assert (found.snapshot, found.why_snapshot_unknown) == (None, "No answer.")


def test_the_next_start_reports_quarantined_tasks_and_deletes_expired_ones(world: World) -> None:
    now = [1000.0]

    def start() -> StartupTasks:
        tasks = StartupTasks(
            world.directory,
            spec_of(),
            opener(world, []),
            find_snapshot=lambda task: f"copy of {task}",
            clock=lambda: now[0],
        )
        tasks.start()
        tasks.close_rest()
        return tasks

    world.put_task("0_0", 4)
    break_it(world, "0_0")
    assert start().corrupt["0_0"].reason
    now[0] += KEPT_MS / 1000
    assert (start().corrupt["0_0"].snapshot, start().corrupt["0_0"].reason) == ("copy of 0_0", "")
    world.put_task("0_0", 1)
    assert not start().corrupt, "there is another one in its place"
    assert quarantined(world.directory, "corrupt")
    now[0] += 1
    start()
    assert not quarantined(world.directory, "corrupt")


def test_a_start_recovers_unless_its_process_has_done_so(world: World) -> None:
    def put_expired() -> None:
        world.put_task("0_0", 4)
        quarantine_task(world.directory, "0_0", "corrupt", 1)

    tasks = StartupTasks(world.directory, spec_of(), opener(world, []), clock=lambda: KEPT_MS / 1000 + 1)
    put_expired()
    tasks.recover()
    assert not quarantined(world.directory, "corrupt")
    put_expired()
    tasks.start()
    assert quarantined(world.directory, "corrupt")
    tasks.start()
    assert not quarantined(world.directory, "corrupt")


def test_nothing_is_opened_without_the_lock(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.put_task("0_0", 4)
    with pytest.raises(Fenced):
        StartupTasks(world.directory, spec_of(), opener(world, [])).start()


def test_one_that_cannot_be_closed_does_not_keep_the_others_open(world: World) -> None:
    world.put_task("0_0", 4)
    world.put_task("0_1", 4)
    log: list[str] = []

    class Stuck(OpenStores):
        def close(self) -> None:
            super().close()
            if self.name == "0_1":
                raise Retryable("Stuck.", code="test-error", action="Again.")

    tasks = StartupTasks(world.directory, spec_of(), lambda task: Stuck(world, task, log))
    tasks.start()
    with pytest.raises(Retryable):
        tasks.close_rest()
    assert {"close 0_0", "close 0_1"} <= set(log)
    assert not tasks.open_tasks


def test_the_limit_of_open_databases_is_no_negative_number() -> None:
    with pytest.raises(Invalid, match="max_open_databases"):
        StartupSettings(-1)


@pytest.mark.parametrize("point", three_of(STARTUP_POINTS))
def test_killed_at_any_point_the_next_start_finds_the_same(forks: Forks, tmp_path: Path, point: str) -> None:
    world = World(tmp_path / "state")
    for partition in range(3):
        world.put_task(f"0_{partition}", 4)
    killed = forks.run("tests.unit.tasks.startup_tasks_world", "start", str(tmp_path / "state"), point, "1")
    assert killed.returncode == -signal.SIGKILL, killed.errors
    with world.directory.lock():
        tasks = StartupTasks(
            world.directory, spec_of(), opener(world, [], "0_1"), find_snapshot=lambda task: f"copy of {task}"
        )
        assert {task: one.sum for task, one in tasks.start().items()} == {"0_0": 10, "0_2": 10}
        assert tasks.corrupt["0_1"].snapshot == "copy of 0_1"
        assert not world.path("0_1").exists()
        tasks.close_rest()
    assert len(quarantined(world.directory, "corrupt")) == 1


def test_unreadable_unlogged_rows_keep_a_corrupt_task_in_place(world: World) -> None:
    """A copy or a deletion ended in the middle; a person may have the rest of it."""
    world.put_task("0_1", 9)
    break_it(world, "0_1")
    rows = world.path("0_1") / "rocksdb" / "scratch" / "000007.sst"
    rows.parent.mkdir()
    rows.write_bytes(b"rows")
    tasks = StartupTasks(world.directory, spec_of(), opener(world, []))
    tasks.start()
    assert isinstance(tasks.refused["0_1"], Corrupted)
    assert rows.exists()


@pytest.mark.parametrize("logged", [False, True])
@pytest.mark.parametrize("name", ["index/segments_1", "rocksdb/index/segments_1", "index.db"])
def test_files_of_a_store_that_is_no_database_keep_a_corrupt_task_in_place(
    world: World, name: str, logged: bool
) -> None:
    world.put_task("0_1", 9)
    break_it(world, "0_1")
    rows = world.path("0_1") / name
    rows.parent.mkdir(exist_ok=True)
    rows.write_bytes(b"rows")
    custom = StoreSpec("index", StoreKind.CUSTOM, 0, changelog("index").topic if logged else "none")
    spec = replace(spec_of(), stores=(*spec_of().stores, custom))
    tasks = StartupTasks(world.directory, spec, opener(world, []))
    tasks.start()
    assert (list(tasks.refused), list(tasks.corrupt)) == (([], ["0_1"]) if logged else (["0_1"], []))
    assert rows.exists() is not logged


def test_a_lock_that_is_lost_while_a_task_is_moved_aside_ends_the_start(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.put_task("0_1", 9)
    break_it(world, "0_1")
    lock_lost(world, monkeypatch, "rename")
    with raises(Fenced, "lock-lost"):
        StartupTasks(world.directory, spec_of(), opener(world, [])).start()
