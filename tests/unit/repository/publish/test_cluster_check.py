"""Snapshots of one cluster are not replaced by those of another with an application of the same id."""

from __future__ import annotations

from dataclasses import replace

import pytest

from statecore.errors import Fenced, Invalid
from statecore.repository.publish.cluster_check import is_of_other_cluster
from statecore.repository.publish.publication import Publication
from tests.harness.raising import raises
from tests.unit.repository.snapshots import BOTH, Snapshots

FURTHER = {task: dict.fromkeys(stores, 100) for task, stores in BOTH.items()}
ONE, TWO = "lkc-one", "lkc-two"


def asking(orders: Snapshots, request: str, cluster_id: str) -> Publication:
    """A job that has begun, and has asked the brokers of a cluster."""
    job = orders.begin(request)
    job.check_cluster(cluster_id)
    return job


@pytest.fixture
def of_one(orders: Snapshots) -> None:
    """A snapshot of a cluster."""
    asking(orders, "first", ONE).publish(orders.upload(BOTH), drops_other_tasks=True)


def test_a_snapshot_has_the_id_of_the_cluster_and_its_successors_inherit_it(orders: Snapshots, of_one: None) -> None:
    assert orders.newest.cluster_id == ONE
    orders.publish("offline", {"0_0": {"left": 100}})
    assert orders.newest.cluster_id == ONE, "of the other tasks, and a later job is still compared with it"
    asking(orders, "again", ONE).publish(orders.upload(FURTHER), drops_other_tasks=True)
    assert (orders.newest.cluster_id, orders.ends) == (ONE, FURTHER)


def test_a_job_of_another_cluster_is_refused_before_it_has_uploaded_anything(orders: Snapshots, of_one: None) -> None:
    before = dict(orders.storage.blobs)
    job = orders.begin("other")
    snapshot = orders.newest.snapshot
    with raises(Invalid, "cluster-changed", expected=ONE, found=TWO, snapshot=snapshot) as caught:
        job.check_cluster(TWO)
    assert ONE in caught.value.what
    assert TWO in caught.value.what
    assert f"--accept-cluster {TWO}" in caught.value.action
    assert orders.storage.blobs == before
    with raises(Invalid, "cluster-changed"):
        job.publish(orders.upload(FURTHER), drops_other_tasks=True)
    assert orders.requests == ["first"]


def test_a_snapshot_without_the_id_of_a_cluster_stays_usable(orders: Snapshots, first: None) -> None:
    assert orders.newest.cluster_id == ""
    asking(orders, "second", TWO).publish(orders.upload(FURTHER), drops_other_tasks=True)
    assert orders.newest.cluster_id == TWO
    asking(orders, "of brokers without an id", "").publish(
        orders.upload({"0_0": {"left": 150}}), drops_other_tasks=False
    )
    assert orders.newest.cluster_id == TWO


def test_a_cluster_is_compared_again_with_what_was_published_meanwhile(orders: Snapshots, first: None) -> None:
    job = asking(orders, "of two", TWO)
    asking(orders, "of one", ONE).publish(orders.upload({"0_0": {"left": 100}}), drops_other_tasks=False)
    with raises(Invalid, "cluster-changed", expected=ONE, found=TWO):
        job.publish(orders.upload({"0_1": {"left": 100}}), drops_other_tasks=False)
    assert orders.requests == ["of one", "first"]


def test_an_accepted_cluster_takes_the_place_of_the_other_with_all_of_its_stores(
    orders: Snapshots, of_one: None
) -> None:
    job, shorter = orders.begin("moved"), {"0_0": {"left": 10}}
    with raises(Invalid, "cluster-changed"):
        job.check_cluster(TWO, ONE, is_whole=True)  # another one than these brokers are of
    with raises(Invalid, "cluster-changed") as caught:
        job.check_cluster(TWO, TWO)
    assert "--store" in caught.value.action
    job.check_cluster(TWO, TWO, is_whole=True)
    # topic ids that are not known would be taken for the same topics, which go on further
    made = [
        replace(one, stores=tuple(replace(store, changelogs=_without_ids(store.changelogs)) for store in one.stores))
        for one in orders.upload(shorter)
    ]
    job.publish(made, drops_other_tasks=False, tasks={"0_0", "0_1"}, rebase=lambda mine, theirs: theirs)
    assert (orders.newest.cluster_id, orders.ends) == (TWO, shorter)
    assert orders.requests == ["moved", "first"]
    with raises(Invalid, "cluster-changed", expected=TWO, found=ONE):
        orders.begin("back").check_cluster(ONE)


def _without_ids(ends: tuple) -> tuple:  # type: ignore[type-arg]
    return tuple(replace(end, topic_id="") for end in ends)


def test_a_job_of_the_other_cluster_that_publishes_meanwhile_fences_the_move(orders: Snapshots, of_one: None) -> None:
    job = orders.begin("moved")
    job.check_cluster(TWO, TWO, is_whole=True)
    asking(orders, "old", ONE).publish(orders.upload({"0_0": {"left": 100}}), drops_other_tasks=False)
    with raises(Fenced, "publication-conflict", reason="tasks-published"):
        job.publish(orders.upload(FURTHER), drops_other_tasks=True)


def test_ids_are_compared_only_where_both_are_known(orders: Snapshots, of_one: None) -> None:
    manifest = orders.newest
    assert is_of_other_cluster(manifest, TWO)
    assert not is_of_other_cluster(manifest, ONE)
    assert not is_of_other_cluster(manifest, "")
    assert not is_of_other_cluster(None, TWO)
    assert not is_of_other_cluster(replace(manifest, cluster_id=""), TWO)
