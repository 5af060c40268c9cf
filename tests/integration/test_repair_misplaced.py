"""What lies in the wrong place: real Kafka Streams does not start, or restores; nothing is lost by a repair."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.broker import Broker
from tests.harness.case_selection import one_of
from tests.harness.command import examined, worse_than_notes
from tests.harness.damage_functions import segments_of
from tests.harness.fleet_kinds import SMALL
from tests.harness.rebuilding import KindsWorld, restored
from tests.harness.repairing import repair
from tests.harness.streams import StreamsFailed, StreamsJvm

pytestmark = [pytest.mark.integration, pytest.mark.full]

SESSIONS, WINDOWS = "session", "timestamped-window"


def _lose_directory(segment: Path) -> None:
    for file in list(segment.iterdir()):
        file.rename(segment.parent / file.name)
    segment.rmdir()


def _move_into_itself(task: Path) -> None:
    aside = task.rename(task.with_name("aside"))
    task.mkdir()
    aside.rename(task / task.name)


@pytest.mark.parametrize("guarantee", one_of(["exactly_once_v2", "at_least_once"]))
def test_what_lies_in_the_wrong_place_is_rebuilt_or_left_to_a_person(
    broker: Broker, streams_jvm: StreamsJvm, application_id: str, state_dir: Path, tmp_path: Path, guarantee: str
) -> None:
    world = KindsWorld(broker, streams_jvm, application_id, state_dir, guarantee, SMALL, 3)
    with world.application():
        world.feed_all()
    with world.application() as running:
        right = world.answers(running)
    spec = world.write_spec(tmp_path / "stores.yaml")
    damaged = world.copied("damaged")
    _lose_directory(segments_of(damaged.directory, SESSIONS, "0_0")[-1])
    (damaged.directory / "0_1" / WINDOWS).rename(damaged.directory / "0_1/rocksdb" / WINDOWS)
    _move_into_itself(damaged.directory / "0_2")

    returned, findings = examined(damaged.state_dir, spec)
    assert returned == 22
    found = {(one["code"], one["task"], one["store"]) for one in worse_than_notes(findings)}
    expected = {("segment-stray", "0_0", SESSIONS), ("store-absent", "0_1", WINDOWS), ("task-misplaced", "0_2", "0_2")}
    assert expected <= found
    assert {(code, task) for code, task, _ in found - expected} <= {
        ("store-absent", "0_2"),
        ("rows-differ", "0_0"),
        ("rows-differ", "0_1"),
    }
    with pytest.raises(StreamsFailed), damaged.copied("opened").application():
        pass

    first = repair(application_id, damaged.state_dir, spec)
    assert {one["task"] for one in first.remaining} == {"0_2"}
    assert {(store, task) for one in first.rebuilt for store in one.stores for task in one.tasks} == {
        (SESSIONS, "0_0"),
        (WINDOWS, "0_1"),
    }
    outer = (damaged.directory / "0_2").rename(tmp_path / "outer")  # as its remedy says
    (outer / "0_2").rename(damaged.directory / "0_2")
    assert examined(damaged.state_dir, spec)[0] == 0
    with damaged.application() as running:
        assert damaged.answers(running) == right
        assert restored(running).keys() == {"in-memory"}  # which has no directory
