"""Kafka Streams started over restored versioned stores: it must start, whatever the history was, and answer right.

Two applications with the same random input tell it. One keeps its own directory, the other loses its directory and gets
it back. What Kafka Streams then does over our rows it must do over its own, its exceptions included.
"""

from __future__ import annotations

import shutil
import time
import uuid
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from statecore.images.digest import EMPTY
from statecore.jobs.planning.plan import VersionedStart
from tests.harness import topics
from tests.harness.broker import Broker
from tests.harness.case_selection import one_of
from tests.harness.feeds import EVENTS, MINUTE
from tests.harness.on_spark import SPARK_LEFTOVERS
from tests.harness.queries import Row
from tests.harness.rebuilding import Answers, KindsWorld, Rows, restored
from tests.harness.streams import StreamsFailed, StreamsJvm
from tests.harness.topics import Record
from tests.harness.versions import (
    PROCESSED,
    Versioned,
    VersionedApplication,
    histories,
    keys_of,
    versioned_application,
    versions_in,
)

pytestmark = [pytest.mark.integration, *SPARK_LEFTOVERS, pytest.mark.usefixtures("local_spark")]

GUARANTEES = ("exactly_once_v2", "at_least_once")
every_guarantee = pytest.mark.parametrize("guarantee", one_of([*GUARANTEES]))

TABLE = {"table": Versioned(10 * MINUTE)}
DELETED_TWICE = [(None, 6_000), (None, 60_000), ("a", 113_000), ("b", 162_000)]
"""Values of a key and their times (ms after a full minute). Replayed over its own rows it makes Kafka Streams throw:
the put at 113 s finds the segment of the second delete, which it has just registered, but not that of the first."""

LATE_THEN, LATE_MORE = [(None, 164_000), ("a", 162_000)], [(None, 126_000), ("b", 10_000)]
"""The same, of a key that is written, and written again after a clean start. Kafka Streams throws at the last one, also
over its own rows: it does not find what came before, and the delete it puts there makes a row that ends too early."""

STORES = {
    "table": Versioned(10 * MINUTE),
    "short": Versioned(MINUTE),
    "fine": Versioned(10 * MINUTE, 1000),
    PROCESSED: Versioned(5 * MINUTE, 30 * MINUTE),
}
KEYS = keys_of(12)
PARTITIONS = 2
HOUR = 60 * MINUTE
FIRST, THEN, MORE = (0, 30 * MINUTE, 300), (30 * MINUTE, 6 * MINUTE, 60), (36 * MINUTE, 12 * MINUTE, 150)
"""Portions of the histories: where they begin and how long they last (ms), and their records in a partition."""

_SKIP = "org.apache.kafka.streams.errors.LogAndContinueProcessingExceptionHandler"
PROPERTIES = {
    "processing.exception.handler": _SKIP,  # what a store throws at is skipped, and so the others are tried too
    "restore.consumer.max.poll.records": "100000",  # what is restored depends on how records fall into polls
}


def world_of(
    broker: Broker, jvm: StreamsJvm, state_dir: Path, guarantee: str, kinds: VersionedApplication, partitions: int = 1
) -> KindsWorld:
    application_id = f"versioned-started-{guarantee.replace('_', '-')}-{uuid.uuid4().hex[:8]}"
    world = KindsWorld(broker, jvm, application_id, state_dir, guarantee, kinds, partitions)
    world.base = (
        int(time.time() * 1000) // HOUR - 3
    ) * HOUR  # which records share a segment does not depend on the day
    return world


