"""Offset sums of directories that real applications have left, compared with what Kafka Streams restores from there."""

from __future__ import annotations

import json
import shutil
import uuid
from pathlib import Path
from typing import Any

import pytest

from statecore.formats.topic_partition import TopicPartition
from statecore.spec.reader import parse_spec
from statecore.statedir.state_directory import StateDirectory
from statecore.tasks.offset_sums import OffsetSource, TaskDirectoryState, TaskSum, read_offset_sums
from statecore.tasks.startup_tasks import StartupSettings, StartupTasks
from tests.harness.command import statecore_here
from tests.harness.fleet import NEWEST, Fleet, VersionedApplication
from tests.harness.fleet_kinds import SMALL
from tests.harness.flushing import flush
from tests.harness.modes import each_guarantee

ON_TASKS = {case.store for case in SMALL.cases if case.kind != "in-memory" and not case.is_global}
EVERYTHING = 16
"""Records in a partition of each changelog, at least: of these portions."""

pytestmark = [pytest.mark.integration]


def sums_of(world: VersionedApplication) -> dict[str, TaskSum]:
    found = read_offset_sums(StateDirectory(world.state_dir, world.application_id), parse_spec(world.spec()))
    return {task: one for task, one in found.items() if one.state is not TaskDirectoryState.EMPTY}


def remaining(world: VersionedApplication, sums: dict[str, TaskSum]) -> dict[tuple[str, int], int]:
    """Offsets between what the sums say of each store, and the end of its changelog."""
    ends = world.ends()
    found = {}
    for one in sums.values():
        for store in one.stores:
            assert store.changelog is not None
            at: TopicPartition = store.changelog
            read = 0 if store.offset is None else store.offset + 1
            found[store.store, at.partition] = ends[at.topic][at.partition] - read
    return found


def inspected(world: VersionedApplication, tmp_path: Path) -> dict[str, tuple[int, int]]:
    """The offset sum and the lag of each task, as ``inspect --offset-sums`` says them."""
    spec = tmp_path / f"{uuid.uuid4().hex}.yaml"
    spec.write_text(json.dumps(world.spec()))
    done = statecore_here("inspect", "--offset-sums", "--state-dir", world.state_dir, "--spec", spec, "--json")
    assert done.returncode == 0, done.stderr
    (application,) = json.loads(done.stdout)["applications"]
    return {one["task"]: (one["offset_sum"], one["lag"]) for one in application["tasks"]}


def by_task(sums: dict[str, TaskSum], left: dict[tuple[str, int], int]) -> dict[str, tuple[int, int]]:
    return {
        task: (one.sum, sum(left[store.store, store.changelog.partition] for store in one.stores if store.changelog))
        for task, one in sums.items()
    }


def corrupt_at_start(world: VersionedApplication, tmp_path: Path) -> set[str]:
    """The tasks that a start finds corrupt, in a copy of the directory; none is opened."""
    copy = tmp_path / f"copy-{uuid.uuid4().hex}"
    shutil.copytree(world.state_dir, copy)
    directory = StateDirectory(copy, world.application_id)

    def open_task(task: str) -> Any:
        raise AssertionError(task)

    tasks = StartupTasks(directory, parse_spec(world.spec()), open_task, settings=StartupSettings(max_open_databases=0))
    with directory.lock():
        tasks.start()
    return set(tasks.corrupt)


@pytest.mark.full
@each_guarantee
def test_kafka_streams_restores_what_the_sums_of_a_directory_leave(
    fleet: Fleet, tmp_path: Path, guarantee: str
) -> None:
    """Behind a transaction stands a marker, which is an offset and no record."""
    marker = int(guarantee != "at_least_once")
    world = fleet.application(f"sums-{uuid.uuid4().hex[:8]}", tmp_path / "state", guarantee, SMALL)
    first, second, third = world.portions()
    with world.on(NEWEST):
        world.feed([*first, *second])
    sums = sums_of(world)
    left = remaining(world, sums)
    assert left == {(store, at): marker * (store != "source-table") for store, at in left}
    assert {store for store, _ in left} == ON_TASKS
    assert inspected(world, tmp_path) == by_task(sums, left)
    assert corrupt_at_start(world, tmp_path) == set()

    running = world.start(NEWEST)
    world.feed(second)
    assert flush(running)
    world.feed(third)
    fleet.kill(NEWEST)
    sums = sums_of(world)
    left = remaining(world, sums)
    assert all(left.values())
    assert inspected(world, tmp_path) == by_task(sums, left)
    corrupt = corrupt_at_start(world, tmp_path)
    with world.on(NEWEST) as running:
        restored = running.restored_records()
    if guarantee == "at_least_once":
        assert {key: restored[key] for key in left} == left
        assert corrupt == set()
    else:  # it wipes the tasks whole; the start says so before
        assert all(restored[store, at] >= EVERYTHING for store, at in left)
        assert corrupt == set(sums)


@pytest.mark.full
def test_kafka_streams_restores_what_the_sums_of_an_older_directory_leave(fleet: Fleet, tmp_path: Path) -> None:
    world = fleet.application(f"sums-{uuid.uuid4().hex[:8]}", tmp_path / "state", "at_least_once", SMALL)
    with world.on("4.2.0"):
        world.feed_all()
    sums = sums_of(world)
    assert {store.source for one in sums.values() for store in one.stores} == {OffsetSource.FILE}
    left = remaining(world, sums)
    assert not any(left.values())
    assert inspected(world, tmp_path) == by_task(sums, left)
    with world.on(NEWEST) as running:
        restored = running.restored_records()
    assert {key: restored.get(key, 0) for key in left} == left
