"""Migrations and repairs that were killed leave word of the command that goes on with them, and others a report."""

from __future__ import annotations

import errno
import json
import os
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from statecore.cli.main import main
from statecore.errors import StatecoreError
from statecore.faults import NO_FAULTS, FaultInjected, FaultPoints, InjectedFault
from statecore.jobs.history.restores import Restores, read_history
from statecore.jobs.in_process_engine import InProcessEngine
from statecore.jobs.migrate.report import Outcome
from statecore.jobs.repair.request import RepairRequest
from statecore.jobs.repair.run import run_repair
from statecore.jobs.request_fields import TargetRelease
from statecore.statedir.state_directory import StateDirectory
from tests.unit.jobs.migrate.test_run_obstacles import OLD, few, migrated, seen

Info = Callable[[], str]


def known(application: Path) -> Restores:
    found = read_history(StateDirectory(application.parent, application.name))
    json.dumps(found.to_json())
    return found


def plans(application: Path) -> list[str]:
    """The kinds of files of requests that there are."""
    return sorted(file.suffix for file in (application / ".statecore").glob("plans/*"))


@pytest.fixture
def application(tmp_path: Path) -> Path:
    return few(OLD, tmp_path / "state")


@pytest.fixture
def info(application: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Info:
    """What ``statecore info`` says."""
    monkeypatch.setenv("STATECORE_REPORTS", str(tmp_path / "reports"))
    monkeypatch.setenv("COLUMNS", "400")

    def said() -> str:
        assert main(["info", "--state-dir", str(application.parent)]) == 0
        return capfd.readouterr().out

    return said


def line_after(text: str, start: str) -> str:
    """The rest of the one line that begins so."""
    (found,) = [line.strip() for line in text.splitlines() if line.strip().startswith(start)]
    return found.removeprefix(start)


@pytest.mark.parametrize(
    "point", ["migrate.after-copy", "migrate.after-convert", "placement.after-swap", "migrate.after-placement"]
)
def test_a_migration_that_is_killed_is_gone_on_with_by_the_command_that_info_says(
    application: Path, info: Info, point: str
) -> None:
    with pytest.raises(FaultInjected):
        migrated(application, TargetRelease.V4_3, faults=InjectedFault(point), request_id="first")
    found = known(application)
    assert found.unfinished == ()
    (killed,) = found.changes.unfinished
    assert (killed.job, killed.attempt.request_id, killed.running) == ("migration", "first", False)
    said = info()
    assert "unfinished migration since " in said
    assert "restore --spec" not in said
    words = shlex.split(line_after(said, "resume it with: statecore "))
    assert words == [
        "migrate",
        "--application-id",
        OLD,
        "--state-dir",
        str(application.parent),
        "--to",
        "4.3",
        "--apply",
    ]
    assert main(words) == 0
    assert not known(application).changes.unfinished
    assert plans(application) == [".migration"]
    assert migrated(application, TargetRelease.V4_3).outcome is Outcome.UNCHANGED


def test_a_migration_at_work_is_known_by_its_process(application: Path) -> None:
    class Looking(FaultPoints):
        found: Restores | None = None

        def reach(self, point: str) -> None:
            if point == "migrate.after-copy":
                self.found = known(application)

    faults = Looking()
    migrated(application, TargetRelease.V4_3, faults=faults)
    assert faults.found is not None
    assert [one.running for one in faults.found.changes.unfinished] == [True]
    assert plans(application) == [".migration"]


def test_a_migration_that_fails_leaves_nothing_to_go_on_with(
    application: Path,
) -> None:
    class Failing(FaultPoints):
        def reach(self, point: str) -> None:
            if point == "migrate.after-copy":
                raise OSError(errno.EIO, os.strerror(errno.EIO))

    before = seen(application)
    with pytest.raises(StatecoreError) as caught:
        migrated(application, TargetRelease.V4_3, faults=Failing())
    assert isinstance(caught.value.__cause__, OSError)
    assert seen(application) == before
    assert plans(application) == []


def test_the_last_migration_is_listed_with_its_replaced_files(application: Path, info: Info) -> None:
    assert known(application).changes.migration is None
    report = migrated(application, TargetRelease.V4_3)
    assert known(application).changes.migration == report
    said = info()
    assert "last migration " in said
    assert "to 4.3: migrated, 2 of 2 tasks" in said
    assert report.kept in said


def repaired(application: Path, faults: FaultPoints = NO_FAULTS) -> None:
    request = RepairRequest(
        application_id=application.name, state_dir=str(application.parent), apply=True, cleanup_max_age_ms=86_400_000
    )
    run_repair(request, InProcessEngine(), faults=faults)


@pytest.mark.parametrize("point", ["placement.after-swap", "repair.after-repair"])
def test_a_repair_that_is_killed_is_gone_on_with_by_the_command_that_info_says(
    info: Info, application: Path, point: str
) -> None:
    migrated(application, TargetRelease.V4_3)
    os.utime(application / "1_1", (0, 0))
    with pytest.raises(FaultInjected):
        repaired(application, InjectedFault(point))
    (killed,) = known(application).changes.unfinished
    assert killed.job == "repair"
    said = info()
    assert "unfinished repair since " in said
    words = shlex.split(line_after(said, "resume it with: statecore "))
    assert words[0] == "repair"
    assert words[-2:] == ["--cleanup-max-age", "86400000ms"]
    assert "--apply" in words
    assert main(words) in (0, 20)
    assert known(application).changes.unfinished == ()
    assert known(application).changes.repair is not None
    assert "last repair " in info()


def test_another_job_of_the_same_kind_ends_what_was_killed_and_one_of_another_kind_does_not(application: Path) -> None:
    with pytest.raises(FaultInjected):
        migrated(application, TargetRelease.V4_3, faults=InjectedFault("migrate.after-convert"), request_id="first")
    repaired(application)
    assert [one.job for one in known(application).changes.unfinished] == ["migration"]
    migrated(application, TargetRelease.V4_2, request_id="second")
    assert known(application).changes.unfinished == ()


def test_what_an_older_release_left_of_a_placement_is_not_called_a_restore(application: Path, info: Info) -> None:
    with pytest.raises(FaultInjected):
        migrated(application, TargetRelease.V4_3, faults=InjectedFault("placement.after-swap"))
    for file in (application / ".statecore" / "plans").glob("*.attempt"):
        file.unlink()
    said = info()
    assert "unfinished placement" in said
    assert "resume it with" not in said
