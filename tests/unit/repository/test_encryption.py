"""An encrypted repository: what is stored, who opens it, and what works as in any other."""

from __future__ import annotations

import os
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from statecore.errors import Corrupted, Invalid, NotFound
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.blob_verification import NamedFile, missing_files
from statecore.repository.content_digests import save_digest, saved_digest
from statecore.repository.descriptor import DESCRIPTOR, DESCRIPTOR_NAME
from statecore.repository.encryption import KEY_DOCUMENT_NAME
from statecore.repository.head import Retention
from statecore.repository.layout import Layout
from statecore.repository.listing import list_snapshots
from statecore.repository.maintenance.blob_reading import damaged_files
from statecore.repository.maintenance.collection import Collector
from statecore.repository.maintenance.copier import Copier, CopyOutcome
from statecore.repository.maintenance.forget import forget
from statecore.repository.maintenance.head_repair import apply_repair, plan_repair
from statecore.repository.object_store import object_store_of
from statecore.repository.publish.upload import put_files
from statecore.repository.repository import create_replica, create_repository, open_repository
from tests.harness.raising import raises
from tests.unit.objectstore.implementations import IMPLEMENTATIONS
from tests.unit.repository.encrypted import encrypted_url, key_file, stored_files
from tests.unit.repository.published import APPLICATION, STORE, TOPIC, Publishing
from tests.unit.repository.snapshots import fetched, file_of


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "repository"


@pytest.fixture
def url(root: Path) -> str:
    return encrypted_url(root)


@pytest.fixture
def orders(url: str, tmp_path: Path) -> Publishing:
    return Publishing(url, tmp_path)


def test_no_stored_object_has_content_names_of_stores_or_hashes(orders: Publishing, root: Path) -> None:
    content = os.urandom(3 << 20)
    done = orders.publish(10, content=content)
    orders.publish(20)
    secrets = [STORE.encode(), TOPIC.encode(), done.snapshot.encode(), b"a run of orders", content[:16]]
    found = stored_files(root)
    kinds = {name.split("/")[2] for name in found if name.startswith("apps/")}
    assert kinds == {"HEAD", "manifests", "task-manifests", "files"}
    for name, stored in found.items():
        assert not [secret for secret in secrets if secret in stored], name
    digest = sha256(content).hexdigest()
    assert not any(digest in name or digest.encode() in stored for name, stored in found.items())
    assert orders.app_repository.names.file(digest) in found
    assert len(fetched(ApplicationRepository.open(orders.app_repository.url, APPLICATION))) == 2


def test_the_same_content_has_another_name_in_another_repository(orders: Publishing, tmp_path: Path) -> None:
    other = Publishing(encrypted_url(tmp_path / "other"), tmp_path)
    digest = sha256(b"content").hexdigest()
    names = {one.app_repository.names.file(digest) for one in (orders, other)}
    assert len(names) == 2
    assert not any(digest in name for name in names)


def test_a_repository_without_encryption_is_as_it_was(tmp_path: Path, root: Path) -> None:
    Publishing(root.as_uri(), tmp_path).publish(10)
    found = stored_files(root)
    assert KEY_DOCUMENT_NAME not in found
    assert b"encryption" not in found[DESCRIPTOR_NAME]
    named = [name for name in found if "/files/" in name or "/packs/" in name]
    assert named
    assert all(sha256(found[name]).hexdigest() in name for name in named)


WRONG: dict[str, Callable[[Path], tuple[str, str]]] = {
    "none": lambda root: (root.as_uri(), "encryption-key-missing"),
    "another": lambda root: (encrypted_url(root, "another"), "encryption-key-wrong"),
    "absent": lambda root: (f"{root.as_uri()}?encryption-key=file:/no/such/key", "encryption-key-unreadable"),
    "of another kind": lambda root: (f"{root.as_uri()}?encryption-key=kms:alias/one", "encryption-key-wrong"),
}


@pytest.mark.parametrize("key", WRONG)
def test_without_its_key_it_is_refused_before_anything_changes(orders: Publishing, root: Path, key: str) -> None:
    orders.publish(10)
    wrong, code = WRONG[key](root)
    for lost in (None, DESCRIPTOR_NAME):
        if lost:
            (root / lost).unlink()
        before = stored_files(root)
        for ask in (open_repository, create_repository):
            with raises(Invalid, code):
                ask(wrong)
        if not lost:  # as a task on another machine does it
            with raises(Invalid, code) if key != "none" else raises(NotFound, "blob-not-found"):
                object_store_of(wrong).blobs.get("apps/orders/none")
        assert stored_files(root) == before


