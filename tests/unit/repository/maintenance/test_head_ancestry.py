"""Whether a later head goes on with an earlier one, also when it has forgotten all that both had."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest

from statecore.repository.head import Head, Retention
from statecore.repository.maintenance.collection import Collector
from statecore.repository.maintenance.forget import forget
from statecore.repository.maintenance.head_ancestry import Ancestry, ancestry
from statecore.repository.maintenance.head_repair import apply_repair, plan_repair
from statecore.repository.maintenance.pins import pin, unpin
from tests.harness.simulated_store import flipped
from tests.unit.repository.snapshots import NOW, Clock, Snapshots

LAST = Retention(last=1, hourly=0, daily=0, weekly=0)
DAY = 24 * 3600.0


def go_on(orders: Snapshots, end: int, count: int = 4) -> None:
    """Publish snapshots, minutes apart; the head names the last one alone, and what is pinned."""
    for to in range(end, end + count):
        orders.publish(f"to {to}", {"0_0": {"left": to}}, clock=partial(float, NOW + 60 * to))
    forget(orders.app_repository, LAST)


def collect(orders: Snapshots, clock: Clock, count: int = 3) -> None:
    for _ in range(count):
        clock.now += DAY
        Collector(orders.app_repository).run()


def manifest_of(orders: Snapshots, head: Head) -> str:
    assert head.newest is not None
    return orders.app_repository.names.manifest(head.newest.snapshot)


def found(orders: Snapshots, before: Head) -> Ancestry:
    return ancestry(orders.app_repository, orders.app_repository.head(), before)


@contextmanager
def set_back(orders: Snapshots) -> Iterator[None]:
    """Whatever is published inside is lost: the bucket is restored then."""
    storage = orders.storage
    pointers, blobs = dict(storage.pointers), dict(storage.blobs)
    yield
    storage.pointers.clear()
    storage.pointers.update(pointers)
    storage.blobs.clear()
    storage.blobs.update(blobs)


@pytest.fixture
def before(orders: Snapshots, first: None) -> Head:
    go_on(orders, 100)
    return orders.app_repository.head()


def test_a_head_goes_on_with_one_of_which_it_names_nothing(orders: Snapshots, before: Head) -> None:
    go_on(orders, 200)
    assert not {*orders.app_repository.head().snapshots} & {*before.snapshots}
    assert found(orders, before) is Ancestry.CONTINUES


def test_without_collected_manifests_nothing_is_said_but_that_no_trace_is_left(
    orders: Snapshots, clock: Clock, before: Head
) -> None:
    go_on(orders, 200)
    collect(orders, clock)
    assert manifest_of(orders, before) not in orders.storage.blobs
    assert found(orders, before) is Ancestry.FORGOTTEN


def test_a_broken_chain_does_not_matter_if_the_newest_snapshot_is_named(
    orders: Snapshots, clock: Clock, before: Head
) -> None:
    pin(orders.app_repository, "newest")
    go_on(orders, 200)
    collect(orders, clock)
    assert found(orders, before) is Ancestry.CONTINUES


@pytest.mark.parametrize("count", [1, 5, 30])
def test_a_branch_is_found_however_much_it_has_forgotten(orders: Snapshots, first: None, count: int) -> None:
    with set_back(orders):
        go_on(orders, 100)
        before = orders.app_repository.head()
    go_on(orders, 200, 5 + count)
    orders_now = {orders.app_repository.manifest(one).value.order for one in orders.app_repository.head().snapshots}
    assert min(orders_now) > before.order, "no snapshot gives it away"
    assert found(orders, before) is Ancestry.OTHER_BRANCH


def test_a_branch_that_published_nothing_is_found(orders: Snapshots, first: None) -> None:
    with set_back(orders):
        go_on(orders, 100, 1)
        before = orders.app_repository.head()
    for _ in range(4):
        pin(orders.app_repository, "newest")
        unpin(orders.app_repository, "newest")
    assert orders.app_repository.head().order > before.order
    assert found(orders, before) is Ancestry.OTHER_BRANCH


def test_the_head_alone_was_set_back_and_all_manifests_are_there(orders: Snapshots, first: None) -> None:
    name = orders.app_repository.names.head
    older = orders.storage.pointers[name]
    go_on(orders, 100)
    before = orders.app_repository.head()
    orders.storage.pointers[name] = older
    go_on(orders, 200, 9)
    assert manifest_of(orders, before) in orders.storage.blobs
    assert found(orders, before) is Ancestry.OTHER_BRANCH


def test_a_manifest_that_no_collection_has_deleted_is_missing_for_another_reason(
    orders: Snapshots, before: Head
) -> None:
    go_on(orders, 200, 1)
    gone = manifest_of(orders, orders.app_repository.head())
    go_on(orders, 300, 1)
    del orders.storage.blobs[gone], orders.storage.blobs[manifest_of(orders, before)]
    assert found(orders, before) is Ancestry.OTHER_BRANCH


def test_a_rebuilt_head_goes_on_with_one_whose_newest_snapshot_is_deleted(
    orders: Snapshots, clock: Clock, before: Head
) -> None:
    del orders.storage.pointers[orders.app_repository.names.head]
    apply_repair(orders.app_repository, plan_repair(orders.app_repository))
    go_on(orders, 200, 1)
    collect(orders, clock)
    assert manifest_of(orders, before) not in orders.storage.blobs
    assert orders.app_repository.head().epoch > before.epoch
    assert found(orders, before) is Ancestry.CONTINUES


def test_a_rebuilt_head_of_a_branch_is_found(orders: Snapshots, first: None) -> None:
    with set_back(orders):
        go_on(orders, 100)
        before = orders.app_repository.head()
    del orders.storage.pointers[orders.app_repository.names.head]
    apply_repair(orders.app_repository, plan_repair(orders.app_repository))
    assert found(orders, before) is Ancestry.OTHER_BRANCH
    go_on(orders, 200)
    assert found(orders, before) is Ancestry.OTHER_BRANCH


def test_a_damaged_manifest_in_between_is_passed_over(orders: Snapshots, before: Head) -> None:
    go_on(orders, 200, 1)
    damaged = manifest_of(orders, orders.app_repository.head())
    go_on(orders, 300, 2)
    content, made = orders.storage.blobs[damaged]
    orders.storage.blobs[damaged] = (flipped(content, 1), made)
    assert found(orders, before) is Ancestry.CONTINUES


def test_a_damaged_manifest_hides_no_branch(orders: Snapshots, first: None) -> None:
    with set_back(orders):
        go_on(orders, 100)
        before = orders.app_repository.head()
    go_on(orders, 200, 8)
    damaged = manifest_of(orders, orders.app_repository.head())
    go_on(orders, 300, 2)
    content, made = orders.storage.blobs[damaged]
    orders.storage.blobs[damaged] = (flipped(content, 1), made)
    assert found(orders, before) is Ancestry.OTHER_BRANCH
