"""The first start of 4.3 upon a directory of 4.2 is killed between the segments of a store, and what comes after it."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from tests.harness.command import examined, statecore_here, worse_than_notes
from tests.harness.config_setter import CONFIG_SETTER, config_setter
from tests.harness.damage_functions import OFFSETS, segments_of
from tests.harness.directory import read_database
from tests.harness.fleet import GUARANTEES, Fleet
from tests.harness.fleet_kinds import SMALL
from tests.harness.streams import StreamsFailed

pytestmark = [pytest.mark.integration, pytest.mark.full]

WINDOWS, TASK = "timestamped-window", "0_0"
_COUNT = (
    "static final java.util.concurrent.atomic.AtomicInteger OPENED = new java.util.concurrent.atomic.AtomicInteger();"
)
_HALT = f'if (storeName.startsWith("{WINDOWS}.") && OPENED.incrementAndGet() == 2) Runtime.getRuntime().halt(9);'
"""RocksDB's options are asked for before a segment is opened: it ends there, with the first one converted."""


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_the_next_start_goes_on_with_the_upgrade_and_the_older_release_does_after_a_migration(
    fleet: Fleet, application_id: str, state_dir: Path, tmp_path: Path, guarantee: str
) -> None:
    world = fleet.application(application_id, state_dir, guarantee, SMALL, 2)
    with world.on("4.2") as running:
        world.feed_all()
        right = world.answers(running)
    spec = world.write_spec(tmp_path / "stores.yaml")

    jvm = fleet.jvm("4.3")
    world.kinds = replace(SMALL, properties={**SMALL.properties, CONFIG_SETTER: config_setter(jvm, _HALT, _COUNT)})
    with pytest.raises(StreamsFailed):
        world.application("4.3").launch()
    assert jvm.process.wait(60) == 9
    fleet.kill("4.3")
    world.kinds = SMALL
    families = [read_database(segment).keys() for segment in segments_of(world.directory, WINDOWS, TASK)]
    assert [OFFSETS in one for one in families] == [True, False]
    back = tmp_path / "back"
    shutil.copytree(state_dir, back)

    returned, findings = examined(state_dir, spec, "--to", "4.3")
    (found,) = [one for one in findings if one["code"] == "half-migrated"]
    assert (returned, found["task"], found["evidence"]["mixed"]) == (0, TASK, [WINDOWS])
    with world.on("4.3") as running:
        assert world.answers(running) == right
        assert world.restored(running) == {}

    world.state_dir = back
    returned, findings = examined(back, spec, "--to", "4.2")
    assert (returned, {one["code"] for one in worse_than_notes(findings)}) == (
        21,
        {"half-migrated", "release-cannot-open"},
    )
    done = statecore_here(
        *("migrate", "--state-dir", back, "--application-id", application_id, "--spec", spec, "--to", "4.2", "--apply")
    )
    assert done.returncode == 0
    assert examined(back, spec, "--to", "4.2")[0] == 0
    with world.on("4.2") as running:
        assert world.answers(running) == right
        assert world.restored(running) == {}
