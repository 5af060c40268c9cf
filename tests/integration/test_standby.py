"""Standby tasks of a real application: they follow while the application writes, and Kafka Streams starts from them."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import uuid
from pathlib import Path
from threading import Event, Timer
from typing import Any

import pytest

from statecore.changelog.cluster import Cluster
from statecore.errors import Fenced, Invalid, NotFound
from statecore.faults import STANDBY_POINTS
from statecore.formats.topic_partition import TopicPartition
from statecore.jobs.checkpoint.request import CheckpointRequest
from statecore.jobs.checkpoint.run import run_checkpoint
from statecore.jobs.engine.in_process import InProcessEngine
from statecore.repository.repository import create_repository
from statecore.spec.model import ApplicationSpec
from statecore.spec.reader import parse_spec
from statecore.standby.report import StandbyReport
from statecore.standby.request import StandbyRequest
from statecore.standby.service import run_standby
from statecore.statedir.state_directory import StateDirectory
from statecore.tasks.changelog_ends import changelog_ends
from statecore.tasks.standby_task import RoundResult, StandbyTask
from statecore.tasks.task_stores import TaskStores, standby_stores, tasks_of
from tests.harness import topics
from tests.harness.broker import Broker
from tests.harness.command import statecore_here, statecore_killed
from tests.harness.damage_functions import set_status
from tests.harness.fed_application import eventually
from tests.harness.fleet import NEWEST, Fleet
from tests.harness.fleet_kinds import SMALL
from tests.harness.modes import each_guarantee
from tests.harness.shop_application import EXACTLY_ONCE, Found, Shop
from tests.harness.verify_image import verify_image

pytestmark = [pytest.mark.integration]


ALONE = {case.store for case in SMALL.cases if case.kind == "versioned-key-value" or case.is_global}
"""The stores on disk that are no business of a standby task: Kafka Streams restores them itself."""


def follow(cluster: Cluster, spec: ApplicationSpec, tasks: list[StandbyTask]) -> list[RoundResult]:
    """One round of all tasks, in which nothing goes wrong."""
    stores = [store.spec for task in tasks for store in task.stores.stores]
    epochs = {at: epoch for task in tasks for at, epoch in task.epochs().items()}
    ends = changelog_ends(cluster, spec, stores, epochs)
    rounds = [task.follow(ends) for task in tasks]
    assert not [(one.stale, one.failed) for one in rounds if one.stale or one.failed]
    assert not any(lag for task in tasks for lag in task.lag.values())
    return rounds


@each_guarantee
def test_kafka_streams_starts_from_a_standby_task_of_every_kind(fleet: Fleet, tmp_path: Path, guarantee: str) -> None:
    world = fleet.application(f"warm-{uuid.uuid4().hex[:8]}", tmp_path / "state", guarantee, SMALL)
    warm = tmp_path / "warm"
    directory = StateDirectory(warm, world.application_id)
    with world.on(NEWEST) as running:
        first, second, third = world.portions()
        world.feed(first)
        spec = parse_spec(world.spec())
        with Cluster(world.servers) as cluster, directory.lock():
            names = tasks_of(spec, dict.fromkeys(world.changelogs(), world.partitions))
            isolation = spec.processing_guarantee.isolation
            tasks = [StandbyTask(TaskStores(spec, directory, name), cluster, isolation) for name in names]
            for task in tasks:
                task.open()
            applied = [sum(one.records for one in follow(cluster, spec, tasks))]
            world.feed(second)
            applied.append(sum(one.records for one in follow(cluster, spec, tasks)))
            world.feed(third)
            before = world.answers(running)
            applied.append(sum(one.records for one in follow(cluster, spec, tasks)))
            assert all(applied)
            for task in tasks:
                task.close()
    world.state_dir = warm
    with world.on(NEWEST) as running:
        restored = world.restored(running)
        assert world.answers(running) == before
    assert restored.keys() == ALONE


def kept_until_nothing_is_left(request: StandbyRequest, stores: int) -> tuple[StandbyReport, str]:
    """A member of a fleet that ends when so many stores are at the ends of their changelogs; and what it said."""
    stop, said = Event(), list[str]()

    def told(now: StandbyReport) -> None:
        if [store.lag for task in now.tasks for store in task.stores] == [0] * stores:
            stop.set()

    deadline = Timer(240, stop.set)
    deadline.start()
    try:
        report = run_standby(request, stop, on_report=told, say=said.append)
    finally:
        deadline.cancel()
    assert [store.lag for task in report.tasks for store in task.stores] == [0] * stores, said
    return report, "\n".join(said)


@pytest.mark.full
def test_a_corrupt_copy_is_quarantined_at_a_start_and_rebuilt_from_a_snapshot(fleet: Fleet, tmp_path: Path) -> None:
    world = fleet.application(f"corrupt-{uuid.uuid4().hex[:8]}", tmp_path / "state", EXACTLY_ONCE, SMALL)
    warm, url, declared = tmp_path / "warm", (tmp_path / "repository").as_uri(), tmp_path / "stores.json"
    directory = StateDirectory(warm, world.application_id)
    create_repository(url)
    with world.on(NEWEST) as running:
        first, second, third = world.portions()
        world.feed(first)
        declared.write_text(json.dumps(world.spec()))
        spec = parse_spec(world.spec())
        names = tasks_of(spec, dict.fromkeys(world.changelogs(), world.partitions))
        stores = sum(len(standby_stores(spec, name)) for name in names)
        request = StandbyRequest(
            spec_path=str(declared), state_dir=str(warm), repository=url, group=f"{world.application_id}-warm",
            session_timeout=6_000, interval=200,
        )  # fmt: skip
        kept_until_nothing_is_left(request, stores)
        run_checkpoint(CheckpointRequest(spec=world.spec(), repository=url, transaction_wait=1.0), InProcessEngine())
        world.feed(second)
        corrupt = next(one for one in names if any(store.store == "session" for store in directory.stores(one)))
        segment = next(store.databases[0] for store in directory.stores(corrupt) if store.store == "session")
        set_status(segment, 1)
        report, said = kept_until_nothing_is_left(request, stores)
        world.feed(third)
        before, ends = world.answers(running), world.ends()
    (aside,) = (directory.work_path / "corrupt").iterdir()
    assert aside.name.startswith(f"{corrupt}@")
    told = [line for line in said.splitlines() if corrupt in line and "snapshot" in line]
    assert len(told) == 2, said  # it is set aside, because a snapshot has it; it begins with that
    offsets = {store.changelog: store.offset for task in report.tasks for store in task.stores}
    world.state_dir = warm
    with world.on(NEWEST) as running:
        assert world.answers(running) == before
        restored = {
            f"{spec.store(store).changelog}-{partition}": records  # type: ignore[union-attr]
            for (store, partition), records in running.restored_records().items()
            if records and store not in ALONE | world.in_memory
        }
    tails = {f"{topic}-{at}": end for topic, of in ends.items() for at, end in enumerate(of)}
    assert restored, "the third part was written after the copies were closed"
    assert not {at: n for at, n in restored.items() if n > tails[at] - offsets[at] - 1}


def standby(shop: Shop, state_dir: Path, *more: str, fault: str = "") -> subprocess.CompletedProcess[str]:
    """``statecore standby --json``."""
    spec = shop.scratch / "stores.yaml"
    spec.write_text(json.dumps(shop.spec))
    words = ["standby", "--spec", spec, "--json", "--state-dir", state_dir, *more]
    return statecore_killed(fault, *words) if fault else statecore_here(*words)


def followed(logs: Path) -> dict[str, int]:
    """How far a task has followed each topic, by its own record."""
    return {log["topic"]: log["end"] for log in json.loads(logs.read_text())["logs"]}


def content(shop: Shop, state_dir: Path) -> Found:
    """Rows and digest of each store, every row of which is read; all databases of a store have the same offset."""
    spec = parse_spec(shop.spec)
    directory = StateDirectory(state_dir, shop.application_id)
    found = {}
    for task in directory.task_directories():
        for one in directory.stores(task):
            declared = spec.store(one.store)
            assert declared is not None
            image = verify_image(one.path, declared.kind, [TopicPartition(declared.changelog, int(task[-1]))])
            found[task, one.store] = image.rows, image.digest
    return found


@each_guarantee
def test_a_copy_that_was_killed_wherever_it_was_ends_with_the_rows_of_its_changelogs(
    broker: Broker, tmp_path: Path, guarantee: str
) -> None:
    shop = Shop(broker.bootstrap_servers, tmp_path, guarantee=guarantee, has_global=False, partitions=1)
    warm = tmp_path / "warm"
    shop.write(600)
    assert standby(shop, warm, "--once").returncode == 0
    for point in STANDBY_POINTS:
        shop.write(300)
        killed = standby(shop, warm, "--once", fault=f"{point}:kill")
        assert killed.returncode == -signal.SIGKILL, killed.stderr
    shop.write(300)
    ended = standby(shop, warm, "--once")
    assert ended.returncode == 0, ended.stderr
    report = json.loads(ended.stdout)
    assert [store["lag"] for task in report["tasks"] for store in task["stores"]] == [0, 0]
    assert not any(store["rebuilt"] for task in report["tasks"] for store in task["stores"])
    assert content(shop, warm) == shop.restored()
    assert not list(warm.rglob(".checkpoint"))


def test_a_store_whose_log_lost_records_is_rebuilt_and_one_of_another_topic_is_not_changed(
    broker: Broker, tmp_path: Path
) -> None:
    shop = Shop(
        broker.bootstrap_servers, tmp_path, {"cleanup.policy": "compact,delete"}, has_global=False, partitions=1
    )
    warm = tmp_path / "warm"
    shop.write(100)
    assert standby(shop, warm, "--once").returncode == 0
    shop.write(100)
    changelog = shop.changelog("plain")
    topics.delete_records(shop.servers, changelog, 0, topics.end_offset(shop.servers, changelog, 0) - 10)
    topics.delete(shop.servers, shop.changelog("clicks"))
    topics.create(shop.servers, shop.changelog("clicks"), 1)
    ended = standby(shop, warm, "--once")
    assert ended.returncode == Invalid.exit_code, ended.stderr
    clicks, plain = json.loads(ended.stdout)["tasks"][0]["stores"]
    assert (plain["rebuilt"], plain["records"], plain["error"]) == (1, 10, None)
    assert clicks["rebuilt"] == 0
    assert shop.changelog("clicks") in clicks["error"]
    assert content(shop, warm)["0_0", "plain"] == shop.restored()["0_0", "plain"]


class Apart(Shop):
    """Each store in a subtopology of its own."""

    @property
    def spec(self) -> dict[str, Any]:
        stores = {str(at): {"stores": {name: store}} for at, (name, store) in enumerate(self.stores.items())}
        return {**super().spec, "subtopologies": stores}


def test_a_changelog_that_is_gone_stops_only_the_tasks_that_follow_it(broker: Broker, tmp_path: Path) -> None:
    shop = Apart(broker.bootstrap_servers, tmp_path, has_global=False, partitions=1)
    warm = tmp_path / "warm"
    shop.write(100)
    assert standby(shop, warm, "--once").returncode == 0
    shop.write(100)
    before = content(shop, warm)["1_0", "clicks"]
    topics.delete(shop.servers, shop.changelog("clicks"))
    ended = standby(shop, warm, "--once")
    assert ended.returncode == NotFound.exit_code, ended.stderr
    plain, clicks = json.loads(ended.stdout)["tasks"]
    assert (plain["task"], plain["exit_code"], plain["stores"][0]["lag"]) == ("0_0", 0, 0)
    assert (clicks["task"], clicks["exit_code"], clicks["stores"]) == ("1_0", NotFound.exit_code, [])
    assert content(shop, warm)["1_0", "clicks"] == before
    fresh = standby(shop, tmp_path / "fresh", "--once")
    assert fresh.returncode == NotFound.exit_code, fresh.stderr
    assert [task["task"] for task in json.loads(fresh.stdout)["tasks"]] == ["0_0", "1_?"]
    topics.delete(shop.servers, shop.changelog("plain"))
    none = standby(shop, warm, "--once")
    assert (none.returncode, none.stdout.count("do not exist")) == (NotFound.exit_code, 1)


def test_a_service_stops_cleanly_on_a_signal_and_excludes_others_until_then(broker: Broker, tmp_path: Path) -> None:
    shop = Shop(broker.bootstrap_servers, tmp_path, has_global=False)
    shop.write(100)
    warm = tmp_path / "warm"
    spec = tmp_path / "stores.yaml"
    spec.write_text(json.dumps(shop.spec))
    command = [sys.executable, "-m", "statecore.cli.main", "standby", "--spec", str(spec), "--json"]
    command += ["--state-dir", str(warm), "--interval", "200ms", "--task", "0_1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as service:
        assert service.stderr is not None
        assert next(service.stderr).startswith("Following 1 task of ")
        assert next(service.stderr).startswith("round 1: lag 0_1 0")
        assert standby(shop, warm, "--once").returncode == Fenced.exit_code
        shop.write(100)
        logs = warm / shop.application_id / ".statecore" / "standby" / "0_1" / "logs.json"
        ends = {topic: topics.end_offset(shop.servers, topic, 1) for topic in shop.topics}
        assert eventually(lambda: followed(logs), ends) == ends
        service.send_signal(signal.SIGTERM)
        report = json.loads(service.communicate(timeout=240)[0])
    assert service.returncode == 0
    assert [task["task"] for task in report["tasks"]] == ["0_1"]
    there = content(shop, warm)
    assert there == {key: found for key, found in shop.restored().items() if key[0] == "0_1"}
