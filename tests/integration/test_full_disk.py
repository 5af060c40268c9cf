"""A disk that fills in the middle of a restore: what was there stays, and a retry after making room goes on."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from statecore.errors import Capacity
from statecore.jobs.planning.planned_tails import RESUMED_NOTE
from statecore.statedir.file_trees import fingerprint
from tests.harness import mounts
from tests.harness.broker import Broker
from tests.harness.on_spark import SPARK_LEFTOVERS
from tests.harness.streams import StreamsJvm
from tests.harness.tables import PARTITIONS, World

pytestmark = [pytest.mark.integration, *SPARK_LEFTOVERS, pytest.mark.usefixtures("local_spark")]

FULL = {
    "restore.after-plan": 12 << 10,  # room for the first of the runs
    "restore.after-runs": 64 << 10,  # for the first of the images
    "restore.after-images": 0,
    "placement.after-image-move": 0,
    "placement.before-journal": 0,
}
"""From where on the disk is full, but for so many bytes."""


@pytest.mark.parametrize(
    "points", [tuple(FULL)[::2], pytest.param(tuple(FULL), marks=pytest.mark.full)], ids=["some", "all"]
)
def test_a_full_disk_replaces_nothing_and_a_retry_with_space_resumes(
    broker: Broker,
    streams_jvm: StreamsJvm,
    application_id: str,
    state_dir: Path,
    tmp_path: Path,
    points: tuple[str, ...],
) -> None:
    lived = World(broker, streams_jvm, application_id, state_dir, "exactly_once_v2")
    lived.feed()
    before = lived.live()
    with mounts.disk(tmp_path / "disk", "192m") as disk:
        world = lived.at(disk.path / "state")
        shutil.copytree(lived.state_dir, world.state_dir)
        tasks = [world.state_dir / application_id / f"0_{partition}" for partition in range(PARTITIONS)]
        reference = {(one.store, one.partition): one.digest for one in world.restore(replace=True).stores}
        for point in points:
            there = [fingerprint(task) for task in tasks]
            faults = mounts.FullFrom(disk, point, FULL[point])
            with pytest.raises(Capacity, match=r"full|No space left") as caught:
                world.restore(replace=True, request_id=point, faults=faults)
            assert caught.value.exit_code == 15
            assert [fingerprint(task) for task in tasks] == there, point
            assert faults.filler is not None
            faults.filler.unlink()
            report = world.restore(replace=True, request_id=point)
            assert report.placed
            assert RESUMED_NOTE in report.notes
            assert {(one.store, one.partition): one.digest for one in report.stores} == reference, point
        # Once the journal is written no room is needed any more, not even for the report.
        for point in ("placement.after-journal", "restore.after-placement"):
            faults = mounts.FullFrom(disk, point)
            report = world.restore(replace=True, faults=faults)
            assert faults.filler is not None
            faults.filler.unlink()
            assert {(one.store, one.partition): one.digest for one in report.stores} == reference
        assert world.reopen() == (before, 0)
