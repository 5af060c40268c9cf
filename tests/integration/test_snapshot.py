"""Real Kafka Streams starts from the snapshot of a directory that another instance wrote, and restores nothing.

The repository lies in a real S3 server.
"""

from __future__ import annotations

import gc
import os
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from statecore.errors import Invalid
from statecore.jobs.fetch import run_fetch
from statecore.jobs.fetch_request import FetchRequest
from statecore.jobs.snapshot import run_snapshot
from statecore.jobs.snapshot_report import Outcome, SnapshotReport
from statecore.jobs.snapshot_request import SnapshotRequest
from statecore.jobs.versioned_start import VersionedStart
from statecore.repository.manifest import StoreSnapshot
from statecore.repository.repository import make_repository
from statecore.repository.shelf import Shelf
from tests.harness import directory, s3_server, topics
from tests.harness.broker import Broker
from tests.harness.feeds import EVENTS, MINUTE
from tests.harness.kinds import PLAIN, KindsApplication
from tests.harness.rebuilding import PARTITIONS, Answers, KindsWorld, restored
from tests.harness.streams import StreamsJvm
from tests.harness.tables import World
from tests.harness.topics import Record

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a bucket; credentials are in the environment, as on any machine."""
    before = dict(os.environ)
    os.environ.update(AWS_ACCESS_KEY_ID=s3_server.ACCESS, AWS_SECRET_ACCESS_KEY=s3_server.SECRET)
    try:
        with s3_server.serving() as server:
            yield server.bucket("states").url
    finally:
        os.environ.clear()
        os.environ.update(before)


@pytest.fixture
def url(s3: str) -> str:
    bucket, _, query = s3.partition("?")
    made = f"{bucket.rstrip('/')}/{uuid.uuid4().hex}?{query}"
    make_repository(made)
    return made


def snapshot(world: KindsWorld | World, url: str, **changes: Any) -> SnapshotReport:
    spec = world.spec() if isinstance(world, KindsWorld) else world.request().spec
    return run_snapshot(SnapshotRequest(spec=spec, state_dir=str(world.state_dir), repository=url, **changes))


def fetch(url: str, application_id: str, state_dir: Path) -> None:
    """The newest snapshot, versioned stores with their rows."""
    run_fetch(
        FetchRequest(
            repository=url, application_id=application_id, state_dir=str(state_dir), versioned=VersionedStart.LATEST
        )
    )


BIG = 100_000
"""Bytes of a value: 16 MB of a store's rows are flushed."""


@pytest.fixture
def big(broker: Broker, streams_jvm: StreamsJvm, application_id: str, tmp_path: Path) -> Callable[[str], World]:
    return lambda guarantee: World(broker, streams_jvm, application_id, tmp_path / "one", guarantee)


def feed_big(world: World, count: int, first: int = 0) -> None:
    """Values of which 16 MB are flushed, deletes among them."""
    records = [
        Record(b"key-%d" % (number % 300), None if number % 11 == 0 else os.urandom(BIG), number % 2)
        for number in range(first, first + count)
    ]
    topics.produce(world.servers, world.input, records)
    topics.wait_until_consumed(world.servers, world.application_id, [world.input])


def files_at_rest(world: World) -> dict[str, int]:
    """The files of an application that has nothing to do, once its flushes have ended."""
    files: dict[str, int] = {}
    while files != (files := directory.files(world.state_dir / world.application_id)):
        time.sleep(1)
    return files