@pytest.mark.full
@every_guarantee
def test_an_application_starts_over_a_history_that_cannot_be_replayed_over_its_own_rows(
    broker: Broker, streams_jvm: StreamsJvm, tmp_path: Path, guarantee: str
) -> None:
    world = world_of(broker, streams_jvm, tmp_path, guarantee, versioned_application(TABLE, (b"key",)))
    with world.application() as running:
        world.feed([(EVENTS, at(world.base, DELETED_TWICE))])
        before = world.answers(running, 162_000)
    assert len(before["table", 0]) > 3
    world.lose()
    report = world.restore()
    with world.application() as running:
        assert restored(running) == {"table": 4}  # and nothing of the task's other store
        assert world.answers(running, 162_000) == before
    (store,) = [one for one in report.stores if one.store == "table"]
    assert store.restored_by_kafka_streams
    assert (store.rows, store.records, store.committed_offset, store.digest) == (0, 0, -4, EMPTY)


Changelogs = dict[tuple[str, int], list[Record]]


@dataclass(frozen=True)
class Told:
    """What one application told when it went on after a clean start that restored nothing, and in a second life.

    Attributes:
        rows: its rows before.
        restored: records that it restored.
        answers: after more input, some of it late.
        rows_after: its rows then.
        changelogs: all that its versioned stores have logged.
        tail: its rows when it was given its rows of before and restored that input from the changelogs; ``None`` when
            it failed at that.
    """

    rows: Rows
    restored: dict[str, int]
    answers: Answers
    rows_after: Rows
    changelogs: Changelogs
    tail: Rows | None


@dataclass(frozen=True)
class Twins:
    """Two applications with the same input.

    Attributes:
        records: the first portion of it, and the second.
        base: time of its begin (ms).
        before: answers of the one that lost nothing, after the first portion and after the second.
        restored: records that Kafka Streams restored when it was started over what the default (``history``) placed.
        after: answers then, and when it had gone on with the second portion.
        own: what was told over its own directory, closed and started again, by the one that lost nothing.
        ours: the same over a rebuild by ``latest`` of the one that had restored itself before.
    """

    records: tuple[list[Record], list[Record]]
    base: int
    before: tuple[Answers, Answers]
    restored: dict[str, int]
    after: tuple[Answers, Answers]
    own: Told
    ours: Told


def live(broker: Broker, jvm: StreamsJvm, directory: Path, guarantee: str, seed: int) -> Twins:
    kinds = replace(versioned_application(STORES, KEYS), properties=PROPERTIES)
    own, ours = (world_of(broker, jvm, directory / name, guarantee, kinds, PARTITIONS) for name in ("own", "ours"))
    ours.base = own.base
    first, then, more = (portion(seed, own.base, of) for of in (FIRST, THEN, MORE))
    then, more = then + at(own.base + THEN[0], LATE_THEN), at(own.base + THEN[0], LATE_MORE) + more
    with own.application() as running:
        own.feed([(EVENTS, first)])
        before = own.answers(running, THEN[0])
        own.feed([(EVENTS, then)])
        before_then = own.answers(running, MORE[0])
    with ours.application():
        ours.feed([(EVENTS, first)])
    ours.lose()
    ours.restore()
    with ours.application() as running:
        restored_itself = restored(running)
        after = ours.answers(running, THEN[0])
        ours.feed([(EVENTS, then)])
        after_then = ours.answers(running, MORE[0])
    ours.lose()
    ours.restore(versioned=VersionedStart.LATEST)
    return Twins(
        (first, then),
        own.base,
        (before, before_then),
        restored_itself,
        (after, after_then),
        went_on(own, more),
        went_on(ours, more),
    )


def at(base: int, versions: list[tuple[str | None, int]]) -> list[Record]:
    return [Record(b"key", value and value.encode(), 0, base + moment) for value, moment in versions]


def portion(seed: int, base: int, of: tuple[int, int, int]) -> list[Record]:
    start, span, count = of
    return [one for p in range(PARTITIONS) for one in histories(seed, p, KEYS, base + start, span, count)]


