"""Kafka Streams is killed while it creates a segment: it starts as if that were not there, and so do fail-overs."""

from __future__ import annotations

import json
import shutil
import uuid
from pathlib import Path

import pytest

from statecore.statedir.database_state import read_database_state
from statecore.statedir.state_directory import StateDirectory
from statecore.statedir.store_places import store_places
from tests.harness.command import statecore_here
from tests.harness.creation import interrupt_creation
from tests.harness.feeds import EVENTS
from tests.harness.fleet import GUARANTEES, Fleet
from tests.harness.fleet_kinds import SMALL
from tests.harness.kinds import KindsApplication
from tests.integration.test_promote import VERSION, Handing

pytestmark = [pytest.mark.integration, pytest.mark.full]

WINDOWS = "timestamped-window"
KINDS = KindsApplication(
    "killed",
    tuple(case for case in SMALL.cases if case.store in ("key-value", WINDOWS)),
    lambda base, partitions: [one for one in SMALL.feed(base, partitions) if one[0] == EVENTS],
    SMALL.properties,
)


def _interrupt(world_directory: Path) -> list[Path]:
    """The next segment of each task, killed before any other family was added, or when that of the rows had been."""
    made = []
    for place in store_places(StateDirectory(world_directory.parent, world_directory.name)):
        if place.store == WINDOWS:
            first, last = (segment.start or 0 for segment in (place.segments[0], place.segments[-1]))
            families = ("keyValueWithTimestamp",) if place.partition else ()
            made.append(interrupt_creation(place.path / f"{WINDOWS}.{2 * last - first}", *families))
    return made


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_segment_that_a_kill_left_unfinished_stops_no_fail_over(fleet: Fleet, tmp_path: Path, guarantee: str) -> None:
    world = fleet.application(f"killed-{uuid.uuid4().hex[:8]}", tmp_path / "state", guarantee, KINDS)
    handing = Handing(world, tmp_path)
    first, second, third = world.portions()
    with world.on(VERSION):
        world.feed(first)
    handing.write_spec()
    handing.follow()
    closed = handing.offsets()
    running = world.start(VERSION)
    world.feed(second)
    handing.follow()
    copied = handing.offsets()
    world.feed(third)
    before = world.answers(running)
    fleet.kill(VERSION)
    delta, tail = handing.counts(closed), handing.counts(copied)
    assert all(0 < tail[store] < delta[store] for store in delta)
    unfinished = _interrupt(world.directory)
    assert len(unfinished) == world.partitions
    saved = tmp_path / "saved"
    shutil.copytree(world.state_dir, saved)

    with world.on(VERSION) as running:  # it adds what is missing, and goes by the other segments
        assert world.restored(running) == delta
        assert world.answers(running) == before
    assert all("offsets" in read_database_state(one).column_families for one in unfinished)

    shutil.rmtree(world.state_dir)
    shutil.copytree(saved, world.state_dir)
    code, report = handing.promote("--apply")
    assert (code, {one["verdict"] for one in report["tasks"]}) == (0, {"promoted"})
    assert not any(one.exists() for one in unfinished)
    with world.on(VERSION) as running:
        assert world.restored(running) == tail
        assert world.answers(running) == before

    done = statecore_here("standby", "--spec", handing.spec, "--state-dir", saved, "--once", "--json")
    followed = [one for task in json.loads(done.stdout)["tasks"] for one in (task, *task["stores"])]
    assert (done.returncode, {one["error"] for one in followed}) == (0, {None}), done.stderr
    assert not any((saved / one.relative_to(world.state_dir)).exists() for one in unfinished)
    shutil.rmtree(world.state_dir)
    shutil.copytree(saved, world.state_dir, ignore=shutil.ignore_patterns(".lock"))
    with world.on(VERSION) as running:
        assert world.restored(running) == {}
        assert world.answers(running) == before
