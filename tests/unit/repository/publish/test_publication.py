"""Publication: a new snapshot by one swap of the head, retries, and lost replies."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from typing import Any
from unittest.mock import patch

import pytest

from statecore.documents import encode_json
from statecore.errors import Corrupted, Fenced, Retryable
from statecore.faults import PUBLISH_POINTS, FaultInjected, InjectedFault
from statecore.formats.kinds import StoreKind
from statecore.repository.descriptor import DESCRIPTOR, DESCRIPTOR_NAME
from statecore.repository.head import HEAD, encoded_head
from statecore.repository.manifest import MANIFEST
from statecore.repository.publish.publication import Publication
from tests.harness.raising import raises
from tests.harness.simulated_store import version_of
from tests.unit.repository.snapshots import APPLICATION, BOTH, NOW, Snapshots, Stores, blobs_of, spec


def test_the_first_snapshot_makes_the_head(orders: Snapshots) -> None:
    task_manifests = orders.upload(BOTH)
    begun = orders.begin("first", name=lambda: "5f3a9c21")
    assert begun.earlier() is None
    done = begun.publish(task_manifests, drops_other_tasks=True)
    files = sum(task_manifest.file_bytes for task_manifest in task_manifests)
    assert done.snapshot == "20261123T000000Z-5f3a9c21"
    assert done.created_at == "2026-11-23T00:00:00.000Z"
    assert (done.tasks, done.file_bytes, done.new_bytes, done.earlier, done.concurrent) == (2, files, files, False, 0)
    head = orders.app_repository.head()
    assert (head.application_id, head.generation, len(head.snapshots)) == (APPLICATION, 1, 1)
    entry = head.snapshots[0]
    assert (entry.snapshot, entry.identity, entry.request_id) == (done.snapshot, done.identity, "first")
    manifest = orders.app_repository.manifest(entry).value
    assert (manifest.previous, manifest.generation, manifest.origin) == (None, 1, "tests")
    assert manifest.spec["subtopologies"]["0"]["stores"].keys() == {"left", "right"}
    assert "bootstrap_servers" not in manifest.spec
    assert orders.ends == BOTH
    assert orders.fetched().keys() == {done.snapshot}


def test_a_snapshot_names_the_one_before_and_what_is_new(orders: Snapshots, first: None) -> None:
    before = orders.app_repository.head()
    task_manifests = orders.upload({"0_0": {"left": 100, "right": 50}})
    done = orders.begin("second").publish(task_manifests, drops_other_tasks=False)
    head = orders.app_repository.head()
    assert head.snapshots[1:] == before.snapshots
    assert head.generation == 2
    assert orders.app_repository.manifest(head.snapshots[0]).value.previous == before.snapshots[0].snapshot
    assert done.new_bytes == 40, "of the run above alone"
    assert len(orders.fetched()) == 2


def test_stores_and_tasks_that_a_job_did_not_touch_stay_and_are_not_written_again(
    orders: Snapshots, first: None
) -> None:
    before = {task_manifest.task: task_manifest for task_manifest in orders.newest.task_manifests}
    orders.publish("second", {"0_0": {"left": 100}})
    assert orders.ends == {"0_0": {"left": 100, "right": 50}, "0_1": {"left": 50, "right": 50}}
    after = {task_manifest.task: task_manifest for task_manifest in orders.newest.task_manifests}
    assert after["0_1"] == before["0_1"]
    assert after["0_0"].sha256 != before["0_0"].sha256
    assert len(blobs_of(orders.storage, "task-manifests")) == 2


def test_stores_that_are_no_longer_declared_or_of_another_kind_go_with_the_task_that_is_made(
    orders: Snapshots, first: None
) -> None:
    task_manifests = orders.upload({"0_0": {"left": 100}})
    orders.begin("second", stores=["left"]).publish(task_manifests, drops_other_tasks=False)
    assert orders.ends == {"0_0": {"left": 100}, "0_1": {"left": 50, "right": 50}}
    other = replace(spec(), stores=(spec().stores[0], replace(spec().stores[1], kind=StoreKind.TIMESTAMPED_KEY_VALUE)))
    again = Publication(orders.app_repository, other, request="third", origin="tests", clock=lambda: NOW)
    done = again.publish(orders.upload({"0_1": {"left": 100}}), drops_other_tasks=False)
    assert orders.ends == {"0_0": {"left": 100}, "0_1": {"left": 100}}
    (warning,) = done.warnings
    assert re.findall(r"right|0_\d|[a-z-]*key-value", warning) == ["right", "0_1", "key-value", "timestamped-key-value"]


@pytest.mark.parametrize("changes", [{"changelog": "rights"}, {"subtopology": 1}, {"changelog": "none"}])
def test_a_rebuilt_task_drops_stores_declared_elsewhere(
    orders: Snapshots, first: None, changes: dict[str, Any]
) -> None:
    other = replace(spec(), stores=(spec().stores[0], replace(spec().stores[1], **changes)))
    task_manifests = orders.upload({"0_0": {"left": 100}})
    Publication(orders.app_repository, other, request="second", origin="tests", clock=lambda: NOW).publish(
        task_manifests, drops_other_tasks=False
    )
    assert orders.ends["0_0"] == {"left": 100}


def test_a_whole_application_is_all_that_there_is(orders: Snapshots, first: None) -> None:
    orders.publish("second", {"0_0": {"left": 100}}, drops_other_tasks=True)
    assert orders.ends == {"0_0": {"left": 100}}
    assert len(orders.fetched()) == 2


def test_a_retry_of_a_request_finds_what_was_published_also_below_what_came_later(
    orders: Snapshots, first: None
) -> None:
    orders.publish("second", {"0_1": {"left": 100}})
    before = dict(orders.storage.pointers), dict(orders.storage.blobs)
    again = orders.begin("first")
    found = again.earlier()
    assert found is not None
    assert found.earlier
    assert found.snapshot == orders.app_repository.head().snapshots[1].snapshot
    assert again.publish(orders.upload(BOTH), drops_other_tasks=True) == found, "also without an earlier question"
    assert (orders.storage.pointers, orders.storage.blobs) == before


@pytest.mark.parametrize("ends", [BOTH, {"0_0": {"left": 100}}])
def test_of_two_tries_of_a_request_at_the_same_time_one_publishes_and_the_other_finds_it(
    orders: Snapshots, first: None, ends: Stores
) -> None:
    """One of them was thought dead. Without changes no task differs by which it could be seen."""
    one, other = orders.begin("second"), orders.begin("second")
    task_manifests = orders.upload(ends)
    done = one.publish(task_manifests, drops_other_tasks=False)
    found = other.publish(task_manifests, drops_other_tasks=False)
    assert found == replace(done, earlier=True, made_tasks=(), kept_tasks=())
    assert orders.requests == ["second", "first"]
    assert len(blobs_of(orders.storage, "manifests")) == 2


@pytest.mark.parametrize("first_one", [False, True])
def test_a_publication_into_a_replaced_repository_is_fenced(orders: Snapshots, first_one: bool) -> None:
    if not first_one:
        orders.publish("first", BOTH, drops_other_tasks=True)
    job = orders.begin("late")
    task_manifests = orders.upload({"0_0": {"left": 300, "right": 300}})
    before = dict(orders.storage.pointers), blobs_of(orders.storage, "manifests")
    del orders.storage.blobs[DESCRIPTOR_NAME]
    with raises(Corrupted, "repository-descriptor-missing") as missing:
        job.publish(task_manifests, drops_other_tasks=False)
    assert "statecore repo init" in missing.value.action
    assert orders.storage.pointers == before[0]
    for name in set(blobs_of(orders.storage, "manifests")) - set(before[1]):
        del orders.storage.blobs[name]
    orders.storage.put(
        DESCRIPTOR_NAME, DESCRIPTOR.encode(replace(orders.app_repository.repository.descriptor, id="another"))
    )
    with raises(Fenced, "repository-replaced", repository_id="r1", found_repository_id="another"):
        job.publish(task_manifests, drops_other_tasks=False)
    assert (orders.storage.pointers, blobs_of(orders.storage, "manifests")) == before


def test_an_unreachable_repository_descriptor_can_be_retried(orders: Snapshots, first: None) -> None:
    job = orders.begin("next")
    task_manifests = orders.upload({"0_0": {"left": 300, "right": 300}})
    before = dict(orders.storage.pointers)
    with patch.object(orders.network, "read", side_effect=unread(orders.network.read)), pytest.raises(Retryable):
        job.publish(task_manifests, drops_other_tasks=False)
    assert orders.storage.pointers == before
    assert not orders.begin("next").publish(task_manifests, drops_other_tasks=False).earlier


def unread(read: Callable[..., str]) -> Callable[..., str]:
    """Reads of which those of the mark fail."""

    def fail(request: str, name: str, faults: tuple[str, ...]) -> str:
        if name == DESCRIPTOR_NAME:
            raise Retryable("The store does not answer.", code="test-error", action="Try again.")
        return read(request, name, faults)

    return fail


@pytest.mark.parametrize("fault", ["timeout", "late"])
@pytest.mark.parametrize("settled", [True, False])
def test_a_swap_without_a_reply_is_found_by_the_retry(
    orders: Snapshots, first: None, fault: str, settled: bool
) -> None:
    task_manifests = orders.upload({"0_0": {"left": 100}})
    lost = orders.begin("second")
    orders.network.chance.random = lambda: 0.9  # type: ignore[method-assign]
    orders.network.fault = lambda request, possible: fault if request == "swap" else ""  # type: ignore[method-assign]
    with pytest.raises(Retryable):
        lost.publish(task_manifests, drops_other_tasks=False)
    del orders.network.fault  # type: ignore[method-assign]
    if settled and fault == "late":
        orders.network._under_way.pop()()
    again = orders.begin("second")
    if fault == "late" and not settled:  # it comes while the retry is at work
        orders.network._under_way.pop()()
    done = again.earlier() or again.publish(task_manifests, drops_other_tasks=False)
    assert done.earlier
    assert orders.requests == ["second", "first"]


def test_an_answer_that_comes_after_another_has_published_changes_nothing(orders: Snapshots, first: None) -> None:
    task_manifests = orders.upload({"0_0": {"left": 100}})
    orders.network.chance.random = lambda: 0.9  # type: ignore[method-assign]
    orders.network.fault = lambda request, possible: "late" if request == "swap" else ""  # type: ignore[method-assign]
    with pytest.raises(Retryable):
        orders.begin("late").publish(task_manifests, drops_other_tasks=False)
    del orders.network.fault  # type: ignore[method-assign]
    orders.begin("other").publish(task_manifests, drops_other_tasks=False)
    orders.network._under_way.pop()()
    assert orders.requests == ["other", "first"]


def test_a_swap_that_was_sent_again_knows_its_own(orders: Snapshots, first: None) -> None:
    """The store says that the head has another version, and it is the one that this job has made."""
    swap = orders.network.storage.swap

    def lost(name: str, content: bytes, expected: str | None) -> str | None:
        swap(name, content, expected)
        return None

    orders.network.storage.swap = lost  # type: ignore[method-assign]
    done = orders.publish("second", {"0_0": {"left": 100}})
    assert not done.earlier
    assert orders.requests == ["second", "first"]
    assert len(orders.fetched()) == 2


def test_a_job_that_always_loses_the_swap_ends_with_a_retryable_error(orders: Snapshots, first: None) -> None:
    begun = orders.begin("slow")
    task_manifests = orders.upload({"0_0": {"left": 100}})

    def overtaken(request: str, possible: tuple[str, ...]) -> str:
        if request == "swap":
            raw = orders.storage.pointers[orders.app_repository.names.head]
            found = HEAD.read(raw)
            other = replace(found.value, generation=found.value.generation + 1)
            orders.storage.swap(orders.app_repository.names.head, encoded_head(other, found.raw), version_of(raw))
        return ""

    orders.network.fault = overtaken  # type: ignore[method-assign]
    with raises(Retryable, "head-contended"):
        begun.publish(task_manifests, drops_other_tasks=False)
    del orders.network.fault  # type: ignore[method-assign]
    assert len(blobs_of(orders.storage, "manifests")) == 1
    assert orders.begin("slow").publish(task_manifests, drops_other_tasks=False).tasks == 2


def test_an_id_that_another_snapshot_has_is_not_taken(orders: Snapshots) -> None:
    names = iter(["a", "a", "b"])
    orders.begin("one", name=lambda: next(names)).publish(orders.upload(BOTH), drops_other_tasks=True)
    orders.begin("two", name=lambda: next(names)).publish(orders.upload(BOTH), drops_other_tasks=True)
    assert [entry.snapshot[-1] for entry in orders.app_repository.head().snapshots] == ["b", "a"]
    assert len(orders.fetched()) == 2


@pytest.mark.parametrize("point", PUBLISH_POINTS)
def test_a_publication_that_failed_at_any_point_is_all_or_nothing_and_can_be_retried(
    orders: Snapshots, first: None, point: str
) -> None:
    task_manifests = orders.upload({"0_0": {"left": 100}})
    with pytest.raises(FaultInjected):
        orders.begin("second", faults=InjectedFault(point)).publish(task_manifests, drops_other_tasks=False)
    published = point == "publish.after-head"
    assert orders.requests == ["second", "first"][not published :]
    orders.fetched()
    again = orders.begin("second")
    assert (again.earlier() is not None) == published
    assert again.publish(task_manifests, drops_other_tasks=False).earlier == published
    assert orders.ends["0_0"] == {"left": 100, "right": 50}
    assert orders.requests == ["second", "first"]
    assert len(orders.fetched()) == 2


def test_what_a_snapshot_names_is_there_before_the_snapshot(orders: Snapshots) -> None:
    done: list[str] = []
    put, swap = orders.storage.put, orders.storage.swap
    orders.storage.put = lambda name, content: done.append(name.split("/")[2]) or put(name, content)  # type: ignore[method-assign,func-returns-value]
    orders.storage.swap = lambda *all_: done.append("head") or swap(*all_)  # type: ignore[method-assign,func-returns-value]
    orders.publish("request", BOTH, drops_other_tasks=True)
    assert done == ["packs", "packs", "task-manifests", "manifests", "head"]


def with_more(document: dict[str, Any]) -> dict[str, Any]:
    return {**document, "more": "of another release"}


def test_unknown_fields_are_kept_where_nothing_has_changed(orders: Snapshots, first: None) -> None:
    """A newer release has written the snapshot; this one advances one store of one task of it."""
    (entry,) = orders.app_repository.head().snapshots
    manifest = orders.app_repository.manifest(entry)
    (blob,) = {reference.extent.blob for reference in manifest.value.task_manifests}
    task_manifests, content = [], b""
    for task_manifest in manifest.raw["task_manifests"]:
        at = task_manifest["extent"]
        document = json.loads(zlib.decompress(orders.storage.blobs[blob][0][at["start"] :][: at["bytes"]]))
        document = zlib.compress(
            encode_json(with_more({**document, "stores": [with_more(one) for one in document["stores"]]}))
        )
        digest = sha256(document).hexdigest()
        extent = {
            "blob": orders.app_repository.names.task_manifests("new"),
            "start": len(content),
            "bytes": len(document),
        }
        task_manifests.append(with_more({**task_manifest, "sha256": digest, "extent": extent}))
        content += document
    orders.storage.put(orders.app_repository.names.task_manifests("new"), content)
    newer = with_more({**manifest.raw, "task_manifests": task_manifests})
    written = encode_json(MANIFEST.sealed(newer) if MANIFEST.is_sealed else newer)
    orders.storage.blobs[orders.app_repository.names.manifest(entry.snapshot)] = (written, 0.0)
    head = HEAD.to_json(orders.app_repository.head())
    digest = sha256(written).hexdigest()
    head["snapshots"] = [with_more({**head["snapshots"][0], "sha256": digest})]
    orders.storage.pointers[orders.app_repository.names.head] = encode_json(HEAD.sealed(with_more(head)))

    orders.publish("second", {"0_0": {"left": 100}})
    found = orders.app_repository.read_head()
    assert found is not None
    assert found.raw["more"] == "of another release"
    assert [one.get("more") for one in found.raw["snapshots"]] == [None, "of another release"]
    after = orders.app_repository.manifest(found.head.snapshots[0])
    assert after.raw["more"] == "of another release"
    assert [one.get("more") for one in after.raw["task_manifests"]] == [None, "of another release"]
    read = orders.app_repository.task_manifests(after.value.task_manifests)
    assert read["0_0"].raw["more"] == "of another release"
    assert [one.get("more") for one in read["0_0"].raw["stores"]] == [None, "of another release"]
    assert len(orders.fetched()) == 2
