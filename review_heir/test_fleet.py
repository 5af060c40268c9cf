# ruff: noqa
"""What one task, or one topic, does to the other tasks of a process."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from statecore.changelog.cluster import Cluster
from statecore.errors import Corrupted, NotFound, Retryable, StatecoreError
from statecore.formats.kinds import StoreKind
from statecore.formats.topic_partition import TopicPartition
from statecore.jobs import kept_tasks, standby_fleet
from statecore.jobs.kept_tasks import KeptTasks
from statecore.jobs.standby_fleet import StandbyFleet
from statecore.jobs.standby_request import StandbyRequest
from statecore.placement.state_directory import StateDirectory
from statecore.placement.work_directory import CORRUPT
from statecore.runtime import group
from statecore.runtime.assignment.assignor import assign
from statecore.runtime.assignment.model import AssignmentSettings, Copy, Member, Role
from statecore.runtime.group import Assigned, GroupSettings, TaskGroup
from statecore.runtime.startup import StartupTasks
from statecore.runtime.task_stores import TaskStores
from statecore.runtime.standby_task import Round, StandbyTask
from tests.unit.jobs.test_kept_tasks import SPEC
from tests.unit.jobs.test_kept_tasks import World as KeptWorld
from tests.unit.runtime import standby_world, startup_world


class Quiet:
    """In place of kafka-python: nothing happens."""

    fell_out = False
    member_id = "m"

    def __init__(self, *_: Any) -> None: ...
    def poll(self, *_: Any, **__: Any) -> None: ...
    def close(self) -> None: ...


def test_a_changelog_that_is_deleted_does_not_end_a_member(monkeypatch: pytest.MonkeyPatch) -> None:
    """What `StandbyFleet._ends` raises when one of the changelogs is gone is raised by every poll's refresh."""
    monkeypatch.setattr(group, "GroupConsumer", Quiet)
    answers: list[Any] = [{"0_0": 5, "1_0": 7}, NotFound("Topics do not exist: app-gone-changelog.", action="Check.")]

    def ends() -> dict[str, int]:
        found = answers.pop(0)
        if isinstance(found, Exception):
            raise found
        return dict(found)

    now = [0.0]
    cluster: Any = SimpleNamespace()
    member = TaskGroup(cluster, GroupSettings("g", ("t",), "s"), ends=ends, clock=lambda: now[0])
    member.start({})
    now[0] = 31.0
    member.poll(0)  # raises NotFound: `StandbyFleet.attend` catches Retryable alone, so the process ends


def fleet_of(tmp_path: Path, startup: Any, kept: Any, said: list[str]) -> StandbyFleet:
    request = StandbyRequest(spec_path="s", state_dir=str(tmp_path), group="g")
    directory = StateDirectory(tmp_path, "app")
    cluster: Any = None
    fleet = StandbyFleet(request, SPEC, cluster, directory, kept, startup, said.append)
    fleet._group = SimpleNamespace(publish=lambda sums: None, close=lambda: None)  # type: ignore[assignment]
    return fleet


def test_a_task_of_others_that_cannot_be_closed_does_not_end_the_process(tmp_path: Path) -> None:
    """0_1 was open since the start, others got it, and its disk fails when it is closed; 0_0 is ours and sound."""
    said: list[str] = []

    def close_rest() -> None:
        raise Corrupted("The store of 0_1 could not be closed.", action="Look at the disk.")

    startup = SimpleNamespace(close_rest=close_rest)
    kept = SimpleNamespace(names=(), take_up=lambda name, role: said.append(name), sums=dict)
    fleet = fleet_of(tmp_path, startup, kept, said)
    fleet._pending = Assigned(1, "m", {"0_0": Role.STANDBY})
    fleet.take_up()
    assert "0_0" in said


def test_a_copy_beyond_the_end_of_its_log_is_not_preferred_to_one_that_is_near_it() -> None:
    """Kafka Streams counts it as fully lagging (ClientState.computeTaskLags); here it has no lag."""
    gone = Member("a", "a", copies={"0_0": Copy(9_000_000, Role.STANDBY)})
    near = Member("b", "b", copies={"0_0": Copy(1_999_000, Role.ON_DISK)})
    found = assign([gone, near], {"0_0": 2_000_000}, AssignmentSettings(replicas=1))
    assert "0_0" in found.members["b"].roles, found


def test_a_directory_of_another_application_is_not_emptied_by_a_standby_without_a_group(tmp_path: Path) -> None:
    """What `run_static` does: `StartupTasks.take` without `start`, then rounds that rebuild what is stale."""
    world = standby_world.World(tmp_path)
    other = startup_world.World(tmp_path)
    path = other.path("0_0") / "rocksdb" / standby_world.STORE
    from statecore.stores.rocksdb import RocksDBStore

    with RocksDBStore(path, StoreKind.KEY_VALUE, create=True) as store:
        store.put(b"precious", b"row")
        store.commit({TopicPartition("other-plain-changelog", 0): 41})
    world.log.put("k", "v")
    with world.directory.lock():

        def open_task(_: str) -> StandbyTask:
            task = world.task()
            task.open()
            return task

        startup = StartupTasks(world.directory, world.spec, open_task)
        try:
            task = startup.take("0_0")
        except StatecoreError:
            return
        done = world.follow(task)
        for name in done.stale:  # as KeptTasks does at once
            task.rebuild(name)
        world.follow(task)
        rows = standby_world.rows_of(task)
        task.close()
    assert b"precious" in rows, (done, rows, [str(one) for one in (world.directory.work_path).rglob("*@*")])


def test_a_first_read_of_one_task_does_not_keep_the_others_from_being_followed(tmp_path: Path) -> None:
    """A task of six pieces: nobody asks between two of them whether another task is due."""
    world = standby_world.World(tmp_path)
    for number in range(60):
        world.log.put(f"k{number}", "v")
    with world.directory.lock():
        task = world.task(piece_offsets=10)
        task.open()
        world.follow(task)
        spans = world.reader.spans
        task.close()
    assert len(spans) == 1, spans


def test_a_member_that_fell_out_deletes_nothing_by_what_it_heard_before(tmp_path: Path) -> None:
    """After `lost` nobody says that the others still have what they had."""
    said: list[str] = []
    startup = SimpleNamespace(close_rest=lambda: None)
    kept = SimpleNamespace(names=(), take_up=lambda name, role: None, sums=dict)
    fleet = fleet_of(tmp_path, startup, kept, said)
    fleet._group.ends = {"0_1": 1000}  # type: ignore[union-attr,misc]
    fleet._pending = Assigned(1, "m", {}, elsewhere={"0_1": 1000})
    fleet.take_up()
    assert fleet._caught_up_elsewhere() == {"0_1": 1000}
    fleet._pending = Assigned(-1, "", lost=True)
    fleet.take_up()
    assert fleet._caught_up_elsewhere() == {}
