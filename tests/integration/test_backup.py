"""Real Kafka Streams starts from the snapshot of a directory that another instance wrote, and restores nothing.

The repository lies in a real S3 server.
"""

from __future__ import annotations

import gc
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from statecore.errors import Invalid
from statecore.jobs.backup.report import BackupOutcome, BackupReport
from statecore.jobs.backup.request import BackupRequest
from statecore.jobs.backup.run import run_backup
from statecore.jobs.engine.in_process import InProcessEngine
from statecore.jobs.fetch.request import FetchRequest
from statecore.jobs.fetch.run import run_fetch
from statecore.jobs.fields.catalog import VersionedStart
from statecore.jobs.restore.request import RestoreRequest
from statecore.jobs.restore.run import run_restore
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.manifest import StoreSnapshot
from statecore.repository.repository import create_repository
from tests.harness import directory, topics
from tests.harness.broker import Broker
from tests.harness.feeds import EVENTS, MINUTE
from tests.harness.flushing import flush
from tests.harness.kinds import PLAIN, KindsApplication
from tests.harness.raising import raises
from tests.harness.rebuilding import PARTITIONS, KindsWorld, restored
from tests.harness.s3_server import S3Server
from tests.harness.shop_application import Shop
from tests.harness.streams import StreamsJvm, leave_group
from tests.harness.tables import World
from tests.harness.topics import Record

pytestmark = pytest.mark.integration


@pytest.fixture
def url(server: S3Server) -> str:
    made = server.bucket("states").below(uuid.uuid4().hex).url
    create_repository(made)
    return made


def snapshot(world: KindsWorld | World, url: str, **changes: Any) -> BackupReport:
    return run_backup(BackupRequest(spec=world.spec(), state_dir=str(world.state_dir), repository=url, **changes))


def fetch(url: str, application_id: str, state_dir: Path) -> None:
    """The newest snapshot, versioned stores with their rows."""
    run_fetch(
        FetchRequest(
            repository=url, application_id=application_id, state_dir=str(state_dir), versioned=VersionedStart.LATEST
        )
    )


@pytest.fixture
def made(broker: Broker, streams_jvm: StreamsJvm, application_id: str, tmp_path: Path) -> Callable[[str], World]:
    return lambda guarantee: World(broker, streams_jvm, application_id, tmp_path / "one", guarantee)


def feed(world: World) -> None:
    """Feeds a running application, and waits until it has consumed everything."""
    world.feed()
    topics.wait_until_consumed(world.servers, world.application_id, [world.input])


def test_what_a_running_application_has_flushed_is_taken_and_another_instance_restores_the_tail_only(
    made: Callable[[str], World], tmp_path: Path, url: str
) -> None:
    world = made("at_least_once")
    with world.application() as running:
        feed(world)
        assert len(flush(running)) == 4
        feed(world)
        files = directory.files(world.state_dir / world.application_id)
        report = snapshot(world, url)
        assert report.running
        assert report.outcome is BackupOutcome.PUBLISHED
        assert directory.files(world.state_dir / world.application_id) == files
        assert len(report.notes) >= 4, "stores that were not closed"
        taken = {(store.store, int(store.task[-1])): store for store in report.stores}
        assert len(taken) == 4
        assert all(store.written and store.tail > 0 and store.bytes > 0 for store in taken.values())
        assert snapshot(world, url).outcome is BackupOutcome.UNCHANGED, "nothing was flushed since"
        feed(world)
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


def refused(world: World, url: str) -> list[str]:
    """The codes of all reasons why the directory is refused."""
    with raises(Invalid, "backup-refused") as caught:
        snapshot(world, url)
    return [problem["code"] for problem in caught.value.context["problems"]]


def test_a_running_application_is_refused_under_exactly_once_where_it_has_flushed(
    made: Callable[[str], World], url: str
) -> None:
    world = made("exactly_once_v2")
    with world.application() as running:
        assert refused(world, url) == ["store-not-flushed"] * 4
        feed(world)
        flush(running)
        assert refused(world, url) == ["uncommitted-rows"] * 4
        assert ApplicationRepository.open(url, world.application_id).read_head() is None
    assert snapshot(world, url).outcome is BackupOutcome.PUBLISHED


@pytest.mark.full
def test_a_running_application_that_has_flushed_nothing_is_taken_under_exactly_once_as_it_was_closed(
    made: Callable[[str], World], tmp_path: Path, url: str
) -> None:
    world = made("exactly_once_v2")
    world.feed()
    world.live()
    world.feed()
    with world.application() as running:
        topics.wait_until_consumed(world.servers, world.application_id, [world.input])
        after = world.answers(running)
        report = snapshot(world, url)
        assert (report.running, report.outcome) == (True, BackupOutcome.PUBLISHED)
        assert all(not store.written and store.tail > 0 for store in report.stores)
    world.lose()
    other = world.at(tmp_path / "other")
    fetch(url, world.application_id, other.state_dir)
    answers, tail = other.reopen()
    assert (answers, tail > 0) == (after, True)


