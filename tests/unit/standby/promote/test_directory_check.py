"""The two directories of a promotion are two, and which of them is the copy."""

from __future__ import annotations

from pathlib import Path

import pytest

from statecore.errors import Fenced, Invalid, NotFound, StatecoreError
from statecore.standby.promote.report import PromoteVerdict
from statecore.standby.promote.run import run_promote
from statecore.statedir.file_trees import fingerprint
from statecore.stores.rocksdb.store import RocksDBStore
from tests.harness.case_selection import one_of
from tests.harness.mounts import bound_at
from tests.harness.raising import raises
from tests.unit.standby.promote.promoting import KINDS, World, verdicts


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    for task in ("0_0", "0_1"):
        world.store(world.warm, "totals", 9, task=task)
    return world


def test_a_directory_is_not_promoted_into_itself_through_dots_or_links(world: World, tmp_path: Path) -> None:
    for state_dir in (world.warm.state_dir / ".." / "warm", tmp_path / "link"):
        if not state_dir.exists():
            state_dir.symlink_to(world.warm.state_dir)
        with raises(Invalid, "directories-identical"):
            world.promote(state_dir=str(state_dir))
    world.live.path.rmdir()
    world.live.path.symlink_to(world.warm.path)
    with raises(Invalid, "directories-identical"):
        world.promote()


def test_a_directory_is_not_promoted_into_itself_through_a_mount(world: World) -> None:
    with bound_at(world.warm.state_dir, world.live.state_dir), raises(Invalid, "directories-identical"):
        world.promote()


@pytest.mark.parametrize("inside", ["", ".statecore", "0_0/rocksdb"])
def test_a_directory_inside_the_other_is_refused(world: World, inside: str) -> None:
    before = fingerprint(world.warm.path)
    with raises(Invalid, "directories-nested"):
        world.promote(state_dir=str(world.warm.path / inside))
    assert fingerprint(world.warm.path) == before


def test_a_copy_inside_the_directory_of_the_application_is_refused(world: World) -> None:
    inside = world.live.path / "warm"
    inside.mkdir()
    world.warm.path.rename(inside / world.warm.path.name)
    with raises(Invalid, "directories-nested"):
        world.promote(standby_dir=str(inside))


def test_a_copy_beside_the_application_below_the_same_state_dir_is_fine(world: World) -> None:
    inside = world.live.state_dir / "warm"
    world.warm.state_dir.rename(inside)
    assert set(verdicts(world.promote(standby_dir=str(inside))).values()) == {PromoteVerdict.PROMOTED}


@pytest.mark.parametrize("what", one_of(["0_0", "0_0/rocksdb", "0_0/rocksdb/totals"]))
@pytest.mark.parametrize("whose", one_of(["warm", "live"]))
def test_a_task_that_leads_into_the_other_directory_is_refused_alone(world: World, what: str, whose: str) -> None:
    """Both the application and the standby would work in one database."""
    world.store(world.warm, "clicks", 9)
    here, there = (world.warm, world.live) if whose == "warm" else (world.live, world.warm)
    link = here.path / what
    if whose == "warm":
        (there.path / what).parent.mkdir(parents=True, exist_ok=True)
        link.rename(there.path / what)
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(there.path / what)
    report = world.promote()
    assert verdicts(report) == {"0_0": PromoteVerdict.REFUSED, "0_1": PromoteVerdict.PROMOTED}
    assert report.tasks[0].code == "task-directory-shared"
    assert link.is_symlink()


def test_a_task_that_is_mounted_from_the_other_directory_is_refused_alone(world: World) -> None:
    task = world.live.task_path("0_0")
    task.mkdir()
    with bound_at(world.warm.task_path("0_0"), task):
        assert verdicts(world.promote(apply=False)) == {"0_0": PromoteVerdict.REFUSED, "0_1": PromoteVerdict.PROMOTED}


def test_a_linked_task_of_the_copy_on_another_disk_is_promoted(world: World, tmp_path: Path) -> None:
    task = world.warm.task_path("0_0")
    task.rename(tmp_path / "elsewhere")
    task.symlink_to(tmp_path / "elsewhere")
    assert set(verdicts(world.promote()).values()) == {PromoteVerdict.PROMOTED}
    assert not [path for path in world.live.path.rglob("*") if path.is_symlink()]


def test_a_file_of_a_copy_that_is_a_link_is_refused(world: World, tmp_path: Path) -> None:
    file = next((world.warm.task_path("0_0") / "rocksdb" / "totals").glob("*.sst"))
    file.rename(tmp_path / file.name)
    file.symlink_to(tmp_path / file.name)
    report = world.promote()
    assert verdicts(report) == {"0_0": PromoteVerdict.REFUSED, "0_1": PromoteVerdict.PROMOTED}
    assert report.tasks[0].code == "symlink-in-store"