def test_one_that_is_not_encrypted_is_refused_with_a_key(tmp_path: Path, root: Path) -> None:
    Publishing(root.as_uri(), tmp_path).publish(10)
    before = stored_files(root)
    for ask in (open_repository, create_repository):
        with raises(Invalid, "repository-not-encrypted", repository=encrypted_url(root)):
            ask(encrypted_url(root))
    assert stored_files(root) == before


def test_a_release_that_knows_no_encryption_refuses_it(orders: Publishing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("statecore.repository.needs.READ_FEATURES", frozenset())
    with raises(Invalid, "format-unsupported", features=["encryption-1"]):
        open_repository(orders.app_repository.url)


def test_a_task_that_has_the_url_alone_reads_and_writes(orders: Publishing, tmp_path: Path) -> None:
    store = object_store_of(orders.app_repository.url)
    (extent,) = put_files(store.blobs, orders.app_repository.names, [file_of(tmp_path / "files", b"content")])
    assert orders.app_repository.blobs.get(extent.blob) == b"content"


def test_digests_pins_collections_and_repairs_work_as_elsewhere(orders: Publishing, root: Path) -> None:
    for end in (10, 20, 30):
        orders.publish(end)
    app = orders.app_repository
    assert [one.damage for one in list_snapshots(app, app.head())] == [{}] * 3
    from statecore.images.model import StoreDigest

    save_digest(app, "f" * 64, StoreDigest(1, 2, "0" * 32), "release")
    assert saved_digest(app, "f" * 64) == StoreDigest(1, 2, "0" * 32)
    assert not any("f" * 64 in name for name in stored_files(root))
    forget(app, Retention(last=1, hourly=0, daily=0, weekly=0))
    done = [Collector(app, min_age_ms=0).run() for _ in range(4)]
    assert sum(one.deleted.blobs for one in done) > 0
    assert not any(one.unknown for one in done)
    (root / app.names.head).write_bytes(b"damaged")
    with pytest.raises(Corrupted):
        app.head()
    plan = plan_repair(app)
    assert plan.code == "head-invalid" or plan.problem
    apply_repair(app, plan)
    assert len(fetched(ApplicationRepository.open(app.url, APPLICATION))) == 1


@pytest.mark.parametrize("at", [30, 70_000])
def test_a_damaged_byte_is_found_where_it_is(orders: Publishing, root: Path, tmp_path: Path, at: int) -> None:
    app = orders.app_repository
    files = [file_of(tmp_path / "files", os.urandom(size)) for size in (40_000, 40_000, 2 << 20)]
    named = [
        NamedFile(file.sha256, extent)
        for file, extent in zip(files, put_files(app.blobs, app.names, files), strict=True)
    ]
    assert damaged_files(app.blobs, named) == {}
    path = root / named[0].extent.blob
    stored = bytearray(path.read_bytes())
    stored[at] ^= 1
    path.write_bytes(stored)
    wrong = set(named[:2]) if at < 65_536 else {named[1]}  # both have bytes of the first frame
    assert damaged_files(app.blobs, named) == dict.fromkeys(wrong, "blob-damaged")
    local = {file.sha256: file.path for file in files}
    for hands in (local, {}):
        assert missing_files(app.blobs, named, hands) == wrong, "of the same size, in a directory"
    assert [extent.blob for extent in put_files(app.blobs, app.names, files)] == [one.extent.blob for one in named]
    assert damaged_files(app.blobs, named) == {}, "it was replaced"


def test_blobs_that_were_exchanged_or_cut_are_damage(orders: Publishing, root: Path, tmp_path: Path) -> None:
    app = orders.app_repository
    files = [file_of(tmp_path / "files", os.urandom(2 << 20)) for _ in range(2)]
    extents = put_files(app.blobs, app.names, files)
    named = [NamedFile(file.sha256, extent) for file, extent in zip(files, extents, strict=True)]
    first, second = (root / extent.blob for extent in extents)
    content = first.read_bytes()
    first.write_bytes(second.read_bytes())
    assert damaged_files(app.blobs, named) == {named[0]: "blob-damaged"}
    first.write_bytes(content[: (64 * 1024 + 40) * 5])
    assert damaged_files(app.blobs, named) == {named[0]: "blob-truncated"}
    assert missing_files(app.blobs, named) == {named[0]}


def copied(source: str, target: str) -> Any:
    primary = open_repository(source)
    replica = create_replica(object_store_of(target), primary).repository
    return Copier(ApplicationRepository(primary, APPLICATION), ApplicationRepository(replica, APPLICATION)).run()


def test_a_replica_has_the_same_objects_and_may_have_another_key(
    orders: Publishing, root: Path, tmp_path: Path, url: str
) -> None:
    orders.publish(10, content=os.urandom(9 << 20))
    target = encrypted_url(tmp_path / "replica", "key of the replica")
    assert copied(url, target).outcome is CopyOutcome.COPIED
    assert copied(url, target).outcome is CopyOutcome.CURRENT
    of_apps = {name: stored for name, stored in stored_files(root).items() if name.startswith("apps/")}
    assert of_apps == {name: x for name, x in stored_files(tmp_path / "replica").items() if name.startswith("apps/")}
    with raises(Invalid, "encryption-key-wrong"):
        open_repository(encrypted_url(tmp_path / "replica"))
    assert fetched(ApplicationRepository.open(target, APPLICATION))


def test_a_replica_does_not_say_where_the_key_of_its_primary_is(
    orders: Publishing, root: Path, tmp_path: Path, url: str
) -> None:
    """Its descriptor is readable without a key."""
    orders.publish(10)
    target = encrypted_url(tmp_path / "replica", "key of the replica")
    copied(url, target)
    assert b"encryption-key" not in (tmp_path / "replica" / DESCRIPTOR_NAME).read_bytes()
    replica = ApplicationRepository.open(target, APPLICATION)
    with raises(Invalid, "repository-is-replica", copy_of=root.as_uri()) as caught:
        replica.repository.check_primary()
    for advice in (caught.value.action, replica.rebuild_advice, replica.fallback_advice):
        assert "add the encryption-key of the primary" in advice
    plain = (tmp_path / "plain").as_uri()
    Publishing(plain, tmp_path).publish(10)
    copied(plain, (tmp_path / "plain replica").as_uri())
    advice = ApplicationRepository.open((tmp_path / "plain replica").as_uri(), APPLICATION).rebuild_advice
    assert "encryption-key" not in advice


@pytest.mark.parametrize("which", ["source", "target"])
def test_a_replica_is_encrypted_if_its_source_is(orders: Publishing, tmp_path: Path, url: str, which: str) -> None:
    orders.publish(10)
    source, target = url, (tmp_path / "replica").as_uri()
    if which == "target":
        Publishing((tmp_path / "plain").as_uri(), tmp_path).publish(10)
        source, target = (tmp_path / "plain").as_uri(), encrypted_url(tmp_path / "replica")
    with raises(Invalid, "encryption-key-missing" if which == "source" else "copy-target-invalid"):
        copied(source, target)
    assert not (tmp_path / "replica").exists()


def test_another_encrypted_repository_is_no_replica(orders: Publishing, tmp_path: Path, url: str) -> None:
    orders.publish(10)
    create_repository(encrypted_url(tmp_path / "other"))
    with raises(Invalid, "copy-target-invalid"):
        copied(url, encrypted_url(tmp_path / "other"))


def test_the_descriptor_says_that_it_is_encrypted(orders: Publishing, root: Path) -> None:
    found = DESCRIPTOR.decode((root / DESCRIPTOR_NAME).read_bytes())
    assert found.needs.read == ("encryption-1",)
    assert found.encryption is not None
    assert orders.app_repository.repository.descriptor == found
    assert key_file(root.parent / "key").read_text() not in (root / DESCRIPTOR_NAME).read_text()


@pytest.mark.parametrize("size", [1000, 3 << 20, 40 << 20])
def test_an_object_that_was_overwritten_in_s3_is_found_without_reading_it(tmp_path: Path, size: int) -> None:
    """By the checksum of what is stored, of one request or of parts; its size is right."""
    blobs, names = IMPLEMENTATIONS["encrypted s3"](tmp_path), Layout(APPLICATION)
    file, other = (file_of(tmp_path / "files", os.urandom(size)) for _ in range(2))
    (extent,) = put_files(blobs, names, [file])
    named, local = NamedFile(file.sha256, extent), {file.sha256: file.path}
    assert missing_files(blobs, [named], local) == set()
    blobs.replace(extent.blob, other.path)
    assert missing_files(blobs, [named], local) == {named}
    put_files(blobs, names, [file])
    assert missing_files(blobs, [named], local) == set()
    assert damaged_files(blobs, [named]) == {}
    file.path.write_bytes(other.path.read_bytes())
    with raises(Corrupted, "upload-file-changed"):
        put_files(blobs, names, [file])
