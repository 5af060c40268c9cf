"""Publishing: one swap of the head, whoever else is at work; nothing goes back, and nothing is published twice."""

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
from statecore.repository.head_repair import apply_repair, plan_repair
from statecore.repository.manifest import MANIFEST, TaskManifest
from statecore.repository.publication import Publication
from statecore.repository.repository import DESCRIPTOR, DESCRIPTOR_NAME
from tests.harness.raising import raises
from tests.harness.simulated_store import Network, Storage, version_of
from tests.unit.repository.snapshots import (
    APPLICATION,
    NOW,
    ends_of,
    fetched,
    publication,
    spec,
    store_of,
    uploaded,
)

Stores = dict[str, dict[str, int]]
BOTH: Stores = {"0_0": {"left": 50, "right": 50}, "0_1": {"left": 50, "right": 50}}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "runs"


@pytest.fixture
def first(app_repository: ApplicationRepository, directory: Path) -> None:
    """A snapshot of all tasks."""
    publication(app_repository, "first").publish(uploaded(app_repository, directory, BOTH), whole=True)


def blobs_of(storage: Storage, kind: str) -> list[str]:
    return sorted(name for name in storage.blobs if name.split("/")[2:3] == [kind])


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


def test_jobs_that_touch_other_tasks_are_put_beside_each_other(
    app_repository: ApplicationRepository, first: None, directory: Path
) -> None:
    one, other = publication(app_repository, "one"), publication(app_repository, "other")
    task_manifests = uploaded(app_repository, directory, {"0_0": {"left": 100, "right": 100}})
    beside = uploaded(app_repository, directory, {"0_1": {"left": 150}, "0_2": {"left": 10}})
    assert one.publish(task_manifests, whole=False).concurrent == 0
    done = other.publish(beside, whole=False)
    assert done.concurrent == 1
    assert ends_of(app_repository) == {
        "0_0": {"left": 100, "right": 100},
        "0_1": {"left": 150, "right": 50},
        "0_2": {"left": 10},
    }
    requests = [entry.request_id for entry in app_repository.head().snapshots]
    assert requests == ["other", "one", "first"]
    assert len(fetched(app_repository)) == 3


def test_two_jobs_that_make_the_head_at_the_same_time_both_count(
    app_repository: ApplicationRepository, directory: Path
) -> None:
    one, other = publication(app_repository, "one"), publication(app_repository, "other")
    one.publish(uploaded(app_repository, directory, {"0_0": {"left": 50}}), whole=False)
    other.publish(uploaded(app_repository, directory, {"0_1": {"left": 50}}), whole=False)
    assert ends_of(app_repository) == {"0_0": {"left": 50}, "0_1": {"left": 50}}


@pytest.mark.parametrize("newer", [{"0_0": {"left": 150}}, {"0_0": {"right": 50}}])
@pytest.mark.parametrize("whole", [False, True])
def test_a_job_is_fenced_if_another_has_published_the_same_task(
    app_repository: ApplicationRepository, first: None, storage: Storage, directory: Path, newer: Stores, whole: bool
) -> None:
    late = publication(app_repository, "late")
    publication(app_repository, "other").publish(
        uploaded(app_repository, directory, {"0_0": {"left": 100}}), whole=False
    )
    before = storage.pointers[app_repository.names.head]
    with raises(Fenced, "publication-conflict", application_id="orders", reason="tasks-published", tasks=["0_0"]):
        late.publish(uploaded(app_repository, directory, newer), whole=whole)
    assert storage.pointers[app_repository.names.head] == before
    assert len(blobs_of(storage, "manifests")) == 2, "what nobody will name is not left behind"


