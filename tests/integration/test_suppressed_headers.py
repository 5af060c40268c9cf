"""Stores around ``suppress`` in the format that keeps headers: a buffer's changelog has headers of its own (4.4).

The buffer lies in memory, and Kafka Streams restores it itself; nothing of it may disturb the stores on disk.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from statecore.jobs.engine.in_process import InProcessEngine
from tests.harness import topics
from tests.harness.broker import Broker
from tests.harness.command import statecore_here
from tests.harness.feeds import EVENTS, MINUTE, feed
from tests.harness.kinds import HEADERS, KindCase, KindsApplication
from tests.harness.modes import MODES, Mode
from tests.harness.rebuilding import PARTITIONS, KindsWorld, restored
from tests.harness.sources import Sources
from tests.harness.streams import StreamsApplication, StreamsJvm

pytestmark = pytest.mark.integration

BUFFERS = {"late-store", "closed-store"}
OF_CHANGES = {"v", "vh.old", "vh.prior"}
"""Headers of the buffer's changelog: which format a value has, headers and time of the old one and of the prior."""


def _tables(at: Sources) -> None:
    """A table held back for some minutes and then grouped anew, which asks for old values; windows until they close."""
    f, bytes_serde, texts = at.jvm.functions, at._serdes.ByteArray(), at._serdes.String()
    unbounded = at.kstream.Suppressed.BufferConfig.unbounded()
    made = f.cast(
        f.constructor("org.apache.kafka.streams.KeyValue", *["java.lang.Object"] * 2), *["java.lang.Object"] * 3
    )
    pairs = f.instance("org.apache.kafka.streams.kstream.KeyValueMapper", made)
    table = at.stream(EVENTS).toTable(at.materialized("table"))
    held = table.suppress(at.kstream.Suppressed.untilTimeLimit(at.duration(3 * MINUTE), unbounded).withName("late"))
    by = getattr(at.kstream.Grouped, "with")("again", bytes_serde, texts)
    f_first = f.instance(
        "org.apache.kafka.streams.kstream.Reducer", f.ignoring(f.identity("java.lang.Object"), 1, "java.lang.Object")
    )
    held.groupBy(pairs, by).reduce(at.reducer(), f_first, at.materialized("grouped"))
    windows = (
        at.grouped(EVENTS).windowedBy(at.tumbling()).reduce(at.reducer(), at.materialized("counts", retention=True))
    )
    windows.suppress(at.kstream.Suppressed.untilWindowCloses(unbounded).withName("closed"))


def _case(like: str, store: str) -> KindCase:
    found = next(case for case in HEADERS.cases if case.store == like)
    return replace(found, store=store, add=_tables)


SUPPRESSED = KindsApplication(
    "suppressed",
    (
        _case("headers-key-value", "table"),
        _case("headers-key-value", "grouped"),
        _case("headers-window", "counts"),
        *(KindCase("in-memory", store, _tables) for store in sorted(BUFFERS)),
    ),
    lambda base, partitions: [one for one in feed(base, partitions) if one[0] == EVENTS],
    HEADERS.properties,
)


def said(*words: object) -> dict[str, Any]:
    """The document that a command prints."""
    done = statecore_here(*words, "--json")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize(
    "mode",
    [pytest.param(mode, marks=pytest.mark.full if number else (), id=mode.name) for number, mode in enumerate(MODES)],
)
def test_stores_around_suppress_are_rebuilt_and_opened_with_nothing_to_restore(
    broker: Broker, streams_jvm: StreamsJvm, tmp_path: Path, mode: Mode
) -> None:
    application_id = f"suppressed-{mode.name}-{uuid.uuid4().hex[:8]}"
    world = KindsWorld(broker, streams_jvm, application_id, tmp_path / "state", mode.guarantee, mode.of(SUPPRESSED))
    world.engine = InProcessEngine()

    def consumed(running: StreamsApplication) -> Any:
        topics.wait_until_consumed(
            world.servers, application_id, [world.inputs[EVENTS], f"{application_id}-again-repartition"]
        )
        return world.answers(running)

    with world.application() as running:
        world.feed(SUPPRESSED.feed(world.base, PARTITIONS))
        before = consumed(running)
        described = running.describe()
    mode.assert_used(streams_jvm, world)
    assert all(before.values())
    changelog = f"{application_id}-late-store-changelog"
    records = [one for p in range(PARTITIONS) for one in topics.read(world.servers, changelog, p)]
    assert {name for one in records for name, _ in one.headers} == OF_CHANGES

    (text := tmp_path / "describe.txt").write_text(described)
    where = ("--bootstrap-servers", world.servers, "--application-id", application_id)
    discovered = said("discover", *where, "--topology", text, "--state-dir", world.state_dir)
    stores = {
        name: store["kind"]
        for sub in discovered["spec"]["subtopologies"].values()
        for name, store in sub["stores"].items()
    }
    assert stores == {case.store: case.kind for case in SUPPRESSED.cases}

    written = world.rows()
    world.lose()
    world.restore()
    assert world.rows() == written
    with world.application() as running:
        assert set(restored(running)) <= BUFFERS
        assert consumed(running) == before
