"""A state directory is migrated as a whole or not at all, and whoever stops in the middle may run it again."""

from __future__ import annotations

import shutil
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from statecore.errors import Fenced, Invalid, NotFound, StatecoreError
from statecore.faults import (
    CHANGE_POINTS,
    CONVERSION_POINTS,
    MIGRATE_POINTS,
    PLACEMENT_POINTS,
    FaultInjected,
    InjectedFault,
)
from statecore.formats.checkpoint import decode_checkpoint
from statecore.formats.topic_partition import TopicPartition
from statecore.jobs.engine.in_process import InProcessEngine
from statecore.jobs.engine.protocol import RanOn, WorkerRequirements
from statecore.jobs.fields.catalog import TargetRelease
from statecore.jobs.migrate.report import MIGRATE_REPORT, MigrateReport, MigrationOutcome
from statecore.jobs.migrate.request import MigrateRequest
from statecore.jobs.migrate.run import run_migrate
from statecore.statedir.database_state import read_database_state
from statecore.statedir.file_trees import fingerprint
from statecore.statedir.state_directory import StateDirectory
from tests.golden.make import HERE
from tests.harness.case_selection import three_of
from tests.harness.raising import raises

APPLICATION = {"3.9.1": "old391", "4.2.0": "old420"}
LAST = 20
"""The last applied offset of both stores."""

StateDir = Callable[..., Path]


@pytest.fixture
def state_dir(tmp_path: Path) -> StateDir:
    """A ``state.dir`` with one application, whose tasks are copies of what a release left."""

    def made(version: str = "4.2.0", *tasks: str, under: str = "state") -> Path:
        application = tmp_path / under / APPLICATION[version]
        with tarfile.open(HERE / f"kafka-streams-{version}-task.tar.gz") as archive:
            archive.extractall(application, filter="data")
        for task in tasks:
            if task != "0_1":
                shutil.copytree(application / "0_1", application / task)
                file = application / task / ".checkpoint"
                file.write_text(file.read_text().replace(" 1 ", f" {task[-1]} "))
        return tmp_path / under

    return made


def migrated(state: Path, version: str = "4.2.0", **asked: Any) -> MigrateReport:
    request = MigrateRequest(
        **{
            "application_id": APPLICATION[version],
            "state_dir": str(state),
            "to": TargetRelease.V4_3,
            "apply": True,
            **asked,
        }
    )
    return run_migrate(request, InProcessEngine())


def offsets(task: Path) -> set[int]:
    said = [read_database_state(path) for path in (task / "rocksdb").iterdir()]
    return {offset for state in said for offset in state.offsets.values()}


@pytest.mark.parametrize("version", list(APPLICATION))
def test_offsets_move_into_the_stores_and_back(state_dir: StateDir, version: str) -> None:
    state = state_dir(version)
    task = state / APPLICATION[version] / "0_1"
    before = decode_checkpoint((task / ".checkpoint").read_bytes(), "")
    report = migrated(state, version)
    assert (report.outcome, report.release) != (MigrationOutcome.PLANNED, "")
    assert offsets(task) == {LAST}
    assert not list(task.glob(".checkpoint*")) + list(task.glob("*.position"))
    kept = Path(report.kept) / "0_1"
    assert decode_checkpoint((kept / ".checkpoint").read_bytes(), "") == before
    assert migrated(state, version).outcome is MigrationOutcome.UNCHANGED
    back = migrated(state, version, to=TargetRelease.V3_9)
    assert back.outcome is MigrationOutcome.MIGRATED
    assert decode_checkpoint((task / ".checkpoint").read_bytes(), "") == before
    assert offsets(task) == set()
    assert {path.name for path in (state / APPLICATION[version]).iterdir()} == {"0_1", ".statecore", ".lock"}


def test_a_plan_changes_nothing_and_says_what_would_be_done(state_dir: StateDir) -> None:
    state = state_dir()
    before = fingerprint(state)
    plan = migrated(state, apply=False)
    assert fingerprint(state) == before
    assert plan.outcome is MigrationOutcome.PLANNED
    (task,) = plan.tasks
    assert task.is_changed
    assert {store.store for store in task.stores} == {"plain", "stamped"}
    assert all(store.steps and set(store.offsets.values()) == {LAST} for store in task.stores)
    assert MIGRATE_REPORT.decode(MIGRATE_REPORT.encode(plan)) == plan
    assert migrated(state, apply=False).plan_id == plan.plan_id


