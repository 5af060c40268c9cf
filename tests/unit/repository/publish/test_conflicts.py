"""Publications concurrent with others: merged, fenced, and never with a lower offset."""

from __future__ import annotations

from dataclasses import replace

import pytest

from statecore.errors import Fenced
from statecore.formats.kinds import StoreKind
from statecore.repository.head import HEAD, encoded_head
from statecore.repository.manifest import TaskManifest
from tests.harness.raising import raises
from tests.harness.simulated_store import version_of
from tests.unit.repository.snapshots import Snapshots, Stores, blobs_of, store_of


def test_jobs_that_touch_other_tasks_are_put_beside_each_other(orders: Snapshots, first: None) -> None:
    one, other = orders.begin("one"), orders.begin("other")
    task_manifests = orders.upload({"0_0": {"left": 100, "right": 100}})
    beside = orders.upload({"0_1": {"left": 150}, "0_2": {"left": 10}})
    assert one.publish(task_manifests, drops_other_tasks=False).concurrent == 0
    done = other.publish(beside, drops_other_tasks=False)
    assert done.concurrent == 1
    assert orders.ends == {"0_0": {"left": 100, "right": 100}, "0_1": {"left": 150, "right": 50}, "0_2": {"left": 10}}
    requests = orders.requests
    assert requests == ["other", "one", "first"]
    assert len(orders.fetched()) == 3


def test_two_jobs_that_make_the_head_at_the_same_time_both_count(orders: Snapshots) -> None:
    one, other = orders.begin("one"), orders.begin("other")
    one.publish(orders.upload({"0_0": {"left": 50}}), drops_other_tasks=False)
    other.publish(orders.upload({"0_1": {"left": 50}}), drops_other_tasks=False)
    assert orders.ends == {"0_0": {"left": 50}, "0_1": {"left": 50}}


@pytest.mark.parametrize("newer", [{"0_0": {"left": 150}}, {"0_0": {"right": 50}}])
@pytest.mark.parametrize("whole", [False, True])
def test_a_job_is_fenced_if_another_has_published_the_same_task(
    orders: Snapshots, first: None, newer: Stores, whole: bool
) -> None:
    late = orders.begin("late")
    orders.publish("other", {"0_0": {"left": 100}})
    before = orders.storage.pointers[orders.app_repository.names.head]
    with raises(Fenced, "publication-conflict", application_id="orders", reason="tasks-published", tasks=["0_0"]):
        late.publish(orders.upload(newer), drops_other_tasks=whole)
    assert orders.storage.pointers[orders.app_repository.names.head] == before
    assert len(blobs_of(orders.storage, "manifests")) == 2, "unnamed manifests are deleted"


def test_a_whole_application_is_fenced_by_any_task_that_others_have_published(orders: Snapshots, first: None) -> None:
    late = orders.begin("late")
    orders.publish("other", {"0_7": {"left": 10}})
    with raises(Fenced, "publication-conflict", reason="tasks-published", tasks=["0_7"]):
        late.publish(orders.upload({"0_0": {"left": 100}, "0_1": {"left": 100}}), drops_other_tasks=True)


def test_a_job_begun_before_the_head_was_recreated_is_fenced(orders: Snapshots, first: None) -> None:
    late = orders.begin("late")
    raw = orders.storage.pointers[orders.app_repository.names.head]
    found = HEAD.read(raw)
    anew = replace(found.value, epoch=found.value.epoch + 1, generation=found.value.generation + 1)
    orders.storage.swap(orders.app_repository.names.head, encoded_head(anew, found.raw), version_of(raw))
    task_manifests = orders.upload({"0_0": {"left": 100}})
    with raises(Fenced, "publication-conflict", reason="head-recreated"):
        late.publish(task_manifests, drops_other_tasks=False)
    orders.begin("late").publish(task_manifests, drops_other_tasks=False)
    assert orders.app_repository.head().epoch == 1


def test_a_publication_never_lowers_an_offset(orders: Snapshots, first: None) -> None:
    before = dict(orders.storage.pointers)
    for ends in ({"0_0": {"left": 49}}, {"0_1": {"left": 90, "right": 10}}):
        with raises(Fenced, "publication-conflict", reason="snapshot-newer", found=50):
            orders.publish("late", ends)
    assert orders.storage.pointers == before
    orders.publish("same", {"0_0": {"left": 50}})


def test_a_recreated_topic_may_have_lower_offsets(orders: Snapshots, first: None) -> None:
    task_manifests = orders.upload({"0_0": {"left": 10}}, topic_id="1" * 32)
    orders.begin("anew").publish(task_manifests, drops_other_tasks=False)
    assert orders.ends["0_0"] == {"left": 10, "right": 50}


def test_a_store_that_is_empty_for_want_of_an_offset_is_behind_what_counts(orders: Snapshots, first: None) -> None:
    left = TaskManifest("0_0", (store_of("0_0", "left", (), end=0, restored_by_kafka_streams=True),))
    with raises(Fenced, "publication-conflict", reason="snapshot-newer", offset=0, found=50):
        orders.begin("left").publish([left], drops_other_tasks=False)


def test_offsets_of_a_versioned_store_restored_by_kafka_streams_conflict_with_none(
    orders: Snapshots, first: None
) -> None:
    left = store_of("0_0", "left", (), end=0, restored_by_kafka_streams=True)
    left = replace(left, kind=StoreKind.VERSIONED_KEY_VALUE)
    orders.begin("left").publish([TaskManifest("0_0", (left,))], drops_other_tasks=False)
    assert orders.ends["0_0"] == {"left": 0, "right": 50}
    orders.publish("again", {"0_0": {"left": 10}})
    assert orders.ends["0_0"] == {"left": 10, "right": 50}
