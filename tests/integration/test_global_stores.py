"""Global stores of a real application, lost, rebuilt from all partitions of their topics, and opened by it again."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from statecore.errors import Invalid
from statecore.jobs.engine.in_process import InProcessEngine
from tests.harness import directory, topics
from tests.harness.broker import Broker
from tests.harness.feeds import EVENTS, PRICES, REFERENCE
from tests.harness.kinds import GLOBAL_HEADERS, GLOBALS, PROCESSED, KindsApplication
from tests.harness.modes import AT_LEAST_ONCE, EXACTLY_ONCE, each_guarantee
from tests.harness.rebuilding import PARTITIONS, KindsWorld, eventually, left_behind, restored, table
from tests.harness.streams import StreamsApplication, StreamsJvm
from tests.harness.topics import Record

pytestmark = pytest.mark.integration


class World(KindsWorld):
    """An application with global stores; what its topics hold is known."""

    engine = InProcessEngine()

    def __init__(
        self,
        broker: Broker,
        jvm: StreamsJvm,
        application_id: str,
        state_dir: Path,
        guarantee: str,
        of: KindsApplication,
    ) -> None:
        super().__init__(broker, jvm, application_id, state_dir, guarantee, of)
        self.sent: dict[str, list[Record]] = {role: [] for role in self.inputs}

    def feed_all(self, running: StreamsApplication) -> None:
        """Feeds everything and waits until the global tables have it."""
        self.send(running, self.kinds.feed(self.base, PARTITIONS))

    def send(self, running: StreamsApplication, portions: list[tuple[str, list[Record]]]) -> None:
        for role, records in portions:
            self.sent[role].extend(records)
        self.feed(portions)
        for case in self.kinds.cases:
            if case.is_global and case.source and case.query and not case.query.headers:
                expected = table(self.sent[case.source], timestamped=case.query.timestamped)
                assert eventually(partial(running.query_rows, case.store, None), expected) == expected
                assert expected

    def offsets(self) -> dict[str, dict[bytes, bytes]]:
        """Offsets and status of every global store. Since 4.4 there is a position, too, of which no read depends."""
        found = directory.read_application(self.directory)
        return {
            store: {key: value for key, value in families["offsets"] if key != b"position"}
            for (task, store), families in found.items()
            if task == "global"
        }


@each_guarantee
def test_global_tables_are_rebuilt_from_all_partitions_and_nothing_is_restored(
    broker: Broker, streams_jvm: StreamsJvm, application_id: str, state_dir: Path, guarantee: str
) -> None:
    world = World(broker, streams_jvm, application_id, state_dir, guarantee, GLOBALS)
    with world.application() as running:
        world.feed_all(running)
        before = world.answers(running)
    rows, offsets = world.rows(), world.offsets()
    world.lose()

    report = world.restore()

    assert world.rows() == rows
    assert world.offsets() == offsets
    assert set(offsets) == {"global-table", "global-plain"}
    reported = {one.store: one for one in report.stores}
    assert reported["global-table"].records == len(world.sent[REFERENCE])
    with world.application() as running:
        assert restored(running) == {}
        assert world.answers(running) == before
        world.send(running, [(role, [Record(b"0new", b"x", 0, world.base)]) for role in (EVENTS, REFERENCE, PRICES)])


@pytest.mark.full
@pytest.mark.parametrize("guarantee", [EXACTLY_ONCE, AT_LEAST_ONCE])
def test_a_global_table_of_an_empty_topic_is_opened_again_and_filled(
    broker: Broker, streams_jvm: StreamsJvm, application_id: str, state_dir: Path, guarantee: str
) -> None:
    world = World(broker, streams_jvm, application_id, state_dir, guarantee, GLOBALS)
    with world.application():
        pass
    world.lose()
    world.restore()
    with world.application() as running:
        assert restored(running) == {}
        world.feed_all(running)
        before = world.answers(running)
    with world.application() as running:
        assert restored(running) == {}
        assert world.answers(running) == before


@pytest.mark.full
def test_a_global_table_with_headers_is_rebuilt_as_kafka_streams_restores_it(
    broker: Broker, streams_jvm: StreamsJvm, application_id: str, state_dir: Path
) -> None:
    world = World(broker, streams_jvm, application_id, state_dir, "exactly_once_v2", GLOBAL_HEADERS)
    # All is there before the first start: Kafka Streams 4.3.1 keeps headers in what it restores, not in what it reads
    # from then on (KTableSource puts new RecordHeaders).
    for role, records in GLOBAL_HEADERS.feed(world.base, PARTITIONS):
        topics.produce(world.servers, world.inputs[role], records)
    with world.application() as running:
        world.wait({EVENTS})
        before = world.answers(running)
    assert any(b"trace" in value for _, value, _ in before["global-table", None])
    rows = world.rows()
    world.lose()
    world.restore()
    assert world.rows() == rows
    with world.application() as running:
        assert restored(running) == {}
        assert world.answers(running) == before


@pytest.mark.full
@pytest.mark.parametrize("guarantee", [EXACTLY_ONCE, AT_LEAST_ONCE])
def test_a_global_store_with_a_processor_is_refused_if_named_and_else_restored_by_kafka_streams(
    broker: Broker, streams_jvm: StreamsJvm, application_id: str, state_dir: Path, guarantee: str
) -> None:
    world = World(broker, streams_jvm, application_id, state_dir, guarantee, PROCESSED)
    with world.application() as running:
        world.feed_all(running)
        keys = [key for key, _, _ in table(world.sent[PRICES], timestamped=True)]
        assert eventually(lambda: [row[0] for row in running.query_rows("global-processed", None)], keys) == keys
        before = world.answers(running)
    world.lose()

    with pytest.raises(Invalid, match="global-processed") as refused:
        world.restore(stores=("global-processed",))
    assert all(word in str(refused.value) for word in (world.inputs[PRICES], "headers-key-value"))
    assert left_behind(world.directory) == []

    report = world.restore()
    assert {one.store for one in report.stores} == {"global-table", "timestamped-key-value"}
    with world.application() as running:
        assert set(restored(running)) == {"global-processed"}
        assert world.answers(running) == before