def test_undecided_kinds_are_reported_once(state_dir: StateDir, tmp_path: Path) -> None:
    spec = tmp_path / "stores.yaml"
    spec.write_text(
        "application_id: old420\nbootstrap_servers: nowhere:1\nprocessing_guarantee: at_least_once\n"
        "subtopologies: {0: {stores: {plain: {kind: '?'}, stamped: {kind: timestamped-key-value}}}}\n"
    )
    report = migrated(state_dir("4.2.0", "0_0", "0_1"), spec_path=str(spec), apply=False)
    (note,) = report.notes
    assert note.startswith(f"{spec} ")
    assert " 1 store undecided (?): plain." in note
    assert report.outcome is MigrationOutcome.PLANNED


def test_only_the_plan_that_was_approved_is_applied(state_dir: StateDir) -> None:
    state = state_dir()
    plan_id = migrated(state, apply=False).plan_id
    file = state / "old420" / "0_1" / ".checkpoint"
    said = file.read_bytes()
    file.write_bytes(said.replace(b" 20", b" 19"))
    before = fingerprint(state / "old420" / "0_1")
    with raises(Invalid, "plan-changed"):
        migrated(state, approved=plan_id)
    assert fingerprint(state / "old420" / "0_1") == before
    assert migrated(state, approved=migrated(state, apply=False).plan_id).outcome is MigrationOutcome.MIGRATED
    assert migrated(state, approved=plan_id).outcome is MigrationOutcome.UNCHANGED  # a retry of what was approved


def test_nothing_is_migrated_where_one_task_is_refused(state_dir: StateDir) -> None:
    state = state_dir("4.2.0", "0_0")
    (state / "old420" / "0_0" / ".checkpoint").write_bytes(b"0\nx\n")
    before = {task: fingerprint(state / "old420" / task) for task in ("0_0", "0_1")}
    with raises(Invalid, "migration-refused") as caught:
        migrated(state)
    problems = caught.value.context["problems"]
    assert [(one["code"], one["task"], one["store"]) for one in problems] == [("checkpoint-file-damaged", "0_0", "")]
    plan = migrated(state, apply=False)
    assert [one for task in plan.tasks for one in task.problems] == problems
    assert MIGRATE_REPORT.decode(MIGRATE_REPORT.encode(plan)) == plan
    assert plan.outcome is MigrationOutcome.REFUSED
    assert [why.partition(":")[0] for why in plan.refused] == ["0_0"]
    assert {task: fingerprint(state / "old420" / task) for task in ("0_0", "0_1")} == before
    assert migrated(state, tasks=("0_1",)).outcome is MigrationOutcome.MIGRATED


def test_a_refused_store_is_named_with_its_code(state_dir: StateDir) -> None:
    state = state_dir("4.2.0", "0_0")
    (state / "old420" / "0_0" / "rocksdb" / "plain" / "CURRENT").unlink()
    with raises(Invalid, "migration-refused") as caught:
        migrated(state)
    (problem,) = caught.value.context["problems"]
    assert (problem["code"], problem["task"], problem["store"]) == ("store-incomplete", "0_0", "plain")


def test_a_report_of_an_older_release_is_read(state_dir: StateDir) -> None:
    state = state_dir()
    (state / "old420" / "0_1" / ".checkpoint").write_bytes(b"0\nx\n")
    document = migrated(state, apply=False).to_json()
    for task in document["tasks"]:
        del task["problems"]
    report = MIGRATE_REPORT.from_json(document)
    assert [(len(task.refused), task.problems) for task in report.tasks] == [(1, ())]


def test_what_is_not_there_is_named(state_dir: StateDir) -> None:
    state = state_dir()
    with pytest.raises(NotFound, match="no application orders"):
        migrated(state, application_id="orders")
    with pytest.raises(NotFound, match=r"no task 0_7; it has: 0_1"):
        migrated(state, tasks=("0_7",))


@pytest.mark.parametrize("apply", [True, False])
@pytest.mark.parametrize("there", ["nowhere", "nothing", "another", "no task"])
def test_a_first_start_has_nothing_to_migrate_if_allowed(
    tmp_path: Path, state_dir: StateDir, there: str, apply: bool
) -> None:
    state = tmp_path / "volume" / "state"
    if there == "nothing":
        state.mkdir(parents=True)
    elif there == "another":
        state = state_dir("4.2.0", under="volume/state")
    elif there == "no task":
        (state / "orders").mkdir(parents=True)
    before = fingerprint(tmp_path)
    with pytest.raises(NotFound):
        migrated(state, application_id="orders", apply=apply)
    report = migrated(state, application_id="orders", apply=apply, if_there=True)
    assert (report.outcome, report.tasks, report.application_id) == (MigrationOutcome.UNCHANGED, (), "orders")
    assert there == "no task" or fingerprint(tmp_path) == before
    with pytest.raises(NotFound, match="no task 0_7"):  # where there is state, a wrong name is a wrong name
        migrated(state_dir(), tasks=("0_7",), if_there=True)


