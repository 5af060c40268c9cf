"""Every instance has all global stores; the snapshot has the one that is furthest, and everybody's tasks."""

from __future__ import annotations

from pathlib import Path

import pytest

from statecore.formats.topic_partition import TopicPartition
from statecore.jobs.backup.report import BackupOutcome
from tests.unit.jobs.backup.snapshots import ROWS, World


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    made.spec["global_stores"] = {"products": {"kind": "key-value", "topic": "products"}}
    return made


def instance(world: World, number: int, products: int, *, task: bool = True) -> None:
    """Go on in the directory of an instance, with the task of its number and a global store up to an offset."""
    world.state_dir = world.root / f"state-{number}"
    world.path = world.state_dir / "app"
    if task:
        world.write(ROWS, 7, path=world.database(task=f"0_{number}"), changelog=world.changelog(partition=number))
    path = world.database("products", "global")
    world.write(ROWS, products, path=path, changelog=TopicPartition("products", 0))


def products(world: World) -> tuple[int, str]:
    """Next offset and identity of the published global store."""
    store = world.stored()["global", "products"]
    return store.changelogs[0].end, store.identity


def test_each_instance_publishes_its_tasks_and_the_global_store_that_is_furthest(world: World) -> None:
    instance(world, 0, 5)
    assert world.snapshot().outcome is BackupOutcome.PUBLISHED
    first = products(world)
    for number, offset in ((1, 4), (2, 5)):  # behind, and as far in another database
        instance(world, number, offset)
        report = world.snapshot()
        assert report.outcome is BackupOutcome.PUBLISHED
        assert [(one.task, one.store) for one in report.stores] == [(f"0_{number}", "counts")]
        assert products(world) == first
    instance(world, 3, 9)
    world.snapshot()
    assert products(world)[0] == 9
    assert {task for task, _ in world.stored()} == {"0_0", "0_1", "0_2", "0_3", "global"}


def test_an_instance_without_more_than_the_snapshot_publishes_nothing(world: World) -> None:
    instance(world, 0, 5)
    published = world.snapshot()
    assert world.snapshot().outcome is BackupOutcome.UNCHANGED, "of the same database"
    instance(world, 1, 4, task=False)
    report = world.snapshot()
    assert (report.outcome, report.snapshot) == (BackupOutcome.UNCHANGED, published.snapshot)


@pytest.mark.parametrize(("mine", "theirs"), [(5, 6), (6, 5), (5, 5)])
def test_instances_that_publish_at_the_same_time_publish_the_furthest(world: World, mine: int, theirs: int) -> None:
    class Meanwhile:
        """Has another instance publish once."""

        has_published = False

        def reach(self, point: str) -> None:
            if point != "backup.after-files" or self.has_published:
                return
            self.has_published = True
            before = world.state_dir, world.path
            instance(world, 1, theirs)
            world.snapshot()
            world.state_dir, world.path = before

    instance(world, 0, mine)
    assert world.snapshot(faults=Meanwhile()).outcome is BackupOutcome.PUBLISHED
    assert products(world)[0] == max(mine, theirs)
    assert {task for task, _ in world.stored()} == {"0_0", "0_1", "global"}