@pytest.fixture
def shop(broker: Broker, tmp_path: Path, url: str) -> Shop:
    """One with a state directory."""
    shop = Shop(broker.bootstrap_servers, tmp_path, url=url, has_global=False)
    shop.write()
    run_restore(RestoreRequest(spec=shop.spec, state_dir=str(tmp_path / "state")), InProcessEngine())
    return shop


def snapshot_of(shop: Shop, **changes: Any) -> BackupReport:
    state_dir = str(shop.scratch / "state")
    return run_backup(BackupRequest(spec=shop.spec, state_dir=state_dir, repository=shop.url, **changes))


def test_offsets_of_a_recreated_topic_are_refused(shop: Shop) -> None:
    topics.delete(shop.servers, shop.changelog())
    topics.create(shop.servers, shop.changelog(), shop.partitions)
    with raises(Invalid, "backup-refused") as caught:
        snapshot_of(shop)
    assert {(one["code"], one["task"], one["store"]) for one in caught.value.context["problems"]} == {
        ("offset-beyond-log-end", task, "plain") for task in ("0_0", "0_1")
    }
    report = snapshot_of(shop, offline=True)
    assert report.outcome is BackupOutcome.PUBLISHED
    assert {store.tail for store in report.stores} == {-1}


def test_the_manifest_records_what_the_brokers_answer_and_is_complete(shop: Shop) -> None:
    before = int(time.time() * 1000)
    snapshot_of(shop)
    entry = shop.app_repository.head().newest
    assert entry is not None
    manifest = shop.app_repository.manifest(entry).value
    assert (manifest.origin, [reference.task for reference in manifest.task_manifests]) == ("backup", ["0_0", "0_1"])
    for read in shop.app_repository.task_manifests(manifest.task_manifests).values():
        for store in read.manifest.stores:
            (end,) = store.changelogs
            assert (end.log_start, end.end) == (0, end.log_end)
            assert len(end.topic_id) == 32
            assert end.leader_epoch >= 0
            assert store.read_at_ms is not None
            assert before <= store.read_at_ms <= time.time() * 1000


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
            assert (end.log_end - end.end, store.read_at_ms) == (3, None)
        else:
            assert end.log_end - end.end == 1, "a commit marker"
            assert store.read_at_ms is not None
            assert before <= store.read_at_ms <= time.time() * 1000


def stored(url: str, application_id: str) -> list[StoreSnapshot]:
    """The stores of the newest snapshot."""
    app_repository = ApplicationRepository.open(url, application_id)
    entry = app_repository.head().newest
    assert entry is not None
    return [
        store
        for read in app_repository.task_manifests(app_repository.manifest(entry).value.task_manifests).values()
        for store in read.manifest.stores
    ]


WINDOWS = KindsApplication(
    "windows",
    tuple(case for case in PLAIN.cases if case.store == "timestamped-window"),
    lambda base, partitions: [(EVENTS, in_window(base, partitions, b"first"))],
)
"""A windowed store and nothing else."""


def in_window(at: int, partitions: int, word: bytes) -> list[Record]:
    """Records of one window."""
    return [
        Record(b"%s-%d" % (word[:1], number), word, partition, at)
        for number in range(20)
        for partition in range(partitions)
    ]


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
        world.feed([(EVENTS, in_window(world.base + 5 * MINUTE, PARTITIONS, b"newer"))])
        before = world.answers(running, 5 * MINUTE)
        newest = max(path.name for path in (world.directory / "0_0" / "timestamped-window").iterdir())
        assert flush(running, lambda _, __, name: name == newest) == [newest] * PARTITIONS
        running.kill()
    del running, jvm
    world.jvm = streams_jvm
    gc.collect()  # what py4j finalizes while something is compiled upsets Python 3.11 (gh-106905)

    report = snapshot(world, url)
    assert [store.written for store in report.stores] == [True] * PARTITIONS, "lowered to the smallest offset"
    leave_group(streams_jvm, world.servers, application_id)
    with world.application() as running:
        assert world.answers(running, 5 * MINUTE) != before, "the defect that this is about"
    world.lose()
    world.state_dir = tmp_path / "two"
    fetch(url, application_id, world.state_dir)
    with world.application() as running:
        assert sum(restored(running).values()) > 0
        assert world.answers(running, 5 * MINUTE) == before