def test_files_that_both_have_since_an_earlier_promotion_are_fine(world: World) -> None:
    world.promote()
    path = world.warm.task_path("0_0") / "rocksdb" / "totals"
    assert {file.stat().st_nlink for file in path.glob("*.sst")} == {2}
    with RocksDBStore(path, KINDS["totals"]) as store:
        store.put(b"key", b"later")
        store.commit({world.changelog("totals"): 12})
    assert verdicts(world.promote()) == {"0_0": PromoteVerdict.PROMOTED, "0_1": PromoteVerdict.KEPT}
    assert (world.row("totals"), world.row("totals", task="0_1")) == ("later", "warm at 9")


def test_a_missing_copy_is_reported_by_its_option(world: World, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    wrong: dict[Path, tuple[type[StatecoreError], str]] = {
        tmp_path / "nowhere": (NotFound, "state-dir-not-found"),
        tmp_path / "empty": (NotFound, "application-not-found"),
        world.warm.path: (Invalid, "application-directory-given"),
    }
    for standby_dir, (kind, code) in wrong.items():
        with raises(kind, code, state_dir=str(standby_dir)) as refused:
            world.promote(standby_dir=str(standby_dir))
        assert "--standby-dir" in refused.value.action


def test_a_missing_state_dir_is_reported_because_it_may_be_misspelt(world: World, tmp_path: Path) -> None:
    said: list[str] = []
    missing = str(tmp_path / "liv")
    for state_dir in (missing, str(world.live.state_dir)):
        run_promote(world.request(state_dir=state_dir, apply=False), say=said.append)
    (note,) = said
    assert missing in note
    assert not Path(missing).exists()


def test_the_directory_of_the_application_is_not_taken_for_its_state_dir(world: World) -> None:
    """Else the tasks would lie one directory below where the application looks for them."""
    world.store(world.live, "totals", 5)
    with raises(Invalid, "application-directory-given") as refused:
        world.promote(state_dir=str(world.live.path))
    assert str(world.live.state_dir) in refused.value.action
    assert not (world.live.path / world.live.path.name).exists()


def test_a_state_dir_with_the_name_of_the_application_is_reported(world: World, tmp_path: Path) -> None:
    """An empty directory could be either of both."""
    said: list[str] = []
    for name in ("orders", "payments"):
        (tmp_path / name).mkdir()
        run_promote(world.request(state_dir=str(tmp_path / name), apply=False), say=said.append)
    (note,) = said
    assert f"{tmp_path / 'orders' / 'orders'}" in note
    assert "--state-dir" in note


@pytest.mark.parametrize("apply", [False, True])
def test_while_the_standby_runs_it_is_what_is_to_be_stopped(world: World, apply: bool) -> None:
    with world.warm.lock(), raises(Fenced, "state-directory-in-use") as refused:
        world.promote(apply=apply)
    assert "statecore standby" in refused.value.action
    assert str(world.warm.path) in refused.value.what


def followed(world: World, which: str) -> None:
    """Leave the record of a standby that has followed a task there."""
    directory = getattr(world, which).work_path / "standby" / "0_0"
    directory.mkdir(parents=True)
    (directory / "logs.json").write_text("{}")


@pytest.mark.parametrize("apply", [False, True])
def test_swapped_directories_are_reported(world: World, apply: bool) -> None:
    followed(world, "warm")
    world.store(world.live, "totals", 5)
    before = fingerprint(world.warm.path)
    with raises(Invalid, "directories-swapped"):
        world.promote(apply=apply, standby_dir=str(world.live.state_dir), state_dir=str(world.warm.state_dir))
    assert fingerprint(world.warm.path) == before


def test_directories_that_cannot_be_compared_are_used_as_given(world: World) -> None:
    followed(world, "warm")
    followed(world, "live")  # the application was started with an earlier copy
    assert set(verdicts(world.promote()).values()) == {PromoteVerdict.PROMOTED}


@pytest.mark.parametrize("whose", ["warm", "live"])
def test_a_task_that_leads_anywhere_into_the_other_directory_is_refused(world: World, whose: str) -> None:
    """Also to a place that no task of the other one has."""
    here, there = (world.warm, world.live) if whose == "warm" else (world.live, world.warm)
    place = there.path / "kept"
    if whose == "warm":
        here.task_path("0_0").rename(place)
    else:
        place.mkdir()
    here.task_path("0_0").symlink_to(place)
    report = world.promote()
    assert verdicts(report) == {"0_0": PromoteVerdict.REFUSED, "0_1": PromoteVerdict.PROMOTED}
    assert report.tasks[0].code == "task-directory-shared"