def test_a_whole_application_is_fenced_by_any_task_that_others_have_published(
    app_repository: ApplicationRepository, first: None, directory: Path
) -> None:
    late = publication(app_repository, "late")
    publication(app_repository, "other").publish(
        uploaded(app_repository, directory, {"0_7": {"left": 10}}), whole=False
    )
    with raises(Fenced, "publication-conflict", reason="tasks-published", tasks=["0_7"]):
        late.publish(uploaded(app_repository, directory, {"0_0": {"left": 100}, "0_1": {"left": 100}}), whole=True)


def test_a_job_begun_before_the_head_was_recreated_is_fenced(
    app_repository: ApplicationRepository, first: None, storage: Storage, directory: Path
) -> None:
    late = publication(app_repository, "late")
    raw = storage.pointers[app_repository.names.head]
    found = HEAD.read(raw)
    anew = replace(found.value, epoch=found.value.epoch + 1, generation=found.value.generation + 1)
    storage.swap(app_repository.names.head, encoded_head(anew, found.raw), version_of(raw))
    task_manifests = uploaded(app_repository, directory, {"0_0": {"left": 100}})
    with raises(Fenced, "publication-conflict", reason="head-recreated"):
        late.publish(task_manifests, whole=False)
    publication(app_repository, "late").publish(task_manifests, whole=False)
    assert app_repository.head().epoch == 1


def test_a_publication_never_lowers_an_offset(
    app_repository: ApplicationRepository, first: None, storage: Storage, directory: Path
) -> None:
    before = dict(storage.pointers)
    for ends in ({"0_0": {"left": 49}}, {"0_1": {"left": 90, "right": 10}}):
        with raises(Fenced, "publication-conflict", reason="snapshot-newer", found=50):
            publication(app_repository, "late").publish(uploaded(app_repository, directory, ends), whole=False)
    assert storage.pointers == before
    publication(app_repository, "same").publish(uploaded(app_repository, directory, {"0_0": {"left": 50}}), whole=False)


def test_a_recreated_topic_may_have_lower_offsets(
    app_repository: ApplicationRepository, first: None, directory: Path
) -> None:
    task_manifests = uploaded(app_repository, directory, {"0_0": {"left": 10}}, topic_id="1" * 32)
    publication(app_repository, "anew").publish(task_manifests, whole=False)
    assert ends_of(app_repository)["0_0"] == {"left": 10, "right": 50}


def test_a_store_that_is_empty_for_want_of_an_offset_is_behind_what_counts(
    app_repository: ApplicationRepository, first: None, directory: Path
) -> None:
    left = TaskManifest("0_0", (store_of("0_0", "left", (), end=0, restored_by_kafka_streams=True),))
    with raises(Fenced, "publication-conflict", reason="snapshot-newer", offset=0, found=50):
        publication(app_repository, "left").publish([left], whole=False)


def test_offsets_of_a_versioned_store_restored_by_kafka_streams_conflict_with_none(
    app_repository: ApplicationRepository, first: None, directory: Path
) -> None:
    left = store_of("0_0", "left", (), end=0, restored_by_kafka_streams=True)
    left = replace(left, kind=StoreKind.VERSIONED_KEY_VALUE)
    publication(app_repository, "left").publish([TaskManifest("0_0", (left,))], whole=False)
    assert ends_of(app_repository)["0_0"] == {"left": 0, "right": 50}
    publication(app_repository, "again").publish(
        uploaded(app_repository, directory, {"0_0": {"left": 10}}), whole=False
    )
    assert ends_of(app_repository)["0_0"] == {"left": 10, "right": 50}


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


def damaged(storage: Storage, name: str, kind: str) -> None:
    content = storage.blobs.pop(name)[0]
    if kind == "shorter":
        storage.blobs[name] = (content[:-1], 0.0)


