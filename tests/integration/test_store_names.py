"""Stores of windows that are named as files of offsets: what Kafka Streams does with them, and what is seen of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from statecore.doctor.diagnosis import diagnose_directory
from statecore.errors import Invalid
from statecore.spec.reader import parse_spec
from statecore.statedir.state_directory import StateDirectory
from tests.harness.broker import Broker
from tests.harness.feeds import EVENTS, events
from tests.harness.kinds import KindCase, KindsApplication
from tests.harness.raising import raises
from tests.harness.rebuilding import KindsWorld, restored
from tests.harness.sources import Sources
from tests.harness.streams import StreamsFailed, StreamsJvm

pytestmark = [pytest.mark.integration, pytest.mark.full]


def application(*windows: str) -> KindsApplication:
    """A table ``x``, and a store of windows of each name."""

    def windows_of(name: str) -> KindCase:
        def add(at: Sources) -> None:
            at.grouped(EVENTS).windowedBy(at.tumbling()).reduce(at.reducer(), at.materialized(name, retention=True))

        return KindCase("timestamped-window", name, add, declared={"retention": "10m"})

    table = KindCase("timestamped-key-value", "x", lambda at: at.stream(EVENTS).toTable(at.materialized("x")) and None)
    feed = lambda base, partitions: [(EVENTS, events(base, partitions, 20))]  # noqa: E731
    return KindsApplication("named", (table, *map(windows_of, windows)), feed)


def test_names_of_files_that_no_store_has_are_as_good_as_others(
    broker: Broker, streams_jvm: StreamsJvm, application_id: str, state_dir: Path
) -> None:
    names = (".checkpoint-x", ".checkpoint_x", "y.position")
    world = KindsWorld(broker, streams_jvm, application_id, state_dir, "exactly_once_v2", application(*names))
    with world.application():
        world.feed_all()
    rows = world.rows()
    assert {store.partition("/")[0] for _, store in rows} == {"x", *names}
    directory = StateDirectory(state_dir, application_id)
    found = diagnose_directory(directory, spec=parse_spec(world.spec()))
    assert found.findings == ()
    assert {view.store for view in found.stores} == {"x", *names}
    with world.application() as running:
        assert restored(running) == {}
    assert world.rows() == rows


def test_a_store_in_the_place_of_another_ones_position_lets_the_first_start_succeed_alone(
    broker: Broker, streams_jvm: StreamsJvm, application_id: str, state_dir: Path
) -> None:
    world = KindsWorld(broker, streams_jvm, application_id, state_dir, "at_least_once", application("x.position"))
    with world.application():
        world.feed_all()
    with raises(Invalid, "spec-invalid"):
        parse_spec(world.spec())
    found = diagnose_directory(StateDirectory(state_dir, application_id)).findings
    assert {(one.code, one.store, one.repair) for one in found} == {("checkpoint-unreadable", "x", None)}
    again = world.application()
    with pytest.raises(StreamsFailed, match="Error reading checkpoint file"):
        again.launch()
    again.close(10)
