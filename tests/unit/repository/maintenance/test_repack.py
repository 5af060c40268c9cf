"""Packs of which most is garbage are rewritten, under the rules of every publication."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from statecore.faults import FaultInjected, InjectedFault
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.head import Retention
from statecore.repository.maintenance.collection import Collector
from statecore.repository.maintenance.forget import forget
from statecore.repository.maintenance.pins import pin
from statecore.repository.maintenance.repack import Repacker, RepackReport
from statecore.repository.manifest import TaskManifest
from statecore.repository.repository import create_repository
from tests.harness import s3_server
from tests.harness.s3_server import ACCESS, SECRET
from tests.unit.repository.snapshots import APPLICATION, Clock, Snapshots, store_of

DAY = 24 * 3600.0
LAST = Retention(last=1, hourly=0, daily=0, weekly=0)
TASK = "0_0"


def repacker(orders: Snapshots, **more: Any) -> Repacker:
    return Repacker(orders.app_repository, **{"min_unused_bytes": 0, **more})


def collect(orders: Snapshots, clock: Clock, times: int = 4) -> None:
    for _ in range(times):
        clock.now += DAY
        Collector(orders.app_repository).run()


def packs_named(orders: Snapshots, number: int = 0) -> set[str]:
    """The packs that a snapshot names."""
    app_repository = orders.app_repository
    manifest = app_repository.manifest(app_repository.head().snapshots[number]).value
    read = app_repository.task_manifests(manifest.task_manifests)[TASK].manifest
    return {extent.blob for store in read.stores for _, extent in store.extents if "/packs/" in extent.blob}


@pytest.fixture
def half_dead(orders: Snapshots) -> str:
    """A pack of an idle and a busy store, whose runs were replaced, and forgotten; its name."""
    orders.publish("first", {TASK: {"left": 50, "right": 500}}, drops_other_tasks=True)
    (pack,) = packs_named(orders)
    busy = orders.upload({TASK: {"right": 600}}, every=600)
    orders.begin("second").publish(busy, drops_other_tasks=False)
    forget(orders.app_repository, LAST)
    forget(orders.app_repository, Retention())
    return pack


def identities(orders: Snapshots) -> dict[str, str]:
    return {reference.task: reference.identity for reference in orders.newest.task_manifests}


def test_the_files_of_the_newest_snapshot_are_put_again_and_the_pack_is_collected(
    orders: Snapshots, clock: Clock, half_dead: str
) -> None:
    before, rows = identities(orders), orders.ends
    planned = repacker(orders).plan()
    assert (planned.packs, planned.needed_bytes, planned.snapshot) == (1, 40, None)
    assert planned.bytes == len(orders.storage.blobs[half_dead][0])
    done = repacker(orders).run()
    newest = orders.app_repository.head().snapshots[0]
    assert done == RepackReport(1, planned.bytes, 40, newest.snapshot)
    assert (newest.origin, newest.new_bytes) == ("compaction", 0)
    assert (identities(orders), orders.ends) == (before, rows)
    assert half_dead not in packs_named(orders)
    assert half_dead in packs_named(orders, 1)
    orders.fetched()
    assert repacker(orders).run() == RepackReport(), "the older snapshot needs it until it is forgotten"
    forget(orders.app_repository, LAST)
    collect(orders, clock)
    assert half_dead not in orders.storage.blobs
    orders.fetched()


def test_nothing_is_rewritten_below_the_bounds(orders: Snapshots, half_dead: str) -> None:
    before = dict(orders.storage.blobs), dict(orders.storage.pointers)
    assert Repacker(orders.app_repository).run() == RepackReport(), "64 MiB"
    assert repacker(orders, max_unused=100.0).run() == RepackReport()
    assert (orders.storage.blobs, orders.storage.pointers) == before


def test_a_pack_of_a_pinned_snapshot_is_left_alone(orders: Snapshots, half_dead: str) -> None:
    pin(orders.app_repository, orders.newest.snapshot)
    assert repacker(orders).run() == RepackReport()


def test_a_pack_of_which_most_is_needed_is_left_alone(orders: Snapshots) -> None:
    orders.publish("first", {TASK: {"left": 500, "right": 100}}, drops_other_tasks=True)
    orders.begin("second").publish(orders.upload({TASK: {"right": 600}}, every=600), drops_other_tasks=False)
    forget(orders.app_repository, LAST)
    assert repacker(orders, max_unused=0.0).run() == RepackReport()


def test_a_damaged_file_is_not_put_again(orders: Snapshots, half_dead: str) -> None:
    content, at = orders.storage.blobs[half_dead]
    orders.storage.blobs[half_dead] = bytes(len(content)), at
    done = repacker(orders).run()
    assert (done.packs, done.snapshot, done.damaged) == (0, None, (half_dead,))
    assert packs_named(orders) == {half_dead}
    assert orders.requests == ["second"]


def test_a_task_that_cannot_be_fetched_any_more_is_warned_of(orders: Snapshots, half_dead: str) -> None:
    orders.begin("third").publish(orders.upload({"0_1": {"left": 10}}), drops_other_tasks=False)
    read = orders.app_repository.task_manifests(orders.newest.task_manifests)["0_1"].manifest
    for name in {extent.blob for store in read.stores for _, extent in store.extents}:
        del orders.storage.blobs[name]
    done = repacker(orders).run()
    assert done.snapshot is not None, "what is whole is rewritten all the same"
    (warning,) = done.warnings
    assert "0_1" in warning


def test_what_another_job_publishes_meanwhile_stays(orders: Snapshots, half_dead: str) -> None:
    class Meanwhile:
        """Another job appends to the idle store, between the upload and the swap."""

        def reach(self, point: str) -> None:
            if point == "publish.before-head" and orders.requests == ["second"]:
                read = orders.app_repository.task_manifests(orders.newest.task_manifests)[TASK].manifest
                (left,) = (store for store in read.stores if store.store == "left")
                new = orders.upload_runs({TASK: {"left": [(50, 90)]}})[TASK]["left"]
                longer = store_of(TASK, "left", [*left.databases[0].runs, *new], end=90)
                orders.begin("meanwhile").publish([TaskManifest(TASK, (longer,))], drops_other_tasks=False)

    done = repacker(orders, faults=Meanwhile()).run()
    assert done.snapshot == orders.newest.snapshot
    assert orders.requests[1:] == ["meanwhile", "second"]
    assert orders.ends == {TASK: {"left": 90, "right": 600}}
    assert half_dead not in packs_named(orders)
    orders.fetched()


@pytest.mark.parametrize("point", ["publish.before-task-manifests", "publish.before-head", "publish.after-head"])
def test_a_killed_rewrite_harms_nothing(orders: Snapshots, clock: Clock, half_dead: str, point: str) -> None:
    ends = orders.ends
    with pytest.raises(FaultInjected):
        repacker(orders, faults=InjectedFault(point)).run()
    assert orders.ends == ends
    repacker(orders).run()
    assert half_dead not in packs_named(orders)
    forget(orders.app_repository, LAST)
    collect(orders, clock)
    assert half_dead not in orders.storage.blobs
    orders.fetched()


@pytest.mark.parametrize("place", ["directory", "s3"])
def test_in_a_real_object_store_a_pack_is_rewritten_and_collected(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ExitStack() as until_done:
        url = (tmp_path / "repository").as_uri()
        if place == "s3":
            monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS)
            monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
            url = until_done.enter_context(s3_server.serving()).bucket("states").below("production").url
        create_repository(url)
        nothing: Any = None
        orders = Snapshots(ApplicationRepository.open(url, APPLICATION), nothing, nothing, tmp_path / "runs")
        orders.publish("first", {TASK: {"left": 50, "right": 500}}, drops_other_tasks=True)
        (pack,) = packs_named(orders)
        orders.begin("second").publish(orders.upload({TASK: {"right": 600}}, every=600), drops_other_tasks=False)
        forget(orders.app_repository, LAST)
        done = repacker(orders).run()
        assert (done.packs, done.snapshot) == (1, orders.newest.snapshot)
        for _ in range(5):
            Collector(orders.app_repository, min_age_ms=0).run()
        blobs = {blob.name for blob in orders.app_repository.blobs.list(orders.app_repository.names.root)}
        assert pack not in blobs
        assert orders.ends == {TASK: {"left": 50, "right": 600}}
        orders.fetched()