def test_what_a_running_application_has_flushed_is_taken_and_another_instance_restores_the_tail_only(
    big: Callable[[str], World], tmp_path: Path, url: str
) -> None:
    world = big("at_least_once")
    with world.application() as running:
        feed_big(world, 450)
        files = files_at_rest(world)
        report = snapshot(world, url)
        assert report.running
        assert report.outcome is Outcome.PUBLISHED
        assert directory.files(world.state_dir / world.application_id) == files
        assert any("was not closed: it is taken as it was flushed last" in note for note in report.notes)
        taken = {(store.store, int(store.task[-1])): store for store in report.stores}
        assert len(taken) == 4
        assert all(store.written and store.tail > 0 and store.bytes > 10 * BIG for store in taken.values())
        assert snapshot(world, url).outcome is Outcome.UNCHANGED, "nothing was flushed since"
        feed_big(world, 100, first=450)
        before = world.answers(running)

    tails = {
        (store, partition): topics.end_offset(world.servers, f"{world.application_id}-{store}-changelog", partition)
        - 1
        - next(iter(one.offsets.values()))
        for (store, partition), one in taken.items()
    }
    world.lose()
    other = world.at(tmp_path / "two")
    fetch(url, world.application_id, other.state_dir)
    with other.application() as running:
        assert running.restored_records() == tails
        assert other.answers(running) == before


def test_a_running_application_is_refused_under_exactly_once_where_it_has_flushed(
    big: Callable[[str], World], tmp_path: Path, url: str
) -> None:
    world = big("exactly_once_v2")
    with world.application() as running:
        with pytest.raises(Invalid, match="nothing of it is on the disk"):
            snapshot(world, url)
        feed_big(world, 450)
        with pytest.raises(Invalid, match="may be of a transaction that is not committed") as caught:
            snapshot(world, url)
        assert len(caught.value.context["problems"]) == 4
        assert Shelf.at(url, world.application_id).read_head() is None
        before = world.answers(running)
    snapshot(world, url)
    world.lose()
    other = world.at(tmp_path / "two")
    fetch(url, world.application_id, other.state_dir)
    assert other.reopen() == (before, 0)
    other.feed()
    with other.application() as running:
        topics.wait_until_consumed(world.servers, world.application_id, [world.input])
        after = other.answers(running)
        report = snapshot(other, url)
        assert (report.running, report.outcome) == (True, Outcome.PUBLISHED), (
            "as it was closed last: nothing is flushed"
        )
        assert all(not store.written and store.tail > 0 for store in report.stores)
    other.lose()
    third = other.at(tmp_path / "three")
    fetch(url, world.application_id, third.state_dir)
    answers, tail = third.reopen()
    assert (answers, tail > 0) == (after, True)


def test_offsets_of_a_topic_that_was_made_anew_are_refused(
    broker: Broker, streams_jvm: StreamsJvm, application_id: str, state_dir: Path, url: str
) -> None:
    world = World(broker, streams_jvm, application_id, state_dir, "at_least_once")
    world.feed()
    world.live()
    changelog = f"{application_id}-plain-changelog"
    end = topics.end_offset(world.servers, changelog, 0)
    topics.delete(world.servers, changelog)
    topics.create(world.servers, changelog, 2)
    with pytest.raises(Invalid, match=rf"says offset {end - 1} of {changelog}-0, and the log ends before 0"):
        snapshot(world, url)
    report = snapshot(world, url, offline=True)
    assert report.outcome is Outcome.PUBLISHED
    assert {store.tail for store in report.stores} == {-1}


def test_the_manifest_has_what_the_brokers_say_and_is_whole(
    broker: Broker, streams_jvm: StreamsJvm, application_id: str, state_dir: Path, url: str
) -> None:
    world = World(broker, streams_jvm, application_id, state_dir, "at_least_once")
    world.feed()
    world.live()
    before = int(time.time() * 1000)
    snapshot(world, url)
    shelf = Shelf.at(url, application_id)
    entry = shelf.head().newest
    assert entry is not None
    manifest = shelf.manifest(entry).value
    assert (manifest.origin, [part.task for part in manifest.parts]) == ("snapshot", ["0_0", "0_1"])
    for read in shelf.parts(manifest.parts).values():
        for store in read.part.stores:
            (end,) = store.changelogs
            assert (end.log_start, end.end) == (0, end.log_end)
            assert len(end.topic_id) == 32
            assert end.leader_epoch >= 0
            assert store.cut_ms is not None
            assert before <= store.cut_ms <= time.time() * 1000