@pytest.mark.parametrize("kind", ["missing", "shorter"])
def test_an_inherited_task_that_cannot_be_fetched_is_named_and_the_others_are_published(
    app_repository: ApplicationRepository, first: None, storage: Storage, directory: Path, kind: str
) -> None:
    (entry,) = app_repository.head().snapshots
    task_manifests = app_repository.task_manifests(app_repository.manifest(entry).value.task_manifests)
    ((_, extent),) = task_manifests["0_1"].manifest.stores[0].extents
    damaged(storage, extent.blob, kind)
    done = publication(app_repository, "second").publish(
        uploaded(app_repository, directory, {"0_0": {"left": 100}}), whole=False
    )
    assert ends_of(app_repository) == {"0_0": {"left": 100, "right": 50}, "0_1": {"left": 50, "right": 50}}
    (warning,) = done.warnings
    assert re.findall(r"\b\d_\d\b", warning)[0] == "0_1"
    assert extent.blob in warning
    assert re.findall(r"statecore \w+", warning) == ["statecore backup", "statecore restore"]


def test_an_inherited_store_that_cannot_be_fetched_is_named_with_its_task(
    app_repository: ApplicationRepository, storage: Storage, directory: Path
) -> None:
    for name in ("left", "right"):
        publication(app_repository, name).publish(uploaded(app_repository, directory, {"0_0": {name: 50}}), whole=False)
    task_manifests = app_repository.task_manifests(
        app_repository.manifest(app_repository.head().snapshots[0]).value.task_manifests
    )
    ((_, extent),) = task_manifests["0_0"].manifest.stores[1].extents
    damaged(storage, extent.blob, "missing")
    done = publication(app_repository, "second").publish(
        uploaded(app_repository, directory, {"0_0": {"left": 100}}), whole=False
    )
    (warning,) = done.warnings
    assert "store right of task 0_0" in warning
    assert extent.blob in warning
    again = publication(app_repository, "third").publish(
        uploaded(app_repository, directory, {"0_0": {"right": 50}}), whole=False
    )
    assert again.warnings == ()


def test_a_store_whose_base_runs_cannot_be_fetched_is_named_with_its_task(
    app_repository: ApplicationRepository, storage: Storage, directory: Path
) -> None:
    publication(app_repository, "first").publish(
        uploaded(app_repository, directory, {"0_0": {"left": 50}}), whole=False
    )
    (entry,) = app_repository.head().snapshots
    below = app_repository.task_manifests(app_repository.manifest(entry).value.task_manifests)["0_0"].manifest
    ((_, extent),) = below.stores[0].extents
    damaged(storage, extent.blob, "missing")
    made = replace(below, stores=(replace(below.stores[0], base_snapshot=entry.snapshot),))
    (warning,) = publication(app_repository, "restore").publish([made], whole=False).warnings
    assert "store left of task 0_0" in warning
    assert extent.blob in warning
    assert "statecore restore --from none" in warning


def test_an_inherited_task_manifest_that_cannot_be_read_is_named(
    app_repository: ApplicationRepository, storage: Storage, directory: Path
) -> None:
    for task in ("0_0", "0_1", "0_2"):
        publication(app_repository, task).publish(
            uploaded(app_repository, directory, {task: {"left": 50, "right": 50}}), whole=False
        )
    references = {
        task_manifest.task: task_manifest
        for task_manifest in app_repository.manifest(app_repository.head().snapshots[0]).value.task_manifests
    }
    damaged(storage, references["0_1"].extent.blob, "shorter")
    damaged(storage, references["0_2"].extent.blob, "missing")
    done = publication(app_repository, "again").publish(
        uploaded(app_repository, directory, {"0_0": {"left": 50}}), whole=False
    )
    (warning,) = done.warnings
    assert "Tasks 0_1, 0_2 were inherited" in warning


def test_a_publication_that_inherits_nothing_checks_nothing(
    app_repository: ApplicationRepository, first: None, storage: Storage, network: Network, directory: Path
) -> None:
    task_manifests = uploaded(app_repository, directory, {task: {"left": 100, "right": 100} for task in BOTH})
    for name in blobs_of(storage, "packs")[:1]:
        storage.blobs.pop(name)
    asked: list[str] = []
    network.fault = lambda request, _: asked.append(request) or ""  # type: ignore[method-assign,func-returns-value]
    assert publication(app_repository, "second").publish(task_manifests, whole=True).warnings == ()
    assert sorted(asked) == ["get", "get", "get", "put", "put", "read", "swap"]


