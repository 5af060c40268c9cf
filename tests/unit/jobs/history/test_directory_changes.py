"""Which fetches, migrations and repairs a directory has seen, and the command that resumes one that was killed."""

from __future__ import annotations

import errno
import json
import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from statecore.cli.main import main
from statecore.errors import StatecoreError
from statecore.faults import NO_FAULTS, FaultInjected, FaultPoints, InjectedFault
from statecore.jobs.engine.processes import ProcessEngine
from statecore.jobs.fetch.report import FETCH_SUFFIX
from statecore.jobs.fetch.run import run_fetch
from statecore.jobs.fields.catalog import TargetRelease
from statecore.jobs.history.instance_history import Restores, read_history
from statecore.jobs.migrate.report import MigrationOutcome
from statecore.jobs.repair.request import RepairRequest
from statecore.jobs.repair.run import run_repair
from statecore.statedir.state_directory import StateDirectory
from statecore.statedir.work_directory import JOURNAL
from tests.unit.jobs.fetch.fetching import fetch, request_for
from tests.unit.jobs.migrate.test_run_obstacles import OLD, few, migrated, seen
from tests.unit.jobs.published import Shop

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
    assert "unfinished migration, started " in said
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
    assert migrated(application, TargetRelease.V4_3).outcome is MigrationOutcome.UNCHANGED


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


def test_a_migration_that_fails_leaves_nothing_to_go_on_with(application: Path) -> None:
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
    run_repair(request, ProcessEngine(1), faults=faults)


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
    assert "unfinished repair, started " in said
    words = shlex.split(line_after(said, "resume it with: statecore "))
    assert words[0] == "repair"
    assert words[words.index("--cleanup-max-age") + 1] == "24h"
    assert words[-4:] == ["--engine", "processes", "--processes", "1"]
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


def killed(shop: Shop, state_dir: Path, point: str, request_id: str, **changes: Any) -> None:
    with pytest.raises(FaultInjected):
        run_fetch(request_for(shop, state_dir, request_id=request_id, **changes), faults=InjectedFault(point, "raise"))


def test_the_last_fetch_is_told_with_its_snapshot(shop: Shop, state_dir: Path) -> None:
    fetch(shop, state_dir, request_id="one", tasks=("0_0",))
    report = fetch(shop, state_dir, request_id="two")
    found = known(state_dir / "orders")
    assert found.fetches.last == report
    assert found.fetches.unfinished is None
    assert (found.last_restored, found.unfinished, found.problems) == (None, (), ())
    document = found.to_json()
    assert document["last_fetch"]["snapshot"] == report.snapshot
    assert document["unfinished_fetch"] is None


def test_a_fetch_that_was_killed_while_it_placed_is_no_restore(shop: Shop, state_dir: Path) -> None:
    fetch(shop, state_dir, request_id="before")
    killed(shop, state_dir, "placement.after-journal", "one", replace=True)
    assert (state_dir / "orders" / ".statecore" / JOURNAL).exists()
    found = known(state_dir / "orders")
    assert found.fetches.unfinished is not None
    assert found.fetches.unfinished.request_id == "one"
    assert found.unfinished == (), "its journal is its own"
    assert not fetch(shop, state_dir, request_id="one", replace=True).placed, "the journal has done that"
    found = known(state_dir / "orders")
    assert found.fetches.unfinished is None
    assert found.fetches.last is not None
    assert (found.fetches.last.request_id, len(found.fetches.last.stores)) == ("one", 5)


def test_a_fetch_that_was_killed_is_forgotten_once_a_later_one_has_come_to_its_end(shop: Shop, state_dir: Path) -> None:
    killed(shop, state_dir, "fetch.after-placement", "one")
    found = known(state_dir / "orders").fetches
    assert found.unfinished is not None
    assert found.last is None
    fetch(shop, state_dir, request_id="two", replace=True)
    found = known(state_dir / "orders").fetches
    assert found.unfinished is None
    assert found.last is not None
    assert found.last.request_id == "two"


def test_a_report_that_is_torn_is_trouble_and_hides_no_other(shop: Shop, state_dir: Path) -> None:
    fetch(shop, state_dir, request_id="one")
    torn = state_dir / "orders" / ".statecore" / "plans" / f"torn{FETCH_SUFFIX}"
    torn.write_text("{")
    found = known(state_dir / "orders")
    assert found.fetches.last is not None
    (trouble,) = found.problems
    assert str(torn) in trouble