def went_on(world: KindsWorld, more: list[Record]) -> Told:
    rows, kept = world.rows(), world.state_dir / "kept"
    shutil.copytree(world.directory, kept)
    with world.application() as running:
        nothing = restored(running)
        world.feed([(EVENTS, more)])
        answers = world.answers(running, MORE[0] + MORE[1])
    rows_after = world.rows()
    changelogs = {
        (store, p): [
            replace(one, offset=None)
            for one in topics.read(world.servers, f"{world.application_id}-{store}-changelog", p)
        ]
        for store in STORES
        for p in range(PARTITIONS)
    }
    world.lose()
    shutil.copytree(kept, world.directory)
    return Told(rows, nothing, answers, rows_after, changelogs, restored_over(world))


def restored_over(world: KindsWorld) -> Rows | None:
    running = world.application()
    try:
        running.start()
        assert restored(running)
    except StreamsFailed:
        return None
    finally:
        running.close()
    return world.rows()


@pytest.fixture(scope="module", params=one_of([*GUARANTEES]))
def twins(
    broker: Broker, streams_jvm: StreamsJvm, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Twins:
    return live(broker, streams_jvm, tmp_path_factory.mktemp("twins"), request.param, seed=1)


def test_kafka_streams_restores_only_the_stores_without_an_offset(twins: Twins) -> None:
    check_restored(twins)


def test_history_is_answered_as_by_a_store_that_was_never_lost(twins: Twins) -> None:
    check_history(twins)


def test_a_rebuild_is_what_an_application_has_that_lost_and_restored_nothing(twins: Twins) -> None:
    check_rebuild(twins)


def test_kafka_streams_continues_a_rebuilt_versioned_store_as_its_own(twins: Twins) -> None:
    check_going_on(twins)


def test_the_histories_try_what_stops_kafka_streams_after_a_clean_start(twins: Twins) -> None:
    """The default handler of such an exception shuts the application down, as docs/restore.md says."""
    fed = len(STORES) * (PARTITIONS * (MORE[2] + 1) + len(LATE_MORE))
    logged = sum(map(len, twins.own.changelogs.values())) - len(STORES) * sum(map(len, twins.records))
    assert logged < fed


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 22))
@every_guarantee
def test_many_histories(broker: Broker, streams_jvm: StreamsJvm, tmp_path: Path, guarantee: str, seed: int) -> None:
    found = live(broker, streams_jvm, tmp_path, guarantee, seed)
    check_restored(found)
    check_history(found)
    check_rebuild(found)
    check_going_on(found)


def check_restored(twins: Twins) -> None:
    assert twins.restored == dict.fromkeys(STORES, PARTITIONS * (FIRST[2] + 1))


def check_history(twins: Twins) -> None:
    """At once, and when the application has gone on from there."""
    records: list[Record] = []
    for part, until, before, after in zip(twins.records, (THEN[0], MORE[0]), twins.before, twins.after, strict=True):
        records += part
        for store, partition in before:
            old, new = before[store, partition], after[store, partition]
            if store not in STORES:
                assert new == old
                continue
            assert versions_in(old)
            since = twins.base + until - STORES[store].retention
            check_brought_back(old, new, [one for one in records if one.partition == partition], since)


def check_brought_back(old: list[Row], new: list[Row], records: list[Record], since: int) -> None:
    """Kafka Streams' own restore forgets deletes older than the retention, and differs in nothing else."""
    assert set(old) <= set(new)
    extra = versions_in(new) - versions_in(old)
    for key, valid_from, valid_to, _ in extra:
        assert valid_from < since
        assert valid_to is None or valid_to > since
        assert any(
            one.key == key and one.value is None and valid_from < (one.timestamp or 0) <= since for one in records
        )
    assert {(value, at) for _, value, at in set(new) - set(old)} <= {(value, at) for _, at, _, value in extra}


def check_rebuild(twins: Twins) -> None:
    assert twins.ours.rows == twins.own.rows


def check_going_on(twins: Twins) -> None:
    own, ours = twins.own, twins.ours
    assert own.restored == ours.restored == {}
    assert ours.changelogs == own.changelogs
    assert ours.answers == own.answers
    assert ours.rows_after == own.rows_after
    assert ours.tail == own.tail