def test_inherited_runs_cost_one_check_for_each_blob(
    app_repository: ApplicationRepository, first: None, network: Network, directory: Path
) -> None:
    task_manifests = uploaded(app_repository, directory, {"0_0": {"left": 100, "right": 100}})
    asked: list[str] = []
    network.fault = lambda request, _: asked.append(request) or ""  # type: ignore[method-assign,func-returns-value]
    assert publication(app_repository, "second").publish(task_manifests, whole=False).warnings == ()
    assert sorted(asked) == ["get", "get", "get", "get", "head", "put", "put", "read", "swap"]


@pytest.mark.parametrize("request_", ["head", "get"])
def test_a_failed_check_of_inherited_runs_is_a_warning(
    app_repository: ApplicationRepository, first: None, network: Network, directory: Path, request_: str
) -> None:
    task_manifests = uploaded(app_repository, directory, {"0_0": {"left": 100}})
    swapped: list[str] = []

    def fault(request: str, _: tuple[str, ...]) -> str:
        swapped.extend([request] * (request == "swap"))
        return "refused" if swapped and request == request_ else ""

    network.fault = fault  # type: ignore[method-assign]
    (warning,) = publication(app_repository, "second").publish(task_manifests, whole=False).warnings
    assert "could not be checked" in warning
    del network.fault  # type: ignore[method-assign]
    assert ends_of(app_repository)["0_0"] == {"left": 100, "right": 50}


@pytest.mark.parametrize("which", ["manifests", "task-manifests"])
def test_an_unreadable_newest_snapshot_is_an_error_with_the_repair_command(
    app_repository: ApplicationRepository, first: None, storage: Storage, directory: Path, which: str
) -> None:
    publication(app_repository, "second").publish(
        uploaded(app_repository, directory, {"0_0": {"left": 100}}), whole=False
    )
    newest = app_repository.head().snapshots[0]
    reference = app_repository.manifest(newest).value.reference("0_0")
    assert reference is not None
    damaged(
        storage,
        app_repository.names.manifest(newest.snapshot) if which == "manifests" else reference.extent.blob,
        "missing",
    )
    task_manifests = uploaded(app_repository, directory, {"0_0": {"left": 150, "right": 50}})
    with raises(Corrupted, "blob-missing") as caught:
        publication(app_repository, "third").publish(task_manifests, whole=False)
    assert f"{app_repository.repair_command} --apply" in caught.value.action
    assert caught.value.context["goes_on"] is True
    apply_repair(app_repository, plan_repair(app_repository))
    publication(app_repository, "third").publish(task_manifests, whole=False)
    assert ends_of(app_repository)["0_0"] == {"left": 150, "right": 50}
    assert len(fetched(app_repository)) == 2


@pytest.mark.parametrize("whole", [False, True])
def test_what_is_damaged_is_whole_once_the_same_is_published_again(
    app_repository: ApplicationRepository, first: None, storage: Storage, directory: Path, whole: bool
) -> None:
    for number, name in enumerate([*blobs_of(storage, "packs"), *blobs_of(storage, "files")]):
        content = storage.blobs[name][0]
        storage.blobs[name] = (bytes([content[0] ^ 1]) + content[1:], 0.0)
        newest = app_repository.task_manifests(
            app_repository.manifest(app_repository.head().snapshots[0]).value.task_manifests
        )
        task_manifests = uploaded(app_repository, directory, BOTH, before=[read.manifest for read in newest.values()])
        publication(app_repository, f"again-{number}").publish(task_manifests, whole=whole)
    assert len(fetched(app_repository)) == number + 2
