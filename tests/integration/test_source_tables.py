"""Tables whose source topic is their changelog: what the application has not processed yet is not in the store."""

from __future__ import annotations

from pathlib import Path

import pytest

from statecore.errors import NotFound
from statecore.jobs.engine.in_process import InProcessEngine
from tests.harness import topics
from tests.harness.broker import Broker
from tests.harness.case_selection import one_of
from tests.harness.feeds import SOURCE
from tests.harness.kinds import SOURCES
from tests.harness.raising import raises
from tests.harness.rebuilding import PARTITIONS, KindsWorld, left_behind, restored, table
from tests.harness.streams import StreamsJvm
from tests.harness.topics import Record

pytestmark = pytest.mark.integration

GUARANTEES = pytest.mark.parametrize("guarantee", one_of(["at_least_once", "exactly_once_v2"]))


@GUARANTEES
def test_unprocessed_records_stay_input_of_the_application(
    broker: Broker, streams_jvm: StreamsJvm, application_id: str, state_dir: Path, guarantee: str
) -> None:
    world = KindsWorld(broker, streams_jvm, application_id, state_dir, guarantee, SOURCES)
    portions = SOURCES.feed(world.base, PARTITIONS)
    with world.application() as running:
        world.feed(portions)
    rows = world.rows()
    # An update, a delete and a new key that the application will only see when it is back.
    late = [Record(b"a", b"late", 0), Record(b"ab", None, 0), Record(b"new", b"late", 1)]
    late = [Record(one.key, one.value, one.partition, world.base) for one in late]
    topics.produce(world.servers, world.inputs[SOURCE], late)
    world.lose()

    report = world.restore(engine=InProcessEngine())

    assert world.rows() == rows
    sent = [one for _, records in portions for one in records]
    assert report.totals["records"] == len(sent)
    with world.application() as running:
        assert restored(running) == {}
        world.wait({SOURCE})
        for p in range(PARTITIONS):
            expected = table((one for one in [*sent, *late] if one.partition == p), timestamped=True)
            assert running.query_rows("source-table", p) == expected


@GUARANTEES
def test_without_a_committed_offset_the_progress_of_a_source_table_is_unknown(
    broker: Broker, streams_jvm: StreamsJvm, application_id: str, state_dir: Path, guarantee: str
) -> None:
    world = KindsWorld(broker, streams_jvm, application_id, state_dir, guarantee, SOURCES)
    with world.application():
        world.feed(SOURCES.feed(world.base, PARTITIONS))
    world.lose()
    topics.forget_group(world.servers, application_id)
    with raises(NotFound, "committed-offset-missing", group=application_id) as refused:
        world.restore(engine=InProcessEngine())
    assert {one.rpartition("-")[0] for one in refused.value.context["partitions"]} == {world.inputs[SOURCE]}
    assert left_behind(world.directory) == []
