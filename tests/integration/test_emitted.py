"""What an application emits after a rebuild is what it emits after a restart over its own directory."""

from __future__ import annotations

import itertools
import uuid

import pytest

from statecore.jobs.engine.in_process import InProcessEngine
from statecore.jobs.planning.plan import VersionedStart
from tests.harness import topics
from tests.harness.broker import Broker
from tests.harness.emitting import EMITTING, late
from tests.harness.modes import each_guarantee
from tests.harness.rebuilding import KindsWorld, restored
from tests.harness.streams import StreamsJvm

pytestmark = pytest.mark.integration

Emitted = dict[str, list[tuple[bytes | None, bytes | None, int | None]]]
"""By output: key, value and timestamp of every result, in order."""


def emitted(world: KindsWorld) -> Emitted:
    return {
        role: [(one.key, one.value, one.timestamp) for one in topics.read(world.servers, topic, 0)]
        for role, topic in world.outputs.items()
    }


def feed(world: KindsWorld, portions: list[tuple[str, list[topics.Record]]]) -> None:
    """Feeds one portion after the other, and waits for what the foreign-key join sends from one task to the other."""
    for portion in portions:
        world.feed([portion])
        for way in ("registration", "response"):
            of_join = f"{world.application_id}-foreign-subscription-{way}-topic"
            topics.wait_until_consumed(world.servers, world.application_id, [of_join])


@pytest.mark.full
@each_guarantee
def test_a_rebuilt_application_emits_what_it_would_have_emitted_over_its_own_directory(
    broker: Broker, streams_jvm: StreamsJvm, tmp_path_factory: pytest.TempPathFactory, guarantee: str
) -> None:
    """As many results of every window and join, in the same order, after the same number of restarts."""
    before: dict[str, Emitted] = {}
    after: dict[str, Emitted] = {}
    base = 0
    for way in ("own", "rebuilt"):
        application_id = f"emitting-{way}-{uuid.uuid4().hex[:8]}"
        state_dir = tmp_path_factory.mktemp("emitting")
        world = KindsWorld(broker, streams_jvm, application_id, state_dir, guarantee, EMITTING, partitions=1)
        world.engine = InProcessEngine()
        base = world.base = base or world.base
        portions = EMITTING.feed(base, 1)
        half = len(portions) // 2
        with world.application():
            feed(world, portions[:half])
        before[way] = emitted(world)
        if way == "rebuilt":
            world.lose()
            world.restore(versioned=VersionedStart.LATEST)
        with world.application() as running:
            assert set(restored(running)) <= {"suppressed-store"}
            feed(world, [*late(base), *portions[half:]])
        after[way] = emitted(world)

    assert before["rebuilt"] == before["own"]
    for role, expected in after["own"].items():
        assert len(expected) > len(before["own"][role]) > 0, role
        differing = itertools.zip_longest(after["rebuilt"][role], expected)
        assert [pair for pair in differing if pair[0] != pair[1]] == [], role