def test_under_exactly_once_the_marker_behind_an_offset_is_no_record_and_what_comes_then_is(
    broker: Broker, streams_jvm: StreamsJvm, application_id: str, state_dir: Path, url: str
) -> None:
    world = World(broker, streams_jvm, application_id, state_dir, "exactly_once_v2")
    world.feed()
    world.live()
    grown = f"{application_id}-plain-changelog"
    topics.produce_committed(world.servers, grown, [Record(b"key", None, 1)])
    before = int(time.time() * 1000)
    snapshot(world, url)
    stores = {store.changelogs[0].topic_partition: store for store in stored(url, application_id)}
    assert len(stores) > 2
    for partition, store in stores.items():
        (end,) = store.changelogs
        if partition == (grown, 1):
            assert (end.log_end - end.end, store.cut_ms) == (3, None)
        else:
            assert end.log_end - end.end == 1, "a commit marker"
            assert store.cut_ms is not None
            assert before <= store.cut_ms <= time.time() * 1000


def stored(url: str, application_id: str) -> list[StoreSnapshot]:
    """The stores of the newest snapshot."""
    shelf = Shelf.at(url, application_id)
    entry = shelf.head().newest
    assert entry is not None
    return [store for read in shelf.parts(shelf.manifest(entry).value.parts).values() for store in read.part.stores]


WINDOWS = KindsApplication(
    "windows",
    tuple(case for case in PLAIN.cases if case.store == "timestamped-window"),
    lambda base, partitions: [(EVENTS, in_window(base, partitions, b"first"))],
)
"""A windowed store and nothing else."""


def in_window(at: int, partitions: int, word: bytes, count: int = 20, size: int = 0) -> list[Record]:
    """Records of one window."""
    return [
        Record(b"%s-%d" % (word[:1], number), word + b"." * size, partition, at)
        for number in range(count)
        for partition in range(partitions)
    ]


def short(answers: Answers) -> dict[tuple[str, int | None], list[tuple[Any, ...]]]:
    """Answers without most of large values."""
    return {key: [(row[0], row[1][:20], *row[2:]) for row in rows] for key, rows in answers.items()}


def test_a_windowed_store_that_was_killed_loses_nothing_where_kafka_streams_itself_does(
    broker: Broker, streams_jvm: StreamsJvm, application_id: str, tmp_path: Path, url: str
) -> None:
    """Late updates of an older segment are not on the disk, and the newer one, which has been flushed, says that they
    are: Kafka Streams takes its word."""
    with StreamsJvm(tmp_path / "killed.log") as jvm:
        world = KindsWorld(broker, jvm, application_id, tmp_path / "one", "at_least_once", WINDOWS)
        with world.application():
            world.feed(WINDOWS.feed(world.base, PARTITIONS))
        running = world.application().start()
        world.feed([(EVENTS, in_window(world.base + MINUTE // 2, PARTITIONS, b"final"))])
        world.feed([(EVENTS, in_window(world.base + 5 * MINUTE, PARTITIONS, b"big", 200, BIG))])
        files: dict[str, int] = {}
        while files != (files := directory.files(world.directory)):
            time.sleep(1)
        before = short(world.answers(running, 5 * MINUTE))
        running.kill()
    del running, jvm
    world.jvm = streams_jvm
    gc.collect()  # what py4j finalizes while something is compiled upsets Python 3.11 (gh-106905)

    report = snapshot(world, url)
    assert all("lowered to the smallest" in note for note in report.notes if "segments" in note)
    assert sum("lowered to the smallest" in note for note in report.notes) == PARTITIONS
    with world.application() as running:
        assert short(world.answers(running, 5 * MINUTE)) != before, "the defect that this is about"
    world.lose()
    world.state_dir = tmp_path / "two"
    fetch(url, application_id, world.state_dir)
    with world.application() as running:
        assert sum(restored(running).values()) > 0
        assert short(world.answers(running, 5 * MINUTE)) == before
