"""What a repository has of an application: whatever is read is what its hash says, or it is said what is wrong."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

from statecore.errors import Corrupted, Invalid, NotFound, Retryable
from statecore.repository.application_repository import ApplicationRepository, applications_in
from statecore.repository.head import HEAD, SnapshotEntry
from statecore.repository.manifest import MANIFEST, Extent
from tests.harness.raising import raises
from tests.harness.simulated_store import Network, SimulatedBlobs, SimulatedPointers, Storage, all_flips, flipped
from tests.unit.repository.snapshots import APPLICATION, fetched, publication, repository, uploaded

TWO_TASKS = {"0_0": {"left": 50, "right": 50}, "0_1": {"left": 100}}


@pytest.fixture
def entry(app_repository: ApplicationRepository, tmp_path: Path) -> SnapshotEntry:
    """A snapshot that counts."""
    publication(app_repository).publish(uploaded(app_repository, tmp_path, TWO_TASKS), drops_other_tasks=True)
    newest = app_repository.head().newest
    assert newest is not None
    return newest


def change(storage: Storage, name: str, content: bytes | None) -> None:
    if content is None:
        del storage.blobs[name]
    else:
        storage.blobs[name] = (content, 0.0)


def test_what_was_published_is_read(app_repository: ApplicationRepository, entry: SnapshotEntry) -> None:
    (task_manifests,) = fetched(app_repository).values()
    assert {task: [store.store for store in read.manifest.stores] for task, read in task_manifests.items()} == {
        "0_0": ["left", "right"],
        "0_1": ["left"],
    }
    assert app_repository.manifest(entry).value.snapshot == entry.snapshot


def test_every_flipped_bit_of_a_manifest_is_found(
    app_repository: ApplicationRepository, entry: SnapshotEntry, storage: Storage
) -> None:
    name = app_repository.names.manifest(entry.snapshot)
    for damaged in all_flips(storage.blobs[name][0]):
        change(storage, name, damaged)
        with raises(Corrupted, "manifest-damaged", snapshot=entry.snapshot):
            app_repository.manifest(entry)


def test_every_flipped_bit_of_a_task_manifest_is_found(
    app_repository: ApplicationRepository, entry: SnapshotEntry, storage: Storage
) -> None:
    references = app_repository.manifest(entry).value.task_manifests
    (name,) = {reference.extent.blob for reference in references}
    for damaged in all_flips(storage.blobs[name][0]):
        change(storage, name, damaged)
        with raises(Corrupted, "manifest-damaged"):
            app_repository.task_manifests(references)


def test_every_flipped_bit_of_a_head_is_found(
    app_repository: ApplicationRepository, entry: SnapshotEntry, storage: Storage
) -> None:
    for damaged in all_flips(storage.pointers[app_repository.names.head]):
        storage.pointers[app_repository.names.head] = damaged
        with pytest.raises((Corrupted, Invalid), match="head"):
            app_repository.read_head()


def test_a_manifest_that_is_missing_is_no_snapshot_that_is_not_there(
    app_repository: ApplicationRepository, entry: SnapshotEntry, storage: Storage
) -> None:
    change(storage, app_repository.names.manifest(entry.snapshot), None)
    with raises(Corrupted, "blob-missing") as caught:
        app_repository.manifest(entry)
    assert caught.value.context["blob"] == app_repository.names.manifest(entry.snapshot)
    assert f"({app_repository.list_command})" in caught.value.action


@pytest.mark.parametrize("left", [None, 0, 1, -1])
def test_missing_or_truncated_task_manifests_are_found(
    app_repository: ApplicationRepository, entry: SnapshotEntry, storage: Storage, left: int | None
) -> None:
    references = app_repository.manifest(entry).value.task_manifests
    name = references[0].extent.blob
    change(storage, name, None if left is None else storage.blobs[name][0][:left])
    with raises(Corrupted, "blob-missing" if left is None else "manifest-damaged"):
        app_repository.task_manifests(references)


def test_task_manifests_of_one_blob_are_read_with_one_request(
    app_repository: ApplicationRepository, entry: SnapshotEntry, network: Network
) -> None:
    asked = []
    network.fault = lambda request, possible: asked.append(request) or ""  # type: ignore[method-assign,func-returns-value]
    references = app_repository.manifest(entry).value.task_manifests
    assert sorted(app_repository.task_manifests(references)) == ["0_0", "0_1"]
    assert app_repository.task_manifests([references[1]])["0_1"].manifest.task == "0_1"
    assert app_repository.task_manifests([]) == {}
    assert asked == ["get", "get", "get"]


@pytest.mark.parametrize(("application", "identifier"), [("payments", "r1"), (APPLICATION, "r2")])
def test_a_head_and_a_manifest_of_elsewhere_are_refused(
    app_repository: ApplicationRepository,
    entry: SnapshotEntry,
    network: Network,
    storage: Storage,
    application: str,
    identifier: str,
) -> None:
    other = ApplicationRepository(
        repository(SimulatedBlobs(network), SimulatedPointers(network), identifier=identifier), application
    )
    storage.pointers[other.names.head] = storage.pointers[app_repository.names.head]
    with raises(
        Invalid, "head-foreign", repository_id=identifier, found_application_id="orders", found_repository_id="r1"
    ):
        other.read_head()
    change(
        storage, other.names.manifest(entry.snapshot), storage.blobs[app_repository.names.manifest(entry.snapshot)][0]
    )
    with raises(
        Invalid, "manifest-foreign", snapshot=entry.snapshot, found_application_id="orders", found_repository_id="r1"
    ) as caught:
        other.manifest(entry)
    assert "copied" in caught.value.action


def test_a_manifest_of_another_version_is_refused_by_name(
    app_repository: ApplicationRepository, entry: SnapshotEntry, storage: Storage
) -> None:
    name = app_repository.names.manifest(entry.snapshot)
    newer = storage.blobs[name][0].replace(b'"version": 1', b'"version": 3')
    change(storage, name, newer)
    with pytest.raises(Invalid, match="has version 3, and this release supports 1"):
        app_repository.manifest(replace(entry, sha256=sha256(newer).hexdigest()))


def test_an_application_that_is_not_there_is_not_found_and_others_are_named(
    app_repository: ApplicationRepository, entry: SnapshotEntry
) -> None:
    other = ApplicationRepository(app_repository.repository, "payments")
    assert other.read_head() is None
    with raises(NotFound, "snapshots-not-found", application_id="payments", applications=["orders"]):
        other.head()


def test_an_empty_repository_says_that_it_is_empty(app_repository: ApplicationRepository) -> None:
    with raises(NotFound, "snapshots-not-found", application_id="orders", applications=[]) as caught:
        app_repository.head()
    assert "publish a snapshot first" in caught.value.action


def test_a_head_that_is_lost_is_to_be_repaired(
    app_repository: ApplicationRepository, entry: SnapshotEntry, storage: Storage
) -> None:
    del storage.pointers[app_repository.names.head]
    with pytest.raises(NotFound) as caught:
        app_repository.head()
    assert caught.value.code == "head-not-found"
    assert app_repository.repair_command in caught.value.action


@pytest.mark.parametrize("request_", ["read", "list"])
def test_an_unreachable_store_is_not_reported_empty(
    app_repository: ApplicationRepository, network: Network, request_: str
) -> None:
    network.fault = lambda request, possible: "refused" if request == request_ else ""  # type: ignore[method-assign]
    with raises(Retryable, "object-store-unreachable"):
        app_repository.head()


def test_an_unreachable_store_is_not_reported_damaged(
    app_repository: ApplicationRepository, entry: SnapshotEntry, network: Network
) -> None:
    references = app_repository.manifest(entry).value.task_manifests
    network.fault = lambda request, possible: "refused"  # type: ignore[method-assign]
    for ask in (
        lambda: app_repository.manifest(entry),
        lambda: app_repository.task_manifests(references),
        lambda: app_repository.read(Extent("a", 0, 1), "A file"),
        app_repository.applications,
    ):
        with pytest.raises(Retryable):
            ask()


def test_applications_with_a_common_prefix_are_separate(
    app_repository: ApplicationRepository, storage: Storage
) -> None:
    for name in ("a", "a-b", "a.b", "b"):
        storage.put(f"apps/{name}/manifests/1.json", b"")
        storage.put(f"apps/{name}/packs/1", b"")
    storage.put("apps/c/manifests/1.json", b"")
    storage.put("repository.json", b"")
    assert sorted(applications_in(app_repository.repository)) == ["a", "a-b", "a.b", "b", "c"]


def test_a_read_past_the_end_is_short_and_a_missing_blob_is_reported(
    app_repository: ApplicationRepository, storage: Storage
) -> None:
    storage.put("a", b"0123")
    assert app_repository.read(Extent("a", 1, 2), "A file") == b"12"
    assert app_repository.read(Extent("a", 3, 9), "A file") == b"3"
    with raises(Corrupted, "blob-missing", repository="memory:///", blob="b"):
        app_repository.read(Extent("b", 0, 1), "A file")


def test_a_head_names_the_hash_of_its_manifest(
    app_repository: ApplicationRepository, entry: SnapshotEntry, storage: Storage
) -> None:
    content = storage.blobs[app_repository.names.manifest(entry.snapshot)][0]
    assert sha256(content).hexdigest() == entry.sha256
    assert MANIFEST.decode(content).identity == entry.identity
    assert HEAD.decode(storage.pointers[app_repository.names.head]).newest == entry
    assert flipped(b"\x00", 3) == b"\x08"


def test_rights_are_found_out_and_nothing_is_left(
    app_repository: ApplicationRepository, network: Network, storage: Storage
) -> None:
    before = dict(storage.blobs)
    app_repository.check_writable()
    assert storage.blobs == before
    network.fault = lambda request, possible: "refused" if request == "put" else ""  # type: ignore[method-assign]
    with pytest.raises(Retryable):
        app_repository.check_writable()


def test_a_directory_that_cannot_be_an_application_hides_no_other(app_repository: ApplicationRepository) -> None:
    blobs = app_repository.blobs
    before = applications_in(app_repository.repository)
    blobs.put_if_absent("apps/old@orders/notes", b"mine")
    assert applications_in(app_repository.repository) == before