def test_a_directory_in_use_is_left_alone(state_dir: StateDir) -> None:
    state = state_dir()
    with StateDirectory(state, "old420").lock():
        for apply in (True, False):
            with raises(Fenced, "state-directory-in-use"):
                migrated(state, apply=apply)


class Elsewhere:
    """An engine of another machine, whose workers answer what they are asked with an error, or with where they run."""

    options = ()

    def __init__(self, error: Invalid | None = None) -> None:
        self.error = error
        self.asked: list[WorkerRequirements] = []

    def expected(self, _: Any) -> int:
        return 2

    @contextmanager
    def start(self, *_: Any) -> Iterator[Any]:
        yield self

    def check(self, required: WorkerRequirements) -> RanOn:
        self.asked.append(required)
        if self.error:
            raise self.error
        return RanOn("spark://m:7077", 2, ("a", "b"))

    def run(self, work: Any, batches: Any, _: str) -> Any:
        return [answer for batch in batches for answer in work(batch)]


def test_workers_must_see_the_directory_and_are_named(state_dir: StateDir) -> None:
    state, said = state_dir(), list[str]()
    workers: Any = Elsewhere()
    request = MigrateRequest(application_id="old420", state_dir=str(state), to=TargetRelease.V4_3, apply=True)
    report = run_migrate(request, workers, say=said.append)
    assert workers.asked == [WorkerRequirements(state / "old420" / ".statecore", (), ())]
    (line,) = said
    assert "spark://m:7077 with 2 executors on a, b" in line
    assert (report.outcome, report.ran_on.hosts) == (MigrationOutcome.MIGRATED, ("a", "b"))


def test_nothing_is_done_where_a_worker_does_not_see_the_directory(state_dir: StateDir) -> None:
    state = state_dir()
    before = fingerprint(state / "old420" / "0_1")
    workers: Any = Elsewhere(Invalid("b does not see it.", code="test-error", action="Mount it."))
    request = MigrateRequest(application_id="old420", state_dir=str(state), to=TargetRelease.V4_3, apply=True)
    with pytest.raises(Invalid, match="does not see it"):
        run_migrate(request, workers)
    assert fingerprint(state / "old420" / "0_1") == before
    assert not list((state / "old420" / ".statecore").glob("placement-*"))


NEVER_REACHED = {"placement.after-siblings", "placement.between-renames", "placement.done"}
"""A copy has no siblings, and an exchange takes no renames."""
EVERY = [
    point
    for point in (*CHANGE_POINTS, *MIGRATE_POINTS, *CONVERSION_POINTS, *PLACEMENT_POINTS)
    if point not in NEVER_REACHED
]
OF_THE_SECOND_TASK = ("placement.after-image-move", "placement.before-swap", "placement.after-swap")


@pytest.mark.parametrize(
    ("point", "nth"), three_of([*((point, 1) for point in EVERY), *((point, 2) for point in OF_THE_SECOND_TASK)])
)
def test_a_job_stopped_at_any_point_is_completed_by_a_rerun(
    state_dir: StateDir, point: str, nth: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = state_dir("4.2.0", "0_0", "0_1")
    fault = InjectedFault(point, nth=nth)
    monkeypatch.setenv("STATECORE_FAULT", f"{point}:raise:{nth}")
    request = MigrateRequest(application_id="old420", state_dir=str(state), to=TargetRelease.V4_3, apply=True)
    # What stops a worker comes back as a defect of its own.
    with pytest.raises(StatecoreError if point in CONVERSION_POINTS else FaultInjected):
        run_migrate(request, InProcessEngine(), faults=fault)
    monkeypatch.delenv("STATECORE_FAULT")
    for task in ("0_0", "0_1"):  # each is old or new
        path = state / "old420" / task
        assert (path / ".checkpoint").exists() is (offsets(path) == set())
    report = run_migrate(request, InProcessEngine())
    assert report.outcome in (MigrationOutcome.MIGRATED, MigrationOutcome.UNCHANGED)
    for number, task in enumerate(("0_0", "0_1")):
        path = state / "old420" / task
        assert not (path / ".checkpoint").exists()
        said = read_database_state(path / "rocksdb" / "plain")
        assert said.offsets == {TopicPartition("old420-plain-changelog", number): LAST}
    assert not list((state / "old420" / ".statecore").glob("placement-*"))
