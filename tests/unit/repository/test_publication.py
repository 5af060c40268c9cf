"""Publication: a new snapshot by one swap of the head, retries, and lost replies."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from statecore.documents import encode_json
from statecore.errors import Corrupted, Fenced, Retryable
from statecore.faults import PUBLISH_POINTS, FaultInjected, InjectedFault
from statecore.formats.kinds import StoreKind
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.head import HEAD, encoded_head
from statecore.repository.manifest import MANIFEST
from statecore.repository.publication import Publication
from statecore.repository.repository import DESCRIPTOR, DESCRIPTOR_NAME
from tests.harness.raising import raises
from tests.harness.simulated_store import Network, Storage, version_of
from tests.unit.repository.snapshots import (
    APPLICATION,
    BOTH,
    NOW,
    Stores,
    blobs_of,
    ends_of,
    fetched,
    publication,
    spec,
    uploaded,
)


def test_the_first_snapshot_makes_the_head(
    app_repository: ApplicationRepository, storage: Storage, directory: Path
) -> None:
    task_manifests = uploaded(app_repository, directory, BOTH)
    begun = publication(app_repository, "first", name=lambda: "5f3a9c21")
    assert begun.earlier() is None
    done = begun.publish(task_manifests, whole=True)
    files = sum(task_manifest.file_bytes for task_manifest in task_manifests)
    assert done.snapshot == "20261123T000000Z-5f3a9c21"
    assert done.created_at == "2026-11-23T00:00:00.000Z"
    assert (done.tasks, done.file_bytes, done.new_bytes, done.earlier, done.concurrent) == (2, files, files, False, 0)
    head = app_repository.head()
    assert (head.application_id, head.generation, len(head.snapshots)) == (APPLICATION, 1, 1)
    entry = head.snapshots[0]
    assert (entry.snapshot, entry.identity, entry.request_id) == (done.snapshot, done.identity, "first")
    manifest = app_repository.manifest(entry).value
    assert (manifest.previous, manifest.generation, manifest.origin) == (None, 1, "tests")
    assert manifest.spec["subtopologies"]["0"]["stores"].keys() == {"left", "right"}
    assert "bootstrap_servers" not in manifest.spec
    assert ends_of(app_repository) == BOTH
    assert fetched(app_repository).keys() == {done.snapshot}


def test_a_snapshot_names_the_one_before_and_what_is_new(
    app_repository: ApplicationRepository, first: None, directory: Path
) -> None:
    before = app_repository.head()
    task_manifests = uploaded(app_repository, directory, {"0_0": {"left": 100, "right": 50}})
    done = publication(app_repository, "second").publish(task_manifests, whole=False)
    head = app_repository.head()
    assert head.snapshots[1:] == before.snapshots
    assert head.generation == 2
    assert app_repository.manifest(head.snapshots[0]).value.previous == before.snapshots[0].snapshot
    assert done.new_bytes == 40, "of the run above alone"
    assert len(fetched(app_repository)) == 2


def test_stores_and_tasks_that_a_job_did_not_touch_stay_and_are_not_written_again(
    app_repository: ApplicationRepository, first: None, storage: Storage, directory: Path
) -> None:
    before = {
        task_manifest.task: task_manifest
        for task_manifest in app_repository.manifest(app_repository.head().snapshots[0]).value.task_manifests
    }
    publication(app_repository, "second").publish(
        uploaded(app_repository, directory, {"0_0": {"left": 100}}), whole=False
    )
    assert ends_of(app_repository) == {"0_0": {"left": 100, "right": 50}, "0_1": {"left": 50, "right": 50}}
    after = {
        task_manifest.task: task_manifest
        for task_manifest in app_repository.manifest(app_repository.head().snapshots[0]).value.task_manifests
    }
    assert after["0_1"] == before["0_1"]
    assert after["0_0"].sha256 != before["0_0"].sha256
    assert len(blobs_of(storage, "task-manifests")) == 2


def test_stores_that_are_no_longer_declared_or_of_another_kind_go_with_the_task_that_is_made(
    app_repository: ApplicationRepository, first: None, directory: Path
) -> None:
    task_manifests = uploaded(app_repository, directory, {"0_0": {"left": 100}})
    publication(app_repository, "second", stores=["left"]).publish(task_manifests, whole=False)
    assert ends_of(app_repository) == {"0_0": {"left": 100}, "0_1": {"left": 50, "right": 50}}
    other = replace(spec(), stores=(spec().stores[0], replace(spec().stores[1], kind=StoreKind.TIMESTAMPED_KEY_VALUE)))
    again = Publication(app_repository, other, request="third", origin="tests", clock=lambda: NOW)
    done = again.publish(uploaded(app_repository, directory, {"0_1": {"left": 100}}), whole=False)
    assert ends_of(app_repository) == {"0_0": {"left": 100}, "0_1": {"left": 100}}
    (warning,) = done.warnings
    assert re.findall(r"right|0_\d|[a-z-]*key-value", warning) == ["right", "0_1", "key-value", "timestamped-key-value"]


@pytest.mark.parametrize("changes", [{"changelog": "rights"}, {"subtopology": 1}, {"changelog": "none"}])
def test_a_rebuilt_task_drops_stores_declared_elsewhere(
    app_repository: ApplicationRepository, first: None, directory: Path, changes: dict[str, Any]
) -> None:
    other = replace(spec(), stores=(spec().stores[0], replace(spec().stores[1], **changes)))
    task_manifests = uploaded(app_repository, directory, {"0_0": {"left": 100}})
    Publication(app_repository, other, request="second", origin="tests", clock=lambda: NOW).publish(
        task_manifests, whole=False
    )
    assert ends_of(app_repository)["0_0"] == {"left": 100}


def test_a_whole_application_is_all_that_there_is(
    app_repository: ApplicationRepository, first: None, directory: Path
) -> None:
    publication(app_repository, "second").publish(
        uploaded(app_repository, directory, {"0_0": {"left": 100}}), whole=True
    )
    assert ends_of(app_repository) == {"0_0": {"left": 100}}
    assert len(fetched(app_repository)) == 2


def test_a_retry_of_a_request_finds_what_was_published_also_below_what_came_later(
    app_repository: ApplicationRepository, first: None, storage: Storage, directory: Path
) -> None:
    publication(app_repository, "second").publish(
        uploaded(app_repository, directory, {"0_1": {"left": 100}}), whole=False
    )
    before = dict(storage.pointers), dict(storage.blobs)
    again = publication(app_repository, "first")
    found = again.earlier()
    assert found is not None
    assert found.earlier
    assert found.snapshot == app_repository.head().snapshots[1].snapshot
    assert again.publish(uploaded(app_repository, directory, BOTH), whole=True) == found, (
        "also where nobody has asked before"
    )
    assert (storage.pointers, storage.blobs) == before


@pytest.mark.parametrize("ends", [BOTH, {"0_0": {"left": 100}}])
def test_of_two_tries_of_a_request_at_the_same_time_one_publishes_and_the_other_finds_it(
    app_repository: ApplicationRepository, first: None, storage: Storage, directory: Path, ends: Stores
) -> None:
    """One of them was taken for dead. Where nothing is new, no task differs by which it could be seen."""
    one, other = publication(app_repository, "second"), publication(app_repository, "second")
    task_manifests = uploaded(app_repository, directory, ends)
    done = one.publish(task_manifests, whole=False)
    found = other.publish(task_manifests, whole=False)
    assert found == replace(done, earlier=True, made_tasks=(), kept_tasks=())
    assert [entry.request_id for entry in app_repository.head().snapshots] == ["second", "first"]
    assert len(blobs_of(storage, "manifests")) == 2


@pytest.mark.parametrize("first_one", [False, True])
def test_a_publication_into_a_replaced_repository_is_fenced(
    app_repository: ApplicationRepository, storage: Storage, directory: Path, first_one: bool
) -> None:
    if not first_one:
        publication(app_repository, "first").publish(uploaded(app_repository, directory, BOTH), whole=True)
    job = publication(app_repository, "late")
    task_manifests = uploaded(app_repository, directory, {"0_0": {"left": 300, "right": 300}})
    before = dict(storage.pointers), blobs_of(storage, "manifests")
    del storage.blobs[DESCRIPTOR_NAME]
    with raises(Corrupted, "repository-descriptor-missing") as missing:
        job.publish(task_manifests, whole=False)
    assert "statecore repo init" in missing.value.action
    assert storage.pointers == before[0]
    for name in set(blobs_of(storage, "manifests")) - set(before[1]):
        del storage.blobs[name]
    storage.put(DESCRIPTOR_NAME, DESCRIPTOR.encode(replace(app_repository.repository.descriptor, id="another")))
    with raises(Fenced, "repository-replaced", repository_id="r1", found_repository_id="another"):
        job.publish(task_manifests, whole=False)
    assert (storage.pointers, blobs_of(storage, "manifests")) == before


def test_an_unreachable_repository_descriptor_can_be_retried(
    app_repository: ApplicationRepository, first: None, network: Network, storage: Storage, directory: Path
) -> None:
    job = publication(app_repository, "next")
    task_manifests = uploaded(app_repository, directory, {"0_0": {"left": 300, "right": 300}})
    before = dict(storage.pointers)
    with patch.object(network, "read", side_effect=unread(network.read)), pytest.raises(Retryable):
        job.publish(task_manifests, whole=False)
    assert storage.pointers == before
    assert not publication(app_repository, "next").publish(task_manifests, whole=False).earlier


def unread(read: Callable[..., str]) -> Callable[..., str]:
    """Reads of which those of the mark fail."""

    def fail(request: str, name: str, faults: tuple[str, ...]) -> str:
        if name == DESCRIPTOR_NAME:
            raise Retryable("Nobody could look.", code="test-error", action="Try again.")
        return read(request, name, faults)

    return fail


@pytest.mark.parametrize("fault", ["timeout", "late"])
@pytest.mark.parametrize("settled", [True, False])
def test_a_swap_without_a_reply_is_found_by_the_retry(
    app_repository: ApplicationRepository, first: None, network: Network, directory: Path, fault: str, settled: bool
) -> None:
    task_manifests = uploaded(app_repository, directory, {"0_0": {"left": 100}})
    lost = publication(app_repository, "second")
    network.chance.random = lambda: 0.9  # type: ignore[method-assign]
    network.fault = lambda request, possible: fault if request == "swap" else ""  # type: ignore[method-assign]
    with pytest.raises(Retryable):
        lost.publish(task_manifests, whole=False)
    del network.fault  # type: ignore[method-assign]
    if settled and fault == "late":
        network._under_way.pop()()
    again = publication(app_repository, "second")
    if fault == "late" and not settled:  # it comes while the retry is at work
        network._under_way.pop()()
    done = again.earlier() or again.publish(task_manifests, whole=False)
    assert done.earlier
    assert [entry.request_id for entry in app_repository.head().snapshots] == ["second", "first"]


def test_an_answer_that_comes_after_another_has_published_changes_nothing(
    app_repository: ApplicationRepository, first: None, network: Network, directory: Path
) -> None:
    task_manifests = uploaded(app_repository, directory, {"0_0": {"left": 100}})
    network.chance.random = lambda: 0.9  # type: ignore[method-assign]
    network.fault = lambda request, possible: "late" if request == "swap" else ""  # type: ignore[method-assign]
    with pytest.raises(Retryable):
        publication(app_repository, "late").publish(task_manifests, whole=False)
    del network.fault  # type: ignore[method-assign]
    publication(app_repository, "other").publish(task_manifests, whole=False)
    network._under_way.pop()()
    assert [entry.request_id for entry in app_repository.head().snapshots] == ["other", "first"]


def test_a_swap_that_was_sent_again_knows_its_own(
    app_repository: ApplicationRepository, first: None, network: Network, directory: Path
) -> None:
    """The store says that the head has another version, and it is the one that this job has made."""
    swap = network.storage.swap

    def lost(name: str, content: bytes, expected: str | None) -> str | None:
        swap(name, content, expected)
        return None

    network.storage.swap = lost  # type: ignore[method-assign]
    done = publication(app_repository, "second").publish(
        uploaded(app_repository, directory, {"0_0": {"left": 100}}), whole=False
    )
    assert not done.earlier
    assert [entry.request_id for entry in app_repository.head().snapshots] == ["second", "first"]
    assert len(fetched(app_repository)) == 2


def test_a_job_that_always_loses_the_swap_ends_with_a_retryable_error(
    app_repository: ApplicationRepository, first: None, network: Network, storage: Storage, directory: Path
) -> None:
    begun = publication(app_repository, "slow")
    task_manifests = uploaded(app_repository, directory, {"0_0": {"left": 100}})

    def overtaken(request: str, possible: tuple[str, ...]) -> str:
        if request == "swap":
            raw = storage.pointers[app_repository.names.head]
            found = HEAD.read(raw)
            other = replace(found.value, generation=found.value.generation + 1)
            storage.swap(app_repository.names.head, encoded_head(other, found.raw), version_of(raw))
        return ""

    network.fault = overtaken  # type: ignore[method-assign]
    with raises(Retryable, "head-contended"):
        begun.publish(task_manifests, whole=False)
    del network.fault  # type: ignore[method-assign]
    assert len(blobs_of(storage, "manifests")) == 1
    assert publication(app_repository, "slow").publish(task_manifests, whole=False).tasks == 2


def test_an_id_that_another_snapshot_has_is_not_taken(app_repository: ApplicationRepository, directory: Path) -> None:
    names = iter(["a", "a", "b"])
    publication(app_repository, "one", name=lambda: next(names)).publish(
        uploaded(app_repository, directory, BOTH), whole=True
    )
    publication(app_repository, "two", name=lambda: next(names)).publish(
        uploaded(app_repository, directory, BOTH), whole=True
    )
    assert [entry.snapshot[-1] for entry in app_repository.head().snapshots] == ["b", "a"]
    assert len(fetched(app_repository)) == 2


@pytest.mark.parametrize("point", PUBLISH_POINTS)
def test_a_publication_that_failed_at_any_point_is_all_or_nothing_and_can_be_retried(
    app_repository: ApplicationRepository, first: None, directory: Path, point: str
) -> None:
    task_manifests = uploaded(app_repository, directory, {"0_0": {"left": 100}})
    with pytest.raises(FaultInjected):
        publication(app_repository, "second", faults=InjectedFault(point)).publish(task_manifests, whole=False)
    published = point == "publish.after-head"
    assert [entry.request_id for entry in app_repository.head().snapshots] == ["second", "first"][not published :]
    fetched(app_repository)
    again = publication(app_repository, "second")
    assert (again.earlier() is not None) == published
    assert again.publish(task_manifests, whole=False).earlier == published
    assert ends_of(app_repository)["0_0"] == {"left": 100, "right": 50}
    assert [entry.request_id for entry in app_repository.head().snapshots] == ["second", "first"]
    assert len(fetched(app_repository)) == 2


def test_what_a_snapshot_names_is_there_before_the_snapshot(
    app_repository: ApplicationRepository, network: Network, storage: Storage, directory: Path
) -> None:
    done: list[str] = []
    put, swap = storage.put, storage.swap
    storage.put = lambda name, content: done.append(name.split("/")[2]) or put(name, content)  # type: ignore[method-assign,func-returns-value]
    storage.swap = lambda *all_: done.append("head") or swap(*all_)  # type: ignore[method-assign,func-returns-value]
    publication(app_repository).publish(uploaded(app_repository, directory, BOTH), whole=True)
    assert done == ["packs", "packs", "task-manifests", "manifests", "head"]


def with_more(document: dict[str, Any]) -> dict[str, Any]:
    return {**document, "more": "of another release"}


def test_unknown_fields_are_kept_where_nothing_has_changed(
    app_repository: ApplicationRepository, first: None, storage: Storage, directory: Path
) -> None:
    """A newer release has written the snapshot; this one advances one store of one task of it."""
    (entry,) = app_repository.head().snapshots
    manifest = app_repository.manifest(entry)
    (blob,) = {reference.extent.blob for reference in manifest.value.task_manifests}
    task_manifests, content = [], b""
    for task_manifest in manifest.raw["task_manifests"]:
        at = task_manifest["extent"]
        document = json.loads(zlib.decompress(storage.blobs[blob][0][at["start"] :][: at["bytes"]]))
        document = zlib.compress(
            encode_json(with_more({**document, "stores": [with_more(one) for one in document["stores"]]}))
        )
        digest = sha256(document).hexdigest()
        extent = {"blob": app_repository.names.task_manifests("new"), "start": len(content), "bytes": len(document)}
        task_manifests.append(with_more({**task_manifest, "sha256": digest, "extent": extent}))
        content += document
    storage.put(app_repository.names.task_manifests("new"), content)
    newer = with_more({**manifest.raw, "task_manifests": task_manifests})
    written = encode_json(MANIFEST.sealed(newer) if MANIFEST.is_sealed else newer)
    storage.blobs[app_repository.names.manifest(entry.snapshot)] = (written, 0.0)
    head = HEAD.to_json(app_repository.head())
    digest = sha256(written).hexdigest()
    head["snapshots"] = [with_more({**head["snapshots"][0], "sha256": digest})]
    storage.pointers[app_repository.names.head] = encode_json(HEAD.sealed(with_more(head)))

    publication(app_repository, "second").publish(
        uploaded(app_repository, directory, {"0_0": {"left": 100}}), whole=False
    )
    found = app_repository.read_head()
    assert found is not None
    assert found.raw["more"] == "of another release"
    assert [one.get("more") for one in found.raw["snapshots"]] == [None, "of another release"]
    after = app_repository.manifest(found.head.snapshots[0])
    assert after.raw["more"] == "of another release"
    assert [one.get("more") for one in after.raw["task_manifests"]] == [None, "of another release"]
    read = app_repository.task_manifests(after.value.task_manifests)
    assert read["0_0"].raw["more"] == "of another release"
    assert [one.get("more") for one in read["0_0"].raw["stores"]] == [None, "of another release"]
    assert len(fetched(app_repository)) == 2
