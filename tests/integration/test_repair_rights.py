"""Files that an application with a user of its own cannot use: it does not start, and after a repair it is right."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from statecore.jobs.engine.in_process import InProcessEngine
from statecore.jobs.repair.report import RepairOutcome
from statecore.jobs.repair.request import RepairRequest
from statecore.jobs.repair.run import run_repair
from tests.harness import damage_functions, jars
from tests.harness.another_user import AnotherUser, another_user
from tests.harness.broker import Broker
from tests.harness.case_selection import one_of
from tests.harness.streams import StreamsFailed, StreamsJvm
from tests.harness.tables import Answers, World

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
TASK = "0_1"


@pytest.fixture(scope="module")
def closed(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[AnotherUser, World, Answers]]:
    """An application of a user other than root that was closed, and what it answered."""
    with another_user("022") as user:
        java = user.home / "java"
        java.write_text(f'#!/bin/sh\nexec {shlex.join(user.command(jars.java()))} "$@"\n')
        java.chmod(0o755)
        with StreamsJvm(tmp_path_factory.mktemp("streams") / "streams.log", java=str(java)) as jvm:
            world = World(broker, jvm, f"rights-{os.getpid()}", user.home / "state", "exactly_once_v2")
            world.feed(keys=20)
            yield user, world, world.live()


def _of_root(task: Path) -> None:
    """A copy of another owner."""
    for path in (task, *task.rglob("*")):
        os.chown(path, 0, 0)


def _of_root_alone(task: Path) -> None:
    """The same with another umask."""
    _of_root(task)
    for path in (task, *task.rglob("*")):
        path.chmod(0o700 if path.is_dir() else 0o600)


def _one_table(task: Path) -> None:
    """An unreadable file with rows."""
    damage_functions.tables_of(task / "rocksdb" / "plain")[-1].chmod(0)


def _one_lock(task: Path) -> None:
    """RocksDB's LOCK, which every open writes."""
    os.chown(task / "rocksdb" / "stamped" / "LOCK", 0, 0)


def _closed_directory(task: Path) -> None:
    (task / "rocksdb" / "plain").chmod(0o500)


HARMS = [_of_root, _one_table, _one_lock, _closed_directory]


@contextmanager
def copy_of(user: AnotherUser, world: World, name: str) -> Iterator[World]:
    """The application upon a copy of its directory, which belongs to the same user."""
    state_dir = user.home / name
    subprocess.run(["cp", "-a", world.state_dir, state_dir], check=True)
    try:
        yield world.at(state_dir)
    finally:
        shutil.rmtree(state_dir)


def state_of(application: Path) -> dict[str, tuple[int, int, int, int]]:
    """Every file with its owner, its mode and its time."""
    return {
        str(path.relative_to(application)): (seen.st_uid, seen.st_gid, seen.st_mode, seen.st_mtime_ns)
        for path in application.glob("0_*/**/*")
        for seen in (path.lstat(),)
    }


@pytest.mark.parametrize("harm", one_of([*HARMS]))
def test_files_that_the_application_may_not_use_end_its_start_until_they_are_given_to_it(
    closed: tuple[AnotherUser, World, Answers], harm: Callable[[Path], None]
) -> None:
    user, world, right = closed
    with copy_of(user, world, f"opened-{harm.__name__}") as opened:
        harm(opened.state_dir / world.application_id / TASK)
        with pytest.raises(StreamsFailed):
            opened.reopen()
    with copy_of(user, world, f"repaired-{harm.__name__}") as harmed:
        application = harmed.state_dir / world.application_id
        harm(application / TASK)
        kept = state_of(application)
        report = run_repair(_request(harmed), InProcessEngine())
        assert (report.outcome, [(one.task, one.codes) for one in report.repaired], report.remaining) == (
            RepairOutcome.REPAIRED,
            [(TASK, ("rights",))],
            (),
        )
        was = Path(report.kept) / TASK
        old = {name: seen for name, seen in kept.items() if name.startswith(f"{TASK}/")}
        assert {name: seen[:3] for name, seen in state_of(was.parent).items()} == {n: s[:3] for n, s in old.items()}
        assert {seen[0] for seen in state_of(application).values()} == {user.uid}
        assert harmed.reopen() == (right, 0)
        if harm is _of_root:  # a week later the application's user may not delete what was root's
            then = time.time() - 8 * 86_400
            for path in (was.parent, *was.rglob("*")):
                os.utime(path, (then, then))
            done = _as_user(user, harmed, "--apply")
            assert (done.returncode, was.is_dir()) == (0, True), done.stderr
            run_repair(_request(harmed), InProcessEngine())
            assert not was.exists()


@pytest.mark.parametrize(("harm", "of_plan"), one_of([(_of_root_alone, 13), (_of_root, 0)]))
def test_missing_permission_to_change_owners_is_refused_before_any_change(
    closed: tuple[AnotherUser, World, Answers], harm: Callable[[Path], None], of_plan: int
) -> None:
    user, world, _ = closed
    why = f"{TASK} cannot be repaired, because this user (uid {user.uid}) may not change"
    with copy_of(user, world, "harmed") as harmed:
        application = harmed.state_dir / world.application_id
        harm(application / TASK)
        before = state_of(application)
        planned, applied = (_as_user(user, harmed, *words) for words in ((), ("--apply",)))
        assert (planned.returncode, applied.returncode) == (of_plan, 13)
        assert why in planned.stdout + planned.stderr
        assert why in applied.stderr
        assert "Run this as root" in applied.stderr
        assert state_of(application) == before
        assert not (application / ".statecore" / "journal.json").exists()


def test_a_member_of_the_group_can_change_groups_without_being_root(closed: tuple[AnotherUser, World, Answers]) -> None:
    user, world, right = closed
    with copy_of(user, world, "harmed") as harmed:
        _one_lock(harmed.state_dir / world.application_id / TASK)
        done = _as_user(user, harmed, "--apply")
        assert done.returncode == 0, done.stderr
        assert harmed.reopen() == (right, 0)


def _request(world: World) -> RepairRequest:
    spec = world.state_dir.parent / "stores.yaml"
    spec.write_text(json.dumps(world.request().spec))
    return RepairRequest(
        application_id=world.application_id, state_dir=str(world.state_dir), spec_path=str(spec), apply=True
    )


def _as_user(user: AnotherUser, world: World, *words: str) -> subprocess.CompletedProcess[str]:
    """``statecore repair`` as the application's user."""
    request = _request(world)
    command = [sys.executable, "-m", "statecore.cli.main", "repair", *words]
    command += ["--state-dir", request.state_dir, "--spec", str(request.spec_path)]
    environment = {**user.environment, "PYTHONPATH": str(ROOT), "COLUMNS": "500"}
    return subprocess.run(
        user.command(*command),
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        cwd=user.home,
        timeout=1200,
    )
