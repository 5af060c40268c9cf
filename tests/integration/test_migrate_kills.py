"""The command dies by SIGKILL at any of its points, runs again, and real Kafka Streams 4.4.0 restores nothing."""

from __future__ import annotations

import shutil
import signal
from dataclasses import dataclass
from pathlib import Path

import pytest

from statecore.faults import CHANGE_POINTS, CONVERSION_POINTS, MIGRATE_POINTS, PLACEMENT_POINTS, VARIABLE
from statecore.formats.checkpoint import decode_checkpoint
from statecore.formats.topic_partition import TopicPartition
from statecore.jobs.engine.in_process import InProcessEngine
from statecore.jobs.fields.catalog import TargetRelease
from statecore.jobs.migrate.request import MigrateRequest
from statecore.jobs.migrate.run import run_migrate
from statecore.spec.model import ProcessingGuarantee
from tests.golden.directories import unpacked
from tests.harness.case_selection import one_of, three_of
from tests.harness.command import statecore
from tests.harness.directory import Families, read_application
from tests.harness.fleet import NEWEST, Fleet
from tests.harness.fleet_kinds import SMALL

pytestmark = [pytest.mark.integration]

NEVER_REACHED = {"placement.after-siblings", "placement.between-renames", "placement.done"}
"""Points of placements that bring stores, and of file systems that cannot exchange directories."""

POINTS = [
    point
    for point in (*CHANGE_POINTS, *MIGRATE_POINTS, *CONVERSION_POINTS, *PLACEMENT_POINTS)
    if point not in NEVER_REACHED
] + [
    "conversion.after-database:kill:4",
    "placement.before-swap:kill:3",
    "placement.after-swap:kill:2",
]
OLD = "4.2.0-exactly-once-clean"
DOWN = ("placement.after-swap", "conversion.before-database", "conversion.after-files", "migrate.after-placement")

Stored = dict[tuple[str, str], Families]


def killed(monkeypatch: pytest.MonkeyPatch, fault: str, state_dir: Path, application_id: str, to: str) -> None:
    """The command, which dies."""
    where = ("--application-id", application_id, "--state-dir", state_dir, "--to", to)
    with monkeypatch.context() as patched:
        patched.setenv(VARIABLE, fault)
        done = statecore("migrate", *where, "--apply", "--processing-guarantee", "exactly_once_v2")
    assert done.returncode == -signal.SIGKILL, done.stderr


def migrated(state_dir: Path, application_id: str, to: str) -> Path:
    """Run again, to the end."""
    request = MigrateRequest(
        application_id=application_id,
        state_dir=str(state_dir),
        to=TargetRelease(to),
        apply=True,
        processing_guarantee=ProcessingGuarantee.EXACTLY_ONCE_V2,
    )
    run_migrate(request, InProcessEngine())
    return state_dir / application_id


def stored(application: Path) -> tuple[Stored, dict[str, dict[TopicPartition, int]]]:
    """Every row of every database, and every file with offsets beside them."""
    beside = {
        str(file.relative_to(application)): decode_checkpoint(file.read_bytes(), str(file))
        for pattern in ("*/.checkpoint*", "*/*.position")
        for file in application.glob(pattern)
    }
    return read_application(application), beside


@dataclass(frozen=True)
class Reference:
    """A directory that was made without an interruption, and what it holds."""

    application: Path
    stored: tuple[Stored, dict[str, dict[TopicPartition, int]]]


@pytest.fixture(scope="module")
def references(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Reference]:
    """The golden directory as it is, and converted, by release."""
    made = {}
    for release in ("4.2", NEWEST, "3.9"):
        state_dir = tmp_path_factory.mktemp(release)
        made[release] = application = unpacked(OLD, state_dir)
        for task in ("0_1", "1_0", "2_0"):
            shutil.rmtree(application / task)
    migrated(made[NEWEST].parent, OLD, NEWEST)
    shutil.copytree(made[NEWEST], made["3.9"], dirs_exist_ok=True)
    migrated(made["3.9"].parent, OLD, "3.9")
    return {release: Reference(application, stored(application)) for release, application in made.items()}


@pytest.mark.parametrize(
    ("fault", "to"),
    [*three_of((fault, NEWEST) for fault in POINTS), *one_of([*((fault, "3.9") for fault in DOWN)])],
)
def test_killed_at_any_point_and_run_again_it_is_as_if_nothing_had_happened(
    references: dict[str, Reference], fault: str, to: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, after = (references["4.2"], references[NEWEST]) if to == NEWEST else (references[NEWEST], references["3.9"])
    application = shutil.copytree(before.application, tmp_path / OLD)
    killed(monkeypatch, fault, tmp_path, OLD, to)
    found = read_application(application)
    for task in ("0_0", "1_1", "2_1", "global"):  # each is old or new
        assert of_task(task, found) in [of_task(task, one.stored[0]) for one in (before, after)], task
    migrated(tmp_path, OLD, to)
    assert stored(application) == after.stored
    assert not list((application / ".statecore").glob("placement-*"))


def of_task(task: str, rows: Stored) -> Stored:
    return {name: families for name, families in rows.items() if name[0] == task}


@pytest.mark.parametrize(
    "faults",
    one_of(
        [
            {"placement.after-swap:kill:3": True},
            {"conversion.after-database:kill:7": True, "placement.before-swap:kill:5": False},
        ],
    ),
    ids=["again", "too-late"],
)
def test_after_a_kill_and_another_run_the_application_restores_nothing(
    fleet: Fleet,
    application_id: str,
    state_dir: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    faults: dict[str, bool],
) -> None:
    """Whether the command runs again before the application starts: by fault."""
    world = fleet.application(application_id, state_dir, "exactly_once_v2", SMALL)
    with world.on("4.2") as running:
        world.feed_all()
        before = world.answers(running)
    again = True
    for fault, again in faults.items():
        copy = shutil.copytree(state_dir, tmp_path / fault.replace(":", "-"))
        killed(monkeypatch, fault, copy, application_id, NEWEST)
        if again:
            migrated(copy, application_id, NEWEST)
        world.state_dir = copy
        with world.on(NEWEST) as running:
            assert world.restored(running) == {}, fault
            assert world.answers(running) == before, fault
    if again:
        return
    migrated(copy, application_id, NEWEST)  # behind an application that did not wait for it
    with world.on(NEWEST) as running:
        assert world.restored(running) == {}
        assert world.answers(running) == before
