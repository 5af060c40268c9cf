"""Kafka Streams started over restored versioned stores: it must start, whatever the history was, and answer right."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from statecore.images.digest import EMPTY
from statecore.spark.session import spark_context
from tests.harness.broker import Broker
from tests.harness.feeds import EVENTS, MINUTE
from tests.harness.rebuilding import KindsWorld, restored
from tests.harness.streams import StreamsJvm
from tests.harness.topics import Record
from tests.harness.versions import Versioned, VersionedApplication, versioned_application

pytestmark = [
    pytest.mark.integration,
    # PySpark leaves its gateway's sockets and pipe to the end of the process.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

GUARANTEES = ("exactly_once_v2", "at_least_once")
every_guarantee = pytest.mark.parametrize("guarantee", GUARANTEES)

TABLE = {"table": Versioned(10 * MINUTE)}
DELETED_TWICE = [(None, 6_000), (None, 60_000), ("a", 113_000), ("b", 162_000)]
"""Values of a key and their times (ms after a full minute). Replayed over its own rows it makes Kafka Streams throw:
the put at 113 s finds the segment of the second delete, which it has just registered, but not that of the first."""


@pytest.fixture(scope="module", autouse=True)
def spark() -> Iterator[None]:
    """One Spark context for all tests here: starting one takes longer than most of them."""
    with spark_context("tests", "local[2]"):
        yield


def world_of(
    broker: Broker, jvm: StreamsJvm, state_dir: Path, guarantee: str, kinds: VersionedApplication, partitions: int = 1
) -> KindsWorld:
    application_id = f"versioned-started-{guarantee.replace('_', '-')}-{uuid.uuid4().hex[:8]}"
    return KindsWorld(broker, jvm, application_id, state_dir, guarantee, kinds, partitions)


def history(world: KindsWorld, versions: list[tuple[str | None, int]]) -> list[Record]:
    return [Record(b"key", value and value.encode(), 0, world.base + at) for value, at in versions]


@every_guarantee
def test_an_application_starts_over_a_history_that_cannot_be_replayed_over_its_own_rows(
    broker: Broker, streams_jvm: StreamsJvm, tmp_path: Path, guarantee: str
) -> None:
    world = world_of(broker, streams_jvm, tmp_path, guarantee, versioned_application(TABLE, (b"key",)))
    with world.application() as running:
        world.feed([(EVENTS, history(world, DELETED_TWICE))])
        before = world.answers(running, 162_000)
    assert len(before["table", 0]) > 3
    world.lose()
    report = world.restore()
    with world.application() as running:
        assert restored(running) == {"table": 4}  # and nothing of the task's other store
        assert world.answers(running, 162_000) == before
    (store,) = [one for one in report.stores if one.store == "table"]
    assert store.left_to_restore
    assert (store.rows, store.records, store.committed_offset, store.digest) == (0, 0, -4, EMPTY)
