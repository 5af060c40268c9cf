"""One application on one version of Kafka Streams after another, and after it was killed: what the harness stands on.

These are facts of Kafka Streams; what migrate, doctor and repair make of them is tested elsewhere.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.harness import topics
from tests.harness.case_selection import one_of
from tests.harness.crashes import DISAGREEING, PARTITION, segments_in_disagreement
from tests.harness.fed_application import Answers
from tests.harness.fleet import GUARANTEES, NEWEST, VERSIONS, Fleet, Moment, VersionedApplication
from tests.harness.fleet_kinds import SMALL

pytestmark = pytest.mark.integration

GLOBAL = "global-table"
WITH_BUFFER = {"grace-table", "grace-Buffer"}
"""The stores of the tasks that have a grace buffer."""
ON_DISK = frozenset(case.store for case in SMALL.cases if case.kind != "in-memory")
OF_TASKS = ON_DISK - {GLOBAL}


def application(fleet: Fleet, tmp_path: Path, guarantee: str, moment: str) -> VersionedApplication:
    return fleet.application(f"{moment}-{uuid.uuid4().hex[:8]}", tmp_path / "state", guarantee, SMALL)


@pytest.mark.parametrize("guarantee", one_of(GUARANTEES))
def test_a_closed_application_resumes_with_the_next_release(fleet: Fleet, tmp_path: Path, guarantee: str) -> None:
    world = application(fleet, tmp_path, guarantee, "upgraded")
    before: Answers = {}
    restored: dict[str, Mapping[str, int]] = {}
    for release in VERSIONS:
        with world.on(release) as running:
            restored[release] = world.restored(running)
            if not before:
                world.feed_all()
                before = world.answers(running)
                assert all(before.values())
            assert world.answers(running) == before
    # 3.9 writes no global/.checkpoint at a close, only after thousands of records: its own next start restores, too.
    every = sum(len(one) for role, one in world.portions(1)[0] if role == "reference")
    assert restored == {"3.9": {}, "4.2": {GLOBAL: every}, "4.3": {}, "4.4": {}}


@pytest.mark.full
def test_what_a_killed_application_restores_depends_on_what_was_flushed(fleet: Fleet, tmp_path: Path) -> None:
    moments = [
        (Moment.AFTER_CLOSE, "exactly_once_v2"),
        (Moment.FLUSHED, "exactly_once_v2"),
        (Moment.FLUSHED, "at_least_once"),
    ]
    worlds = {key: application(fleet, tmp_path, key[1], key[0].value) for key in moments}
    told = {key: world.live(NEWEST, key[0]) for key, world in worlds.items()}
    fleet.kill(NEWEST)
    changelogs = {key: _records(world) for key, world in worlds.items()}
    for key, world in worlds.items():
        moment, guarantee = key
        with world.on(NEWEST) as running:
            assert world.answers(running) == told[key]
            restored = world.restored(running)
        everything = {store for store in OF_TASKS if restored.get(store) == changelogs[key][store]}
        if guarantee == "at_least_once":
            assert everything == set()
            assert restored.keys() & OF_TASKS
        elif moment is Moment.FLUSHED:  # status 1: every task is deleted
            assert everything == OF_TASKS
        else:  # the file with the buffer's offset is deleted when it is opened, so its task has lost an offset
            assert everything == WITH_BUFFER
            assert OF_TASKS - everything - {"source-table"} <= restored.keys()


@pytest.mark.full
def test_segments_in_disagreement_are_a_silent_loss(fleet: Fleet, tmp_path: Path) -> None:
    world = application(fleet, tmp_path, "at_least_once", "disagree")
    told = segments_in_disagreement(world, NEWEST)
    fleet.kill(NEWEST)
    with world.on(NEWEST) as running:
        after = world.answers(running)
    assert [key for key in told if after[key] != told[key]] == [(DISAGREEING, PARTITION)]
    assert len(after[DISAGREEING, PARTITION]) < len(told[DISAGREEING, PARTITION])


def _records(world: VersionedApplication) -> dict[str, int]:
    """How many records each store on disk is made of."""
    found = {}
    for case in world.kinds.cases:
        topic = world.inputs[case.source] if case.source else f"{world.application_id}-{case.store}-changelog"
        found[case.store] = sum(len(topics.read(world.servers, topic, p)) for p in range(world.partitions))
    return found
